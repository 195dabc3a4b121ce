"""Defaults of resource claims and slices, with quantities in the form a typed server gives them back."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api import quantity
from kubesched.embedded.apimachinery.objects import JsonObject


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
