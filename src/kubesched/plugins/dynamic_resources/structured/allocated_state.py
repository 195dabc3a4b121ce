"""Devices, shares and capacity that allocated claims hold.

Amounts are exact integers in units of 10^-9 (`quantity.nanos`). A claim contributes what its
allocation lists: nothing for admin access, a share and its consumed capacity if the result has a
share ID, otherwise the whole device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubesched.api import quantity
from kubesched.api.resource_v1 import AllocationResult, DeviceRequestAllocationResult

Amounts = dict[str, int]
"""Capacity name -> amount in nanos."""
_VERSIONS_LIMIT: Final = 1 << 16
"""Pools whose version is known; beyond it, all others count as changed."""


class DeviceID(NamedTuple):
    """Identifies a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


ConsumedCapacity = dict[DeviceID, Amounts]
"""Consumed capacity per device. Entries that are all zero are dropped."""


def consume(capacity: ConsumedCapacity, device: DeviceID, amounts: Amounts) -> None:
    entry = capacity.setdefault(device, {})
    for name, amount in amounts.items():
        entry[name] = entry.get(name, 0) + amount


def give_back(capacity: ConsumedCapacity, device: DeviceID, amounts: Amounts) -> None:
    entry = capacity.get(device)
    if entry is None:
        return
    for name, amount in amounts.items():
        entry[name] = entry.get(name, 0) - amount
    if not any(entry.values()):
        del capacity[device]


class AllocatedState:
    """Allocated devices, shares and capacity.

    Holders are counted, so `remove` is the inverse of `add` even if two claims hold one device.
    """

    __slots__ = (
        "_consumable_capacity",
        "_forgotten_version",
        "_last_version",
        "_pool_versions",
        "capacity",
        "changed_pools",
        "exclusive",
        "shares",
    )

    def __init__(self, *, consumable_capacity: bool = True) -> None:
        """Without `consumable_capacity` a share takes the whole device."""
        self._consumable_capacity = consumable_capacity
        self.exclusive: dict[DeviceID, int] = {}
        self.shares: dict[DeviceID, int] = {}
        self.capacity: ConsumedCapacity = {}
        self._pool_versions: dict[tuple[str, str], int] = {}
        self._last_version = self._forgotten_version = 0
        self.changed_pools: dict[tuple[str, str], None] = {}
        """Pools changed since the last read by `SignatureColumn`, the only reader."""

    def is_allocated(self, device: DeviceID) -> bool:
        """Is the device allocated, wholly or in part?"""
        return device in self.exclusive or device in self.shares or device in self.capacity

    def add(self, allocation: AllocationResult) -> None:
        for result in _counted(allocation):
            device = device_of(result)
            self._note_change(device)
            if result.share_id is None or not self._consumable_capacity:
                self.exclusive[device] = self.exclusive.get(device, 0) + 1
                continue
            self.shares[device] = self.shares.get(device, 0) + 1
            if result.consumed_capacity is not None:
                consume(self.capacity, device, amounts_of(result))

    def remove(self, allocation: AllocationResult) -> None:
        for result in _counted(allocation):
            device = device_of(result)
            self._note_change(device)
            if result.share_id is None or not self._consumable_capacity:
                _count_down(self.exclusive, device)
                continue
            _count_down(self.shares, device)
            if result.consumed_capacity is not None:
                give_back(self.capacity, device, amounts_of(result))

    def _note_change(self, device: DeviceID) -> None:
        pool = (device.driver, device.pool)
        self._last_version += 1
        if len(self._pool_versions) >= _VERSIONS_LIMIT:
            self._pool_versions.clear()
            self._forgotten_version = self._last_version
        self._pool_versions[pool] = self._last_version
        self.changed_pools[pool] = None

    def pool_version(self, pool: tuple[str, str]) -> int:
        """A number that grows with every change to the devices of a pool (driver and name)."""
        return self._pool_versions.get(pool, self._forgotten_version)


def _count_down(holders: dict[DeviceID, int], device: DeviceID) -> None:
    left = holders.get(device, 0) - 1
    if left > 0:
        holders[device] = left
    else:
        holders.pop(device, None)


def device_of(result: DeviceRequestAllocationResult) -> DeviceID:
    return DeviceID(result.driver, result.pool, result.device)


def holds_the_same(one: AllocationResult, other: AllocationResult) -> bool:
    """Do both allocations hold the same devices and shares?"""
    return _taken(one) == _taken(other)


def _taken(allocation: AllocationResult) -> list[tuple[DeviceID, str | None]]:
    return [(device_of(result), result.share_id) for result in _counted(allocation)]


def amounts_of(result: DeviceRequestAllocationResult) -> Amounts:
    consumed = result.consumed_capacity or {}
    return {name: quantity.nanos(amount) for name, amount in consumed.items()}


def _counted(allocation: AllocationResult) -> Iterable[DeviceRequestAllocationResult]:
    """The results that take a device; admin access does not."""
    return (r for r in allocation.devices.results or () if not r.admin_access)
