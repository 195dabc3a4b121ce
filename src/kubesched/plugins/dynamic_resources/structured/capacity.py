"""Consumable capacity: what a request takes of a device, and whether enough is left.

The check applies to every device with capacities, shareable or not: for an exclusive device it is a
plain filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubesched.api import quantity
from kubesched.api.meta import RawQuantity
from kubesched.api.quantity import MAX_INT64, Format, Quantity
from kubesched.api.resource_v1 import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from kubesched.plugins.dynamic_resources.structured.features import Features

Requested = Mapping[str, RawQuantity]
"""Capacity name -> requested amount."""
Demand = dict[str, Quantity]
"""Capacity name -> what a request takes of it, for each capacity of the device."""

_MILLI = 10**6
"""Nanos of a thousandth."""


class CapacityError(Exception):
    """What a request takes cannot be computed: the attempt fails, whatever other devices offer."""


class Policies:
    """Applies the request policies of capacities."""

    def __init__(self, features: Features) -> None:
        self._is_strict = features.reference.capacity_overflow_is_an_error
        self._has_fractions = features.fractional_capacity_range
        self._round: Callable[[Quantity, Quantity, Quantity], Quantity] = (
            _rounded if self._is_strict else _rounded_silently
        )

    def demand(self, device: Device, requested: Requested) -> Demand | None:
        """What the request takes; None if a capacity is missing or does not allow it.

        Raises CapacityError before any capacity is found unsuitable.
        """
        capacities = device.capacity or {}
        if any(name not in capacities for name in requested):
            return None
        demand = {
            name: self._wanted(name, requested.get(name), capacity)
            for name, capacity in capacities.items()
        }
        for name, capacity in capacities.items():
            if self._violates(demand[name], capacity.request_policy):
                return None
        return demand

    def _wanted(
        self, name: str, requested: RawQuantity | None, capacity: DeviceCapacity
    ) -> Quantity:
        try:
            amount = self._resolved(requested, capacity)
        except CapacityError as error:
            raise CapacityError(f'capacity "{name}": {error}') from error
        if self._is_strict and amount.sign() < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        return amount

    def _resolved(self, requested: RawQuantity | None, capacity: DeviceCapacity) -> Quantity:
        """The requested amount, rounded up by policy; without one the default, or all of it."""
        policy = capacity.request_policy
        if requested is None:
            default = None if policy is None else policy.default
            return quantity.parse(capacity.value if default is None else default)
        amount = quantity.parse(requested)
        if policy is None:
            return amount
        if policy.valid_range is not None and policy.valid_range.min is not None:
            return self._rounded_to_range(amount, policy.valid_range)
        for valid in policy.valid_values or ():
            if amount <= quantity.parse(valid):
                return quantity.parse(valid)
        return amount

    def _rounded_to_range(self, amount: Quantity, valid: CapacityRequestPolicyRange) -> Quantity:
        assert valid.min is not None, "the caller has checked"
        lowest = quantity.parse(valid.min)
        if amount < lowest:
            return lowest
        if valid.step is None:
            return amount
        step = quantity.parse(valid.step)
        if self._counts_thousandths(valid):
            return _rounded_to_thousandths(amount, lowest, step)
        if step.value() <= 0:
            return amount  # never valid: `_violates` rejects it
        return self._round(amount, lowest, step)

    def _counts_thousandths(self, valid: CapacityRequestPolicyRange) -> bool:
        """Is the range exact in thousandths, and are fractions supported?"""
        if not self._has_fractions:
            return False
        bounds = [quantity.parse(q) for q in (valid.min, valid.max, valid.step) if q is not None]
        return all(_is_exact_in_milli(bound) for bound in bounds) and (
            valid.step is None or quantity.nanos(valid.step) >= _MILLI
        )

    def _violates(self, amount: Quantity, policy: CapacityRequestPolicy | None) -> bool:
        if policy is None:
            return False
        if policy.default is not None and _is_written_alike(amount, quantity.parse(policy.default)):
            return False
        if policy.valid_range is not None:
            return self._violates_range(amount, policy.valid_range)
        valid_values = policy.valid_values or ()
        return bool(valid_values) and all(
            amount != quantity.parse(valid_value) for valid_value in valid_values
        )

    def _violates_range(self, amount: Quantity, valid: CapacityRequestPolicyRange) -> bool:
        if valid.max is not None and amount > quantity.parse(valid.max):
            return True
        if valid.step is None or valid.min is None:
            return False
        if self._counts_thousandths(valid):
            above = amount.nanos - quantity.nanos(valid.min)
            return not _is_exact_in_milli(amount) or above % quantity.nanos(valid.step) != 0
        step = quantity.value(valid.step)
        return step <= 0 or (amount.value() - quantity.value(valid.min)) % step != 0


def _rounded_silently(amount: Quantity, lowest: Quantity, step: Quantity) -> Quantity:
    """Rounds to whole units; the result is written with binary suffixes whatever the step is."""
    steps = -((lowest.value() - amount.value()) // step.value())
    return Quantity(lowest.value() + steps * step.value(), 0, Format.BINARY_SI)


def _rounded(amount: Quantity, lowest: Quantity, step: Quantity) -> Quantity:
    """Rounds to whole units; the result is written like the step."""
    if amount.nanos > MAX_INT64 * 10**9:
        raise CapacityError(f"{_UNREPRESENTABLE}: request {amount} exceeds MaxInt64")
    low, size = lowest.value(), step.value()
    steps = -((low - amount.value()) // size)
    if low >= 0 and steps > (MAX_INT64 - low) // size:
        raise CapacityError(
            f"{_UNREPRESENTABLE}: rounding request {amount} up to the next step passes MaxInt64"
        )
    return Quantity(low + steps * size, 0, step.format)


def _rounded_to_thousandths(amount: Quantity, lowest: Quantity, step: Quantity) -> Quantity:
    if not _is_exact_in_milli(amount):
        raise CapacityError(
            f"{_UNREPRESENTABLE}: request {amount} is not a representable milli value"
        )
    low, size = lowest.nanos // _MILLI, step.nanos // _MILLI
    steps = -((low - amount.nanos // _MILLI) // size)
    # Upstream: the subtraction overflows if the range starts below zero, which is an error, too.
    if low < 0 or steps > (MAX_INT64 - low) // size:
        raise CapacityError(
            f"{_UNREPRESENTABLE}: rounding request {amount} up to the next step passes "
            "the milli-value range"
        )
    whole, rest = divmod(low + steps * size, 1000)
    if not rest:
        return Quantity(whole, 0, step.format)
    return Quantity(low + steps * size, -3, step.format)


_UNREPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


def _is_exact_in_milli(amount: Quantity) -> bool:
    milli, rest = divmod(amount.nanos, _MILLI)
    return rest == 0 and abs(milli) <= MAX_INT64


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
