"""Overhead, node selector and tolerations of a RuntimeClass; mirrors `admission/runtimeclass`."""

from __future__ import annotations

from kubesched.playground.apimachinery.failures import forbidden
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.rest_storage import RestStorage

RUNTIME_CLASSES = "runtimeclasses.node.k8s.io"


def apply_runtime_class(registry: RestStorage, pod: JsonObject, spec: JsonObject) -> None:
    """Add the overhead, selector and tolerations of the pod's class, or reject the pod."""
    name = spec.get("runtimeClassName")
    chosen: JsonObject = {}
    if name:
        entry = registry.store.get(RUNTIME_CLASSES, "", name)
        if entry is None:
            raise _refused(registry, pod, f'pod rejected: RuntimeClass "{name}" not found')
        chosen = entry.obj
    _overhead(registry, pod, spec, chosen)
    scheduling = chosen.get("scheduling") or {}
    if scheduling:
        _node_selector(registry, pod, spec, scheduling.get("nodeSelector") or {})
        added = scheduling.get("tolerations") or []
        if added:
            spec["tolerations"] = merge_tolerations([*(spec.get("tolerations") or ()), *added])


def _overhead(registry: RestStorage, pod: JsonObject, spec: JsonObject, chosen: JsonObject) -> None:
    stated = spec.get("overhead")
    if chosen.get("overhead") is None:
        if stated is not None:
            why = (
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
            raise _refused(registry, pod, why)
        return
    fixed = chosen["overhead"].get("podFixed") or {}
    if stated and stated != fixed:
        why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise _refused(registry, pod, why)
    spec["overhead"] = dict(fixed)


def _node_selector(
    registry: RestStorage, pod: JsonObject, spec: JsonObject, added: dict[str, str]
) -> None:
    selector = spec.get("nodeSelector") or {}
    for key, value in added.items():
        if selector.get(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value};"
                f" pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise _refused(registry, pod, why)
    if added:
        spec["nodeSelector"] = {**selector, **added}


def _refused(registry: RestStorage, pod: JsonObject, why: str) -> Exception:
    return forbidden(registry.catalog.get("pods"), pod["metadata"].get("name", ""), why)


def merge_tolerations(tolerations: list[JsonObject]) -> list[JsonObject]:
    """The tolerations without those covered by another one; of equal ones the first stays."""
    merged: list[JsonObject] = []
    for index, toleration in enumerate(tolerations):
        later = tolerations[index + 1 :]
        if any(_covers(other, toleration) for other in merged) or any(
            other != toleration and _covers(other, toleration) for other in later
        ):
            continue
        merged.append(toleration)
    return merged


def _covers(wide: JsonObject, narrow: JsonObject) -> bool:
    if wide == narrow:
        return True
    exists = wide.get("operator") == "Exists"
    if narrow.get("key", "") != wide.get("key", "") and (wide.get("key") or not exists):
        return False
    if wide.get("effect") and narrow.get("effect", "") != wide["effect"]:
        return False
    limit, seconds = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    is_limited = wide.get("effect") == "NoExecute" and limit is not None
    if is_limited and (seconds is None or seconds > limit):
        return False
    # Upstream: a toleration without operator means Equal, but is covered by none of those.
    return exists or (
        narrow.get("operator") == "Equal" and narrow.get("value", "") == wide.get("value", "")
    )
