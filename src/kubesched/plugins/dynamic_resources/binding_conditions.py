"""Binding conditions: devices that must be prepared on the node before the pod is bound."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api.meta import Condition
from kubesched.api.resource_v1 import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kubesched.api.times import TimeError, parse_time


class BindingFailed(Exception):
    """A driver reported that a device cannot be made ready."""


def is_ready(claim: ResourceClaim) -> bool:
    """Are all conditions of all devices met? Raises BindingFailed.

    # Upstream: the first device that is not ready ends the check, even if a later one has failed.
    """
    if claim.status.allocation is None:
        return False
    for result in _results(claim):
        if not result.binding_conditions:
            continue
        device = _device_status(claim, result)
        if device is None:
            return False
        conditions = device.conditions or ()
        for wanted in result.binding_failure_conditions or ():
            failed = _find(conditions, wanted)
            if failed is not None and failed.status == "True":
                raise BindingFailed(
                    f"device binding failed: claim={claim.metadata.name}, "
                    f'reason={failed.reason}, message="{failed.message}"'
                )
        for wanted in result.binding_conditions:
            condition = _find(conditions, wanted)
            if condition is None or condition.status != "True":
                return False
    return True


def has_conditions(claim: ResourceClaim) -> bool:
    return any(result.binding_conditions for result in _results(claim))


def is_timed_out(claim: ResourceClaim, timeout_s: float, now: float) -> bool:
    """Has the timeout for the conditions passed since the allocation?"""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return False
    if all(result.binding_conditions is None for result in _results(claim)):
        return False
    try:
        allocated = parse_time(allocation.allocation_timestamp)
    except TimeError:
        return False
    return allocated + timeout_s < now


def results_with_conditions(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    return [result for result in _results(claim) if result.binding_conditions]


def _results(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    return [] if allocation is None else allocation.devices.results or []


def _device_status(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> AllocatedDeviceStatus | None:
    for device in claim.status.devices or ():
        if (device.driver, device.pool, device.device) == (
            result.driver,
            result.pool,
            result.device,
        ):
            return device
    return None


def _find(conditions: Iterable[Condition], wanted: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == wanted), None)
