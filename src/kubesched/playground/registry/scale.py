"""The `scale` subresource: a workload's replica count as an `autoscaling/v1` Scale."""

from __future__ import annotations

from kubesched.api import field_errors
from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import invalid, stale
from kubesched.playground.apimachinery.objects import Json, JsonObject, copy_json
from kubesched.playground.registry.rest_storage import NO_OPTIONS, RestStorage, WriteOptions
from kubesched.playground.registry.steps import at_once
from kubesched.playground.storage.store import Entry

_SCALE = ResourceInfo(
    group="autoscaling", version="v1", kind="Scale", plural="scales", singular="scale"
)


def scale_of(resource: ResourceInfo, obj: JsonObject) -> JsonObject:
    """Convert a workload to a Scale."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: JsonObject = {"replicas": (obj.get("status") or {}).get("replicas", 0)}
    selector = selector_text((obj.get("spec") or {}).get("selector"))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": (obj.get("spec") or {}).get("replicas", 0)},
        "status": status,
    }


def update(
    registry: RestStorage,
    resource: ResourceInfo,
    namespace: str,
    name: str,
    scale: Json,
    options: WriteOptions = NO_OPTIONS,
) -> Entry:
    """Set a workload's replica count; returns the workload's entry."""
    if not isinstance(scale, dict) or not isinstance(scale.get("metadata", {}), dict):
        raise BadRequest("the body is not a Scale")
    old = registry.get(resource, namespace, name)
    version = scale.get("metadata", {}).get("resourceVersion")
    if version and version != str(old.revision):
        raise stale(resource, name)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if type(replicas) is not int or replicas < 0:
        problem = field_errors.invalid(
            "spec.replicas", replicas, "must be greater than or equal to 0"
        )
        raise invalid(_SCALE, name, [problem])
    obj = copy_json(old.obj)
    obj["spec"]["replicas"] = replicas
    return at_once(registry.replace(resource, old, obj, options, subresource="scale"))


def selector_text(selector: Json) -> str:
    """A LabelSelector (or a plain label map) in query-string form."""
    if not isinstance(selector, dict):
        return ""
    labels = (
        selector.get("matchLabels", {})
        if {"matchLabels", "matchExpressions"} & selector.keys()
        else selector
    )
    parts = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key", ""), expression.get("operator", "")
        values = ",".join(sorted(expression.get("values") or ()))
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(operator, "")
        )
    return ",".join(parts)
