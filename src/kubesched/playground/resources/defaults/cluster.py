"""Defaults of nodes, services, configuration, storage and devices; normalizes quantities."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import lru_cache

from kubesched.api import quantity
from kubesched.playground.apimachinery.objects import Json, JsonObject, copy_json

_MILLI = -3
_SERVICE = {"type": "ClusterIP", "sessionAffinity": "None"}
_VOLUME = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
_CSI_DRIVER: JsonObject = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
    "volumeLifecycleModes": ["Persistent"],
}


def fill(obj: JsonObject, defaults: JsonObject) -> JsonObject:
    """Set omitted fields, also in nested objects; returns the object."""
    for field, value in defaults.items():
        if isinstance(value, dict):
            fill(obj.setdefault(field, {}), value)
        elif field not in obj:
            obj[field] = copy_json(value)
    return obj


def default_namespace(obj: JsonObject) -> None:
    name = obj["metadata"].get("name")
    if name:
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = name


def default_node(obj: JsonObject) -> None:
    if "spec" not in obj:
        obj["spec"] = {}
    status = obj.get("status")
    if status:
        round_list(status.get("capacity"))
        round_list(status.get("allocatable"))
        # Upstream: a node that states only its capacity offers all of it.
        if "allocatable" not in status and "capacity" in status:
            status["allocatable"] = dict(status["capacity"])


def default_service(obj: JsonObject) -> None:
    spec = fill(obj.setdefault("spec", {}), _SERVICE)
    kind = spec["type"]
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))


def default_limit_range(obj: JsonObject) -> None:
    """Upstream: default limits fall back to max; default requests to default limits, then min."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_list(item.get(field))
        if item.get("type") != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        item["default"], item["defaultRequest"] = limits, requests


def default_resource_quota(obj: JsonObject) -> None:
    round_list((obj.get("spec") or {}).get("hard"))


def default_priority_class(obj: JsonObject) -> None:
    fill(obj, {"preemptionPolicy": "PreemptLowerPriority", "value": 0})


def default_secret(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def default_event(obj: JsonObject) -> None:
    fill(obj, {"source": {}, "reportingComponent": "", "reportingInstance": ""})


@lru_cache(maxsize=16384)
def rounded(raw: Json) -> str:
    """The quantity rounded up to thousandths; raises `QuantityError` if it is invalid."""
    return str(quantity.parse(raw).round_up(_MILLI))


def round_list(amounts: JsonObject | None) -> None:
    """Round a resource list in place."""
    if amounts:
        for name, amount in amounts.items():
            amounts[name] = rounded(amount)


def default_persistent_volume(obj: JsonObject) -> None:
    spec = fill(obj.setdefault("spec", {}), _VOLUME)
    round_list(spec.get("capacity"))
    host_path = spec.get("hostPath")
    if host_path is not None:
        host_path.setdefault("type", "")


def default_persistent_volume_claim(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.get("resources") or {}
    round_list(resources.get("requests"))
    round_list(resources.get("limits"))


def default_storage_class(obj: JsonObject) -> None:
    fill(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


def default_csi_driver(obj: JsonObject) -> None:
    fill(obj.setdefault("spec", {}), _CSI_DRIVER)


def default_resource_claim(obj: JsonObject) -> None:
    _claim_spec(obj.setdefault("spec", {}))


def default_resource_claim_template(obj: JsonObject) -> None:
    _claim_spec(obj.setdefault("spec", {}).setdefault("spec", {}))


def default_resource_slice(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("pool", {})
    for counters in spec.get("sharedCounters") or ():
        _amounts((counters.get("counters") or {}).values())
    for device in spec.get("devices") or ():
        _device(device)


def default_claim_status(obj: JsonObject) -> None:
    allocation = (obj.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        _quantities(result.get("consumedCapacity"))


def _claim_spec(spec: JsonObject) -> None:
    devices = spec.setdefault("devices", {})
    for request in devices.get("requests") or ():
        exactly = request.get("exactly")
        for wanted in (exactly, *(request.get("firstAvailable") or ())):
            if wanted is None:
                continue
            if not wanted.get("allocationMode"):
                wanted["allocationMode"] = "ExactCount"
            if wanted["allocationMode"] == "ExactCount" and not wanted.get("count"):
                wanted["count"] = 1
            _quantities((wanted.get("capacity") or {}).get("requests"))


def _device(device: JsonObject) -> None:
    capacities = (device.get("capacity") or {}).values()
    _amounts(capacities)
    for capacity in capacities:
        policy = capacity.get("requestPolicy") or {}
        if policy.get("default") is not None:
            policy["default"] = quantity.canonical(policy["default"])
        if policy.get("validValues"):
            policy["validValues"] = [quantity.canonical(value) for value in policy["validValues"]]
        _quantities(policy.get("validRange"))
    for consumption in device.get("consumesCounters") or ():
        _amounts((consumption.get("counters") or {}).values())


def _amounts(entries: Iterable[JsonObject]) -> None:
    for entry in entries:
        entry["value"] = quantity.canonical(entry.get("value") or 0)


def _quantities(amounts: JsonObject | None) -> None:
    if amounts is None:
        return
    for name, amount in amounts.items():
        amounts[name] = quantity.canonical(amount if amount is not None else 0)
