"""Asks the allocator of dynamic resources what it would find with something changed.

The allocator decides, so it is also what explains: if it finds devices once those in use are
released, they are what is in the way. Nothing here repeats its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from kubesched.api.core_v1 import Node
from kubesched.api.resource_v1 import DeviceRequest, ResourceClaim
from kubesched.base.clock import SystemClock
from kubesched.plugins.dynamic_resources.manager import DRAManager
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator
from kubesched.plugins.dynamic_resources.structured.counters import AvailableCounters
from kubesched.plugins.dynamic_resources.structured.failures import (
    AllocationError,
    AllocationTimeout,
    InvalidPools,
)
from kubesched.plugins.dynamic_resources.structured.pools import CounterKey, Pool

SEARCH_S: Final = 2.0
"""Time for all questions of one explanation. Searches can take exponential time."""

IN_USE, TAINTS, COUNTERS = "in use", "taints", "counters"
CONSTRAINTS, CAPACITY, OTHERS = "constraints", "capacity", "others"
OBSTACLES: Final = (IN_USE, TAINTS, COUNTERS, CONSTRAINTS, CAPACITY, OTHERS)
"""What can be left out of account; the last three are about the last request only."""


class DeviceTrials:
    """Questions to the allocator, within `SEARCH_S`. The scheduler's own state is not changed."""

    def __init__(self, dra: DRAManager) -> None:
        self.dra = dra
        now = SystemClock().monotonic
        end = now() + SEARCH_S
        self.is_late: Callable[[], bool] = lambda: now() > end
        self._allocators: dict[frozenset[str], Allocator] = {}

    def finds(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        without: Sequence[str] = (),
        released: Sequence[ResourceClaim] = (),
    ) -> bool | None:
        """Are there devices for all claims, `without` some obstacles? None if time is up.

        `released` are claims whose devices count as free.
        """
        try:
            allocator = self._allocator(without, released)
            return allocator.solve(node, relaxed(claims, without), self.is_late) is not None
        except AllocationTimeout:
            return None
        except (AllocationError, InvalidPools):
            return False

    def blocked(self, node: Node, claims: Sequence[ResourceClaim]) -> list[ResourceClaim] | None:
        """The claims up to the first request that cannot be served together with those before it.

        None if all can, or time is up.
        """
        low, high = 1, sum(len(requests_of(claim)) for claim in claims)
        if not high or self.finds(node, claims) is not False:
            return None
        while low < high:
            middle = (low + high) // 2
            if self.finds(node, first_requests(claims, middle)):
                low = middle + 1
            else:
                high = middle
        return None if self.is_late() else first_requests(claims, low)

    def in_the_way(self, node: Node, blocked: Sequence[ResourceClaim]) -> list[str]:
        """Obstacles that each, if undone, would help; if none does, a smallest set that would.

        None at all if the last request cannot be served even without all of them.
        """
        alone = [one for one in OBSTACLES if self.finds(node, blocked, (one,))]
        if alone:
            # Without the requests before it there is always more to choose from.
            return [one for one in alone if one != OTHERS] or alone
        needed = list(OBSTACLES)
        if not self.finds(node, blocked, needed):
            return []
        for one in reversed(OBSTACLES):
            rest = [other for other in needed if other != one]
            needed = rest if self.finds(node, blocked, rest) else needed
        return needed

    def _allocator(self, without: Sequence[str], released: Sequence[ResourceClaim]) -> Allocator:
        key = frozenset(without) & {IN_USE, TAINTS, COUNTERS}
        if released:
            return self._new_allocator(key, released)
        if key not in self._allocators:
            self._allocators[key] = self._new_allocator(key)
        return self._allocators[key]

    def _new_allocator(
        self, without: frozenset[str], released: Sequence[ResourceClaim] = ()
    ) -> Allocator:
        dra, features = self.dra, self.dra.features
        allocated = AllocatedState() if IN_USE in without else dra.claims.allocated
        if released:
            allocated = _copy(allocated, consumable_capacity=features.consumable_capacity)
            for claim in released:
                if claim.status.allocation is not None:
                    allocated.remove(claim.status.allocation)
        if TAINTS in without:
            features = replace(features, device_taints=False)
        counters = _Plenty(allocated) if COUNTERS in without else None
        return Allocator(
            features, allocated, dra.device_class, dra.pools, dra.selectors, lambda: "", counters
        )


class _Plenty(AvailableCounters):
    """Counters that never run out."""

    def of(self, pool: Pool) -> dict[CounterKey, int]:
        return {key: 1 << 200 for pooled in pool.devices for key in pooled.charges}


def _copy(allocated: AllocatedState, *, consumable_capacity: bool) -> AllocatedState:
    made = AllocatedState(consumable_capacity=consumable_capacity)
    made.exclusive, made.shares = dict(allocated.exclusive), dict(allocated.shares)
    made.capacity = {device: dict(used) for device, used in allocated.capacity.items()}
    return made


# -- claims with less in them ----------------------------------------------------------------------


def requests_of(claim: ResourceClaim) -> list[DeviceRequest]:
    return claim.spec.devices.requests or []


def with_devices(claim: ResourceClaim, **fields: object) -> ResourceClaim:
    """The claim with other requests or constraints."""
    devices = structs.replace(claim.spec.devices, **fields)
    return structs.replace(claim, spec=structs.replace(claim.spec, devices=devices))


def first_requests(claims: Sequence[ResourceClaim], count: int) -> list[ResourceClaim]:
    """The claims with the first `count` of all requests, without those that have none left."""
    kept = []
    for claim in claims:
        requests = requests_of(claim)[:count]
        count -= len(requests)
        if requests:
            kept.append(with_devices(claim, requests=requests))
    return kept


def relaxed(claims: Sequence[ResourceClaim], without: Sequence[str]) -> list[ResourceClaim]:
    """The claims without constraints or capacity of the last request, or with it alone."""
    *before, last = claims
    *earlier, request = requests_of(last)
    if CAPACITY in without:
        request = _with_least_capacity(request)
    kept = [request] if OTHERS in without else [*earlier, request]
    if kept != requests_of(last):
        last = with_devices(last, requests=kept)
    if CONSTRAINTS in without:
        last = with_devices(last, constraints=None)
    return [last] if OTHERS in without else [*before, last]


def _with_least_capacity(request: DeviceRequest) -> DeviceRequest:
    """The request with as little of each capacity as devices allow; without any it takes all."""

    def least(asked: Any) -> Any:  # noqa: ANN401  # an exact request or an alternative
        if asked is None or asked.capacity is None:
            return asked
        amounts = dict.fromkeys(asked.capacity.requests or {}, "0")
        return structs.replace(asked, capacity=structs.replace(asked.capacity, requests=amounts))

    alternatives = [least(one) for one in request.first_available or ()] or None
    return structs.replace(request, exactly=least(request.exactly), first_available=alternatives)
