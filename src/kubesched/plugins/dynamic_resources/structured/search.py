"""The search: depth first over claims, requests and devices, until the first complete solution.

Devices of one request are picked in increasing position, so a request never takes a device twice;
every further request starts at the first device again. If a claim would get too many devices, the
search abandons the devices of its earlier exact requests at once, since other ones cannot help.

Each step is a generator that yields the steps it depends on, driven by `_run`: a claim for many
devices would exceed Python's recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum

from kubesched.api.names import key_of
from kubesched.api.quantity import Quantity
from kubesched.api.resource_v1 import MAX_ALLOCATION_RESULTS
from kubesched.plugins.dynamic_resources.structured import capacity
from kubesched.plugins.dynamic_resources.structured.allocated_state import (
    AllocatedState,
    ConsumedCapacity,
    DeviceID,
)
from kubesched.plugins.dynamic_resources.structured.counters import (
    AvailableCounters,
    ConsumedCounters,
)
from kubesched.plugins.dynamic_resources.structured.failures import (
    AllocationError,
    AllocationTimeout,
)
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import PooledDevice
from kubesched.plugins.dynamic_resources.structured.requests import ClaimRequests, Request
from kubesched.plugins.dynamic_resources.structured.taints import is_repelled


class Outcome(Enum):
    """How a step of the search ended."""

    FOUND = "found"
    NO = "no"
    TOO_MANY = "too many devices for the claim"


Step = Generator["Step", Outcome, Outcome]


@dataclass(slots=True, eq=False)
class Pick:
    """A device picked for a request."""

    request: Request
    pooled: PooledDevice
    has_counters: bool
    """Whether its counters were consumed."""
    consumed: dict[str, Quantity] | None
    """For a shareable device: what the share consumes."""
    was_shared: bool = False
    """For a shareable device: whether it had already been picked in this attempt."""


class Search:
    """One node's search for devices for all claims together."""

    def __init__(
        self,
        claims: Sequence[ClaimRequests],
        devices: Sequence[PooledDevice],
        allocated: AllocatedState,
        counters: AvailableCounters,
        features: Features,
        is_selectable: Callable[[Request, PooledDevice], bool],
        is_late: Callable[[], bool],
    ) -> None:
        """`devices` are those of all usable pools, in order; `is_late` is called at every step."""
        self._claims = claims
        self._devices = devices
        self._allocated = allocated
        self._counters = ConsumedCounters(counters)
        self._features = features
        self._is_selectable = is_selectable
        self._is_late = is_late
        self._picked_by: dict[DeviceID, set[int]] = {}
        """Devices that are not shareable -> indices of the claims they were picked for."""
        self._shared = ConsumedCapacity()
        """Shareable capacity consumed by this attempt; an entry also marks a device as picked."""
        self.picks: list[list[Pick]] = [[] for _ in claims]
        """By claim, in the order of picking."""
        self.chosen: dict[tuple[int, int], int] = {}
        """(claim, request) -> the chosen alternative."""

    def run(self) -> bool:
        """Find the first solution; raises AllocationError."""
        outcome = _run(self._claim(0))
        if outcome is Outcome.TOO_MANY:
            raise AllocationError("allocation max size exceeded")
        return outcome is Outcome.FOUND

    # -- steps -------------------------------------------------------------------------------------

    def _claim(self, claim: int) -> Step:
        if claim == len(self._claims):
            self._check_time()
            return Outcome.FOUND
        outcome = yield self._request(claim, 0)
        # A different choice for an earlier claim may leave this one an alternative with fewer
        # devices.
        return Outcome.NO if outcome is Outcome.TOO_MANY and claim else outcome

    def _request(self, claim: int, index: int) -> Step:
        self._check_time()
        requests = self._claims[claim].requests
        if index == len(requests):
            return (yield self._claim(claim + 1))
        alternatives = requests[index]
        if not alternatives[0].parent:
            return (yield self._devices_for(claim, index, alternatives[0], 0, 0))
        only_too_many = True
        for number, request in enumerate(alternatives):
            outcome = yield self._devices_for(claim, index, request, 0, 0)
            if outcome is Outcome.FOUND:
                self.chosen[claim, index] = number
                return outcome
            only_too_many = only_too_many and outcome is Outcome.TOO_MANY
        return Outcome.TOO_MANY if only_too_many else Outcome.NO

    def _devices_for(self, claim: int, index: int, request: Request, have: int, start: int) -> Step:
        """Pick the remaining devices of a request that has `have` of them, from `start` on."""
        self._check_time()
        if request.wants_all and not request.all_devices:
            return Outcome.NO
        if have >= request.count:
            return (yield self._request(claim, index + 1))
        if len(self.picks[claim]) + request.count - have > MAX_ALLOCATION_RESULTS:
            return Outcome.TOO_MANY
        if request.wants_all:
            pooled = request.all_devices[have]
            if not self._take(claim, request, pooled, must=True):
                return Outcome.NO
            outcome = yield self._devices_for(claim, index, request, have + 1, 0)
            if outcome is not Outcome.FOUND:
                self._give_back(claim)
            return outcome
        for position in range(start, len(self._devices)):
            pooled = self._devices[position]
            if not self._is_candidate(claim, request, pooled):
                continue
            if not self._take(claim, request, pooled, must=False):
                continue
            outcome = yield self._devices_for(claim, index, request, have + 1, position + 1)
            if outcome is Outcome.FOUND:
                return outcome
            self._give_back(claim)
            if outcome is Outcome.TOO_MANY:
                return outcome
        return Outcome.NO

    def _check_time(self) -> None:
        if self._is_late():
            raise AllocationTimeout("timed out trying to allocate devices")

    # -- one device --------------------------------------------------------------------------------

    def _is_candidate(self, claim: int, request: Request, pooled: PooledDevice) -> bool:
        return (
            not self._is_in_use(claim, request, pooled)
            and self._is_selectable(request, pooled)
            and self._has_capacity(request, pooled)
        )

    def _is_in_use(self, claim: int, request: Request, pooled: PooledDevice) -> bool:
        picked_by = self._picked_by.get(pooled.id)
        if request.has_admin_access:
            return bool(picked_by) and claim in picked_by  # type: ignore[operator]  # not None
        return bool(picked_by) or pooled.id in self._allocated.exclusive

    def _has_capacity(self, request: Request, pooled: PooledDevice) -> bool:
        return not self._features.consumable_capacity or capacity.fits(
            pooled.device,
            request.capacity,
            self._allocated.capacity.of(pooled.id),
            self._shared.of(pooled.id),
        )

    def _take(self, claim: int, request: Request, pooled: PooledDevice, *, must: bool) -> bool:
        """Pick a device if counters, taints, constraints and capacity allow it.

        Raises AllocationError.
        """
        device, device_id = pooled.device, pooled.id
        is_shareable = self._features.consumable_capacity and pooled.is_shareable
        if self._is_in_use(claim, request, pooled):
            return False
        has_counters = bool(device.consumes_counters)
        if has_counters and not self._features.partitionable_devices:
            return False
        # A further share of a device in use consumes no more counters.
        if is_shareable and (device_id in self._allocated.capacity or device_id in self._shared):
            has_counters = False
        if has_counters and not self._counters.take(device, pooled.pool):
            return False
        is_taken = not (
            self._features.device_taints and is_repelled(device, request.tolerations)
        ) and self._satisfies_constraints(claim, request, pooled, must=must)
        if is_taken and not self._has_capacity(request, pooled):
            self._leave_constraints(claim, request)
            is_taken = False
        if not is_taken:
            if has_counters:
                self._counters.give_back(device, pooled.pool)
            return False
        pick = Pick(request, pooled, has_counters, None)
        if is_shareable:
            pick.consumed = capacity.consumption(device, request.capacity)
            pick.was_shared = device_id in self._shared
            self._shared.add(device_id, _amounts(pick.consumed))
        else:
            self._picked_by.setdefault(device_id, set()).add(claim)
        self.picks[claim].append(pick)
        return True

    def _satisfies_constraints(
        self, claim: int, request: Request, pooled: PooledDevice, *, must: bool
    ) -> bool:
        base, sub = request.base_name, request.sub_name
        constraints = self._claims[claim].constraints
        for number, constraint in enumerate(constraints):
            if constraint.add(base, sub, pooled.device, pooled.id.driver):
                continue
            for earlier in reversed(constraints[:number]):
                earlier.remove(base, sub)
            if must:
                raise AllocationError(
                    f"claim {key_of(request.claim.metadata)}, request {request.name}: cannot add "
                    f"device {pooled.id} because a claim constraint would not be satisfied"
                )
            return False
        return True

    def _leave_constraints(self, claim: int, request: Request) -> None:
        for constraint in reversed(self._claims[claim].constraints):
            constraint.remove(request.base_name, request.sub_name)

    def _give_back(self, claim: int) -> None:
        """Undo the last pick of a claim."""
        pick = self.picks[claim].pop()
        device_id = pick.pooled.id
        if pick.consumed is not None:
            self._shared.remove(device_id, _amounts(pick.consumed))
            if pick.was_shared:
                # The earlier share still marks the device as picked, even if it consumes nothing.
                self._shared.mark(device_id)
        else:
            self._picked_by[device_id].discard(claim)
        self._leave_constraints(claim, pick.request)
        if pick.has_counters:
            self._counters.give_back(pick.pooled.device, pick.pooled.pool)


def _amounts(consumed: dict[str, Quantity]) -> dict[str, int]:
    return {name: amount.nanos for name, amount in consumed.items()}


def _run(step: Step) -> Outcome:
    """Run a step and its dependencies to completion."""
    stack = [step]
    sent: Outcome | None = None
    while True:
        try:
            needed = stack[-1].send(sent) if sent is not None else next(stack[-1])
        except StopIteration as done:
            stack.pop()
            sent = done.value
            assert sent is not None, "every step has an outcome"
            if not stack:
                return sent
        else:
            stack.append(needed)
            sent = None
