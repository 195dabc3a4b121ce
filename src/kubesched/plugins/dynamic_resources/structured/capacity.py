"""Consumable capacity: what a request consumes of a device, and whether enough is left.

The check applies to every device with capacities, shareable or not: for an exclusive device it is a
plain filter.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubesched.api import quantity
from kubesched.api.meta import RawQuantity
from kubesched.api.quantity import Format, Quantity
from kubesched.api.resource_v1 import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from kubesched.plugins.dynamic_resources.structured.allocated_state import Amounts

Requested = Mapping[str, RawQuantity]
"""Capacity name -> requested amount."""


def fits(
    device: Device, requested: Requested, consumed: Amounts | None, picked: Amounts | None
) -> bool:
    """Does the request fit, given what claims consume and this attempt has already picked?"""
    capacities = device.capacity or {}
    if any(name not in capacities for name in requested):
        return False
    for name, capacity in capacities.items():
        want = wanted(requested.get(name), capacity)
        if violates(want, capacity.request_policy):
            return False
        total = want.nanos
        if consumed is not None:
            total += consumed.get(name, 0)
        if picked is not None:
            total += picked.get(name, 0)
        if total > quantity.nanos(capacity.value):
            return False
    return True


def consumption(device: Device, requested: Requested) -> dict[str, Quantity]:
    """What a share of the device consumes, for each of the device's capacities."""
    return {
        name: wanted(requested.get(name), capacity)
        for name, capacity in (device.capacity or {}).items()
    }


def wanted(requested: RawQuantity | None, capacity: DeviceCapacity) -> Quantity:
    """The requested amount, rounded up by policy; without a request the default, or all of it."""
    policy = capacity.request_policy
    if requested is None:
        default = None if policy is None else policy.default
        return quantity.parse(capacity.value if default is None else default)
    amount = quantity.parse(requested)
    if policy is None:
        return amount
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_to_range(amount, policy.valid_range)
    for valid in policy.valid_values or ():
        if amount <= quantity.parse(valid):
            return quantity.parse(valid)
    return amount


def _rounded_to_range(amount: Quantity, valid: CapacityRequestPolicyRange) -> Quantity:
    assert valid.min is not None, "the caller has checked"
    lowest = quantity.parse(valid.min)
    if amount < lowest:
        return lowest
    if valid.step is None:
        return amount
    step = quantity.value(valid.step)
    if step <= 0:
        return amount  # never valid: `violates` rejects it
    steps = -((lowest.value() - amount.value()) // step)
    return Quantity(lowest.value() + steps * step, 0, Format.BINARY_SI)


def violates(amount: Quantity, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None:
        return False
    if policy.default is not None and _is_written_alike(amount, quantity.parse(policy.default)):
        return False
    if policy.valid_range is not None:
        return _violates_range(amount, policy.valid_range)
    valid_values = policy.valid_values or ()
    return bool(valid_values) and all(
        amount != quantity.parse(valid_value) for valid_value in valid_values
    )


def _violates_range(amount: Quantity, valid: CapacityRequestPolicyRange) -> bool:
    if valid.max is not None and amount > quantity.parse(valid.max):
        return True
    if valid.step is None or valid.min is None:
        return False
    step = quantity.value(valid.step)
    return step <= 0 or (amount.value() - quantity.value(valid.min)) % step != 0


def _is_written_alike(a: Quantity, b: Quantity) -> bool:
    """Are both quantities spelled alike?

    # Upstream: the default is recognised by its representation, so `1024Mi` is not the default
    # `1Gi`.
    """
    return a is b or (
        (a.unscaled, a.scale, a.format, str(a)) == (b.unscaled, b.scale, b.format, str(b))
        and not a.is_big
        and not b.is_big
    )
