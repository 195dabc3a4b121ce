"""Shared counters: partitions of a physical device draw from common sets of counters."""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api import quantity
from kubesched.api.resource_v1 import Device
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.pools import Pool, PoolID

CounterKey = tuple[str, str]
"""Counter set and counter."""


def consumption_of(device: Device) -> Iterator[tuple[CounterKey, int]]:
    """The device's counter consumption, in nanos."""
    for consumed in device.consumes_counters or ():
        for name, counter in (consumed.counters or {}).items():
            yield (consumed.counter_set, name), quantity.nanos(counter.value)


class AvailableCounters:
    """What allocated devices leave of each pool's counters, per attempt; may be negative."""

    __slots__ = ("_allocated", "_by_pool")

    def __init__(self, allocated: AllocatedState) -> None:
        self._allocated = allocated
        self._by_pool: dict[PoolID, dict[CounterKey, int]] = {}

    def of(self, pool: Pool) -> dict[CounterKey, int]:
        known = self._by_pool.get(pool.id)
        if known is None:
            known = self._by_pool[pool.id] = self._compute(pool)
        return known

    def _compute(self, pool: Pool) -> dict[CounterKey, int]:
        available = {
            (counter_set.name, name): quantity.nanos(counter.value)
            for counter_set in pool.counter_sets.values()
            for name, counter in (counter_set.counters or {}).items()
        }
        for pooled in (*pool.devices, *pool.elsewhere):
            if pooled.device.consumes_counters and self._allocated.is_allocated(pooled.id):
                for key, amount in consumption_of(pooled.device):
                    if key in available:
                        available[key] -= amount
        return available


class ConsumedCounters:
    """Counter consumption of the devices picked so far."""

    __slots__ = ("_available", "_by_pool")

    def __init__(self, available: AvailableCounters) -> None:
        self._available = available
        self._by_pool: dict[PoolID, dict[CounterKey, int]] = {}

    def take(self, device: Device, pool: Pool) -> bool:
        """Consume the device's counters, unless a counter of the pool would not suffice.

        # Upstream: every counter of the pool is looked at, so one that is overdrawn blocks devices
        # that use others.
        """
        consumed = self._by_pool.setdefault(pool.id, {})
        for key, amount in consumption_of(device):
            consumed[key] = consumed.get(key, 0) + amount
        available = self._available.of(pool)
        if any(amount < consumed.get(key, 0) for key, amount in available.items()):
            self.give_back(device, pool)
            return False
        return True

    def give_back(self, device: Device, pool: Pool) -> None:
        consumed = self._by_pool[pool.id]
        for key, amount in consumption_of(device):
            consumed[key] -= amount
