"""Shared counters: partitions of a physical device draw from common sets of counters."""

from __future__ import annotations

from kubesched.api import quantity
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.pools import (
    CounterKey,
    Pool,
    PooledDevice,
    PoolID,
)


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
            if pooled.charges and self._allocated.is_allocated(pooled.id):
                for key, amount in pooled.charges.items():
                    if key in available:
                        available[key] -= amount
        return available


class ConsumedCounters:
    """What the devices picked so far leave of each pool's counters."""

    __slots__ = ("_available", "_left")

    def __init__(self, available: AvailableCounters) -> None:
        self._available = available
        self._left: dict[PoolID, dict[CounterKey, int] | None] = {}
        """None for a pool with an overdrawn counter."""

    def take(self, pooled: PooledDevice) -> bool:
        """Consume the device's counters, unless a counter of the pool would not suffice.

        # Upstream: every counter of the pool is looked at, so one that is overdrawn blocks devices
        # that use others.
        """
        pool = pooled.pool
        if pool.id not in self._left:
            available = self._available.of(pool)
            is_overdrawn = any(amount < 0 for amount in available.values())
            self._left[pool.id] = None if is_overdrawn else dict(available)
        left = self._left[pool.id]
        if left is None:
            return False
        charges = pooled.charges
        for key, amount in charges.items():
            if left[key] < amount:
                return False
        for key, amount in charges.items():
            left[key] -= amount
        return True

    def give_back(self, pooled: PooledDevice) -> None:
        left = self._left[pooled.pool.id]
        assert left is not None, "nothing is taken from an overdrawn pool"
        for key, amount in pooled.charges.items():
            left[key] += amount
