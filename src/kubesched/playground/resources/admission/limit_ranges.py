"""LimitRanges: defaults, applied before validation, and bounds, checked after it."""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api.quantity import Quantity
from kubesched.playground.apimachinery.failures import forbidden
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.rest_storage import AdmissionRequest, RestStorage
from kubesched.playground.resources.admission.quota_usage import Totals, parsed, pod_total

RESOURCE = "limitranges"
ANNOTATION = "kubernetes.io/limit-ranger"


def apply_defaults(registry: RestStorage, pod: JsonObject) -> None:
    """Apply the namespace's default requests and limits to containers that set none."""
    for limit_range in _ranges(registry, pod["metadata"].get("namespace", "")):
        requests: JsonObject = {}
        limits: JsonObject = {}
        for item in _items(limit_range):
            if item.get("type") == "Container":
                requests.update(item.get("defaultRequest") or {})
                limits.update(item.get("default") or {})
        notes: list[str] = []
        for field, noun in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(field) or ():
                notes += _fill(container, requests, limits, noun)
        if notes:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)


def _fill(
    container: JsonObject, requests: JsonObject, limits: JsonObject, noun: str
) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for field, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
        missing = sorted(set(defaults) - set(resources.get(field) or {}))
        if missing:
            amounts = resources[field] = dict(resources.get(field) or {})
            amounts.update((name, defaults[name]) for name in missing)
            yield f"{', '.join(missing)} {word} for {noun} {container.get('name', '')}"


def check_limits(request: AdmissionRequest) -> None:
    """Reject a pod or claim that exceeds the bounds of its namespace."""
    registry, resource, obj, old, subresource, _ = request
    is_pod = resource.key == "pods"
    if not (is_pod and (old is None or subresource == "resize")) and not (
        resource.key == "persistentvolumeclaims" and not subresource
    ):
        return
    for limit_range in _ranges(registry, obj["metadata"].get("namespace", "")):
        problems = [
            problem
            for item in _items(limit_range)
            for problem in (_pod_problems(item, obj) if is_pod else _claim_problems(item, obj))
        ]
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise forbidden(resource, obj["metadata"].get("name", ""), text)


def _ranges(registry: RestStorage, namespace: str) -> list[JsonObject]:
    collection = registry.store.collection(RESOURCE)
    if not collection.count:
        return []
    return [entry.obj for entry in collection.entries(namespace)]


def _items(limit_range: JsonObject) -> list[JsonObject]:
    items: list[JsonObject] = (limit_range.get("spec") or {}).get("limits") or []
    return items


def _pod_problems(item: JsonObject, pod: JsonObject) -> Iterator[str]:
    spec = pod["spec"]
    if item.get("type") == "Container":
        for field in ("containers", "initContainers"):
            for container in spec.get(field) or ():
                resources = container.get("resources") or {}
                yield from _problems(
                    item, parsed(resources.get("requests")), parsed(resources.get("limits"))
                )
    elif item.get("type") == "Pod":
        yield from _problems(item, pod_total(spec, "requests"), pod_total(spec, "limits"))


def _claim_problems(item: JsonObject, claim: JsonObject) -> Iterator[str]:
    if item.get("type") != "PersistentVolumeClaim":
        return
    requests = parsed((claim["spec"].get("resources") or {}).get("requests"))
    for name, bound in parsed(item.get("min")).items():
        yield from _below(item["type"], name, bound, requests.get(name), None)
    for name, bound in parsed(item.get("max")).items():
        here = f"maximum {name} usage per {item['type']} is {bound}"
        if name not in requests:
            yield f"{here}.  No request is specified"
        elif requests[name] > bound:
            yield f"{here}, but request is {requests[name]}"


def _problems(item: JsonObject, requests: Totals, limits: Totals) -> Iterator[str]:
    scope = item["type"]
    for name, bound in parsed(item.get("min")).items():
        yield from _below(scope, name, bound, requests.get(name), limits.get(name))
    for name, bound in parsed(item.get("max")).items():
        yield from _above(scope, name, bound, requests.get(name), limits.get(name))
    for name, bound in parsed(item.get("maxLimitRequestRatio")).items():
        yield from _ratio(scope, name, bound, requests.get(name), limits.get(name))


def _below(
    scope: str, name: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    here = f"minimum {name} usage per {scope} is {bound}"
    if request is None:
        yield f"{here}.  No request is specified"
    elif request < bound:
        yield f"{here}, but request is {request}"
    elif limit is not None and limit < bound:
        yield f"{here}, but limit is {limit}"


def _above(
    scope: str, name: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    here = f"maximum {name} usage per {scope} is {bound}"
    if limit is None:
        yield f"{here}.  No limit is specified"
    elif limit > bound:
        yield f"{here}, but limit is {limit}"
    elif request is not None and request > bound:
        yield f"{here}, but request is {request}"


def _ratio(
    scope: str, name: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    here = f"{name} max limit to request ratio per {scope} is {bound}, but"
    if request is None or request.is_zero():
        yield f"{here} no request is specified or request is 0"
    elif limit is None or limit.is_zero():
        yield f"{here} no limit is specified or limit is 0"
    elif limit.nanos * 1000 > bound.milli_value() * request.nanos:
        yield f"{here} provided ratio is {limit.nanos / request.nanos:f}"
