"""An object's usage of a ResourceQuota; LimitRanges use the same sum (`pod_total`)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Literal, TypeAlias

from kubesched.api import quantity
from kubesched.api.quantity import Quantity
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.pods import is_finished

_ONE = quantity.parse(1)
_COUNTED = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
"""Resources with their own name in a quota, besides `count/<resource>`."""
DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_MOST_DEVICES = 32  # the most that one claim can be allocated
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_MUST_SPECIFY = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
Totals: TypeAlias = dict[str, Quantity]
Side: TypeAlias = Literal["requests", "limits"]


def usage_of(resource: ResourceInfo, obj: JsonObject) -> Totals:
    """The object's usage, by the names used in a quota's `hard`."""
    usage: Totals = {f"count/{resource.key}": _ONE}
    if resource.key in _COUNTED:
        usage[resource.key] = _ONE
    if resource.key == "pods":
        usage |= _pod_usage(obj)
    elif resource.key == "services":
        usage |= _service_usage(obj)
    elif resource.key == "persistentvolumeclaims":
        usage |= _claim_usage(obj)
    elif resource.key == "resourceclaims.resource.k8s.io":
        usage |= _device_usage(obj)
    return usage


def _pod_usage(pod: JsonObject) -> Totals:
    if is_finished(pod):
        return {}
    usage: Totals = {"pods": _ONE}
    for name, amount in pod_total(pod["spec"], "requests").items():
        usage[f"requests.{name}"] = amount
        if name in _PLAIN or name.startswith("hugepages-"):
            usage[name] = amount
    for name, amount in pod_total(pod["spec"], "limits").items():
        usage[f"limits.{name}"] = amount
    return usage


def _service_usage(service: JsonObject) -> Totals:
    spec = service["spec"]
    ports = len(spec.get("ports") or ())
    is_balanced = spec.get("type") == "LoadBalancer"
    if is_balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = sum(1 for port in spec.get("ports") or () if port.get("nodePort"))
    has_node_ports = spec.get("type") in ("NodePort", "LoadBalancer")
    return {
        "services.nodeports": quantity.parse(ports if has_node_ports else 0),
        "services.loadbalancers": quantity.parse(int(is_balanced)),
    }


def _claim_usage(claim: JsonObject) -> Totals:
    spec = claim["spec"]
    requests = (spec.get("resources") or {}).get("requests") or {}
    usage: Totals = {}
    if "storage" in requests:
        usage["requests.storage"] = quantity.parse(requests["storage"])
    storage_class = spec.get("storageClassName")
    if storage_class:
        prefix = f"{storage_class}.storageclass.storage.k8s.io/"
        usage[f"{prefix}persistentvolumeclaims"] = _ONE
        if "storage" in requests:
            usage[f"{prefix}requests.storage"] = quantity.parse(requests["storage"])
    return usage


def _device_usage(claim: JsonObject) -> Totals:
    """Devices by class; of alternatives, the largest number that may be allocated."""
    usage: Totals = {}
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        exactly = [request["exactly"]] if request.get("exactly") else []
        largest: Totals = {}
        for wanted in request.get("firstAvailable") or exactly:
            is_all = wanted.get("allocationMode") == "All"
            count = quantity.parse(_MOST_DEVICES if is_all else wanted.get("count", 0))
            largest = _largest(largest, {wanted["deviceClassName"] + DEVICES_OF_CLASS: count})
        usage = _add(usage, largest)
    return usage


def unspecified(pod: JsonObject, hard: Container[str]) -> dict[str, list[str]]:
    """Resources that a quota requires every container to set, and the containers that do not.

    Upstream: only these six; other resources may be omitted and then count as zero.
    """
    missing: dict[str, list[str]] = {}
    spec = pod["spec"]
    for key in sorted(name for name in _MUST_SPECIFY if name in hard):
        side = "limits" if key.startswith("limits.") else "requests"
        plain = key.rpartition(".")[2]
        if plain in ((spec.get("resources") or {}).get(side) or {}):
            continue
        names = sorted(
            container.get("name", "")
            for field in ("containers", "initContainers")
            for container in spec.get(field) or ()
            if plain not in ((container.get("resources") or {}).get(side) or {})
        )
        if names:
            missing[key] = names
    return missing


def matches_scopes(quota: JsonObject, resource: ResourceInfo, obj: JsonObject) -> bool:
    """Whether the quota covers the object; scopes select only pods and claims."""
    spec = quota.get("spec") or {}
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = [
        *({"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()),
        *selector,
    ]
    if resource.key == "persistentvolumeclaims":
        return all(_claim_in_scope(scope, obj) for scope in scopes)
    if not scopes:
        return True
    return resource.key == "pods" and all(_in_scope(scope, obj["spec"]) for scope in scopes)


def _claim_in_scope(scope: JsonObject, claim: JsonObject) -> bool:
    names = attributes_classes(claim) or {""}
    return scope.get("scopeName") == "VolumeAttributesClass" and any(
        _class_matches(scope, name) for name in names
    )


def attributes_classes(claim: JsonObject) -> set[str]:
    """The VolumeAttributesClasses that the claim requests, has, or is changing to."""
    status = claim.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    current = status.get("currentVolumeAttributesClassName")
    names = (claim["spec"].get("volumeAttributesClassName"), current, target)
    return {name for name in names if name}


def _in_scope(scope: JsonObject, spec: JsonObject) -> bool:
    name = scope.get("scopeName")
    if name == "BestEffort":
        return qos_class(spec) == "BestEffort"
    if name == "NotBestEffort":
        return qos_class(spec) != "BestEffort"
    if name == "Terminating":
        return spec.get("activeDeadlineSeconds") is not None
    if name == "NotTerminating":
        return spec.get("activeDeadlineSeconds") is None
    if name == "PriorityClass":
        return _class_matches(scope, spec.get("priorityClassName") or "")
    if name == "CrossNamespacePodAffinity":
        return any(
            term.get("namespaces") or term.get("namespaceSelector") is not None
            for term in pod_affinity_terms(spec)
        )
    return False


def _class_matches(scope: JsonObject, name: str) -> bool:
    operator, values = scope.get("operator"), scope.get("values") or ()
    if operator == "In":
        return name in values
    if operator == "NotIn":
        return name not in values
    return bool(name) is (operator == "Exists")


def pod_affinity_terms(spec: JsonObject) -> Iterator[JsonObject]:
    """All terms of a pod's affinity and anti-affinity to pods."""
    affinity = spec.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        group = affinity.get(name) or {}
        yield from group.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in group.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


def add(first: Totals, second: Totals) -> Totals:
    """The sum, for the names in `first`."""
    return {
        name: amount + second[name] if name in second else amount for name, amount in first.items()
    }


def difference(new: Totals, old: Totals) -> Totals:
    """Increase per resource; decreases are omitted."""
    grown: Totals = {}
    for name, amount in new.items():
        more: Quantity = amount - old[name] if name in old else amount
        if more.sign() > 0:
            grown[name] = more
    return grown


def pod_total(spec: JsonObject, side: Side) -> Totals:
    """Requests or limits plus overhead; the larger of the running and the initialization sum."""
    running: Totals = {}
    for container in spec.get("containers") or ():
        running = _add(running, _amounts(container, side))
    sidecars: Totals = {}
    starting: Totals = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, side)
        if container.get("restartPolicy") == "Always":
            sidecars = _add(sidecars, own)
            own = sidecars
        else:
            own = _add(sidecars, own)
        starting = _largest(starting, own)
    total = _largest(_add(running, sidecars), starting)
    total.update(parsed((spec.get("resources") or {}).get(side)))
    overhead = parsed(spec.get("overhead"))
    if side == "limits":  # Upstream: overhead raises only limits that are set.
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return _add(total, overhead)


def _amounts(container: JsonObject, side: Side) -> Totals:
    return parsed((container.get("resources") or {}).get(side))


def parsed(amounts: JsonObject | None) -> Totals:
    """Parsed amounts by resource."""
    return {name: quantity.parse(amount) for name, amount in (amounts or {}).items()}


def _add(first: Totals, second: Totals) -> Totals:
    return {
        name: first[name] + second[name] if name in first and name in second else present
        for name, present in _both(first, second)
    }


def _largest(first: Totals, second: Totals) -> Totals:
    return {
        name: max(first[name], second[name]) if name in first and name in second else present
        for name, present in _both(first, second)
    }


def _both(first: Totals, second: Totals) -> Iterable[tuple[str, Quantity]]:
    return {**second, **first}.items()


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort; pod-level requests and limits take precedence."""
    pod_level = spec.get("resources") or {}
    if pod_level.get("requests") or pod_level.get("limits"):
        bodies = [pod_level]
    else:
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        bodies = [container.get("resources") or {} for container in containers]
    is_best_effort, is_guaranteed = True, True
    for resources in bodies:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked, limit = requests.get(name), limits.get(name)
            if _is_positive(asked) or _is_positive(limit):
                is_best_effort = False
            if not _is_positive(limit) or (asked is not None and asked != limit):
                is_guaranteed = False
    if is_best_effort:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


def _is_positive(amount: object) -> bool:
    return amount is not None and amount not in ("0", 0)
