"""The search: depth first over claims, requests and devices, until the first complete solution.

Devices of one request are picked in increasing position, so a request never takes a device twice;
every further request starts at the first device again. If a claim would get too many devices, the
search abandons the devices of its earlier exact requests at once, since other ones cannot help.

Upstream: the search does not count. For more devices than there are it tries every combination, and
may run out of time, which other nodes that fit do not make good. So does this one, to answer alike.

Each request is a generator that yields the steps it depends on, driven by `_run`: a pod with many
requests would exceed Python's recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum

from kubesched.api.names import key_of
from kubesched.api.resource_v1 import MAX_ALLOCATION_RESULTS
from kubesched.plugins.dynamic_resources.structured.allocated_state import (
    AllocatedState,
    ConsumedCapacity,
    consume,
    give_back,
)
from kubesched.plugins.dynamic_resources.structured.candidates import Candidate, Candidates
from kubesched.plugins.dynamic_resources.structured.counters import (
    AvailableCounters,
    ConsumedCounters,
)
from kubesched.plugins.dynamic_resources.structured.failures import (
    AllocationError,
    AllocationTimeout,
)
from kubesched.plugins.dynamic_resources.structured.pools import PooledDevice
from kubesched.plugins.dynamic_resources.structured.requests import ClaimRequests, Request


class Outcome(Enum):
    """How a step of the search ended."""

    FOUND = "found"
    NO = "no"
    TOO_MANY = "too many devices for the claim"


Step = Generator["Step", Outcome, Outcome]


class Search:
    """One node's search for devices for all claims together."""

    def __init__(
        self,
        claims: Sequence[ClaimRequests],
        devices: Sequence[PooledDevice],
        allocated: AllocatedState,
        counters: AvailableCounters,
        candidates: Candidates,
        is_late: Callable[[], bool],
    ) -> None:
        """`devices` are those of all usable pools, in order; `is_late` is called at every step."""
        self._claims = claims
        self._devices = devices
        self._exclusive = allocated.exclusive
        self._counters = ConsumedCounters(counters)
        self._candidates = candidates
        self._is_late = is_late
        self._picked_by: dict[PooledDevice, list[int]] = {}
        """Devices that are not shareable -> indices of the claims they were picked for."""
        self._shared: ConsumedCapacity = {}
        """Shareable capacity consumed by this attempt; an entry also marks a device as picked."""
        self.picks: list[list[Candidate]] = [[] for _ in claims]
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
            return (yield self._devices_for(claim, index, alternatives[0]))
        only_too_many = True
        for number, request in enumerate(alternatives):
            outcome = yield self._devices_for(claim, index, request)
            if outcome is Outcome.FOUND:
                self.chosen[claim, index] = number
                return outcome
            only_too_many = only_too_many and outcome is Outcome.TOO_MANY
        return Outcome.TOO_MANY if only_too_many else Outcome.NO

    def _devices_for(self, claim: int, index: int, request: Request) -> Step:
        """Pick the devices of a request, then those of the requests after it."""
        self._check_time()
        if request.wants_all and not request.all_devices:
            return Outcome.NO
        if request.count > 0 and len(self.picks[claim]) + request.count > MAX_ALLOCATION_RESULTS:
            return Outcome.TOO_MANY
        if request.wants_all:
            return (yield self._all_devices(claim, index, request))
        coming = self._coming(claim, request)
        candidates: list[Candidate] = []
        """Those that the search has come to; none of its own picks changes which they are."""
        taken: list[int] = []
        """Positions of the picked ones."""
        position = 0
        while True:
            if len(taken) >= request.count:
                outcome = yield self._request(claim, index + 1)
                if outcome is Outcome.FOUND:
                    return outcome
                if outcome is Outcome.TOO_MANY:
                    for _ in taken:
                        self._give_back(claim)
                    return outcome
            else:
                if position == len(candidates) and (found := next(coming, None)) is not None:
                    candidates.append(found)
                if position < len(candidates):
                    if self._take(claim, candidates[position], must=False):
                        taken.append(position)
                        self._check_time()
                    position += 1
                    continue
            if not taken:
                return Outcome.NO
            self._give_back(claim)
            position = taken.pop() + 1

    def _all_devices(self, claim: int, index: int, request: Request) -> Step:
        taken = 0
        outcome = Outcome.NO
        for pooled in request.all_devices:
            self._check_time()
            candidate = self._candidates.of(request, pooled)
            assert candidate is not None, "the devices were chosen from the candidates"
            if self._is_in_use(claim, candidate.request, pooled) or not self._take(
                claim, candidate, must=True
            ):
                break
            taken += 1
        else:
            outcome = yield self._request(claim, index + 1)
        if outcome is not Outcome.FOUND:
            for _ in range(taken):
                self._give_back(claim)
        return outcome

    def _check_time(self) -> None:
        if self._is_late():
            raise AllocationTimeout("timed out trying to allocate devices")

    # -- one device --------------------------------------------------------------------------------

    def _coming(self, claim: int, request: Request) -> Iterator[Candidate]:
        """The candidates of a request in order, evaluated as the search comes to them."""
        for pooled in self._devices:
            if self._is_in_use(claim, request, pooled):
                continue
            candidate = self._candidates.of(request, pooled)
            if candidate is not None and candidate.has_room(self._shared.get(pooled.id)):
                yield candidate

    def _is_in_use(self, claim: int, request: Request, pooled: PooledDevice) -> bool:
        picked_by = self._picked_by.get(pooled)
        if request.has_admin_access:
            return bool(picked_by) and claim in picked_by  # type: ignore[operator]  # not None
        return bool(picked_by) or pooled.id in self._exclusive

    def _take(self, claim: int, candidate: Candidate, *, must: bool) -> bool:
        """Pick a device if counters, taints and constraints allow it, and with `must` its room.

        Raises AllocationError.
        """
        pooled, request = candidate.pooled, candidate.request
        if candidate.is_refused:
            return False
        is_shareable = candidate.consumed is not None
        was_shared = is_shareable and pooled.id in self._shared
        # A further share of a device in use consumes no more counters.
        has_charged = bool(pooled.charges) and not (was_shared or candidate.is_charged_already)
        if has_charged and not self._counters.take(pooled):
            return False
        is_taken = not request.constraints or self._join_constraints(request, pooled, must=must)
        if is_taken and must and not candidate.has_room(self._shared.get(pooled.id)):
            self._leave_constraints(request)
            is_taken = False
        if not is_taken:
            if has_charged:
                self._counters.give_back(pooled)
            return False
        if is_shareable:
            consume(self._shared, pooled.id, candidate.amounts)
        else:
            self._picked_by.setdefault(pooled, []).append(claim)
        candidate.has_charged = has_charged
        candidate.was_shared = was_shared
        self.picks[claim].append(candidate)
        return True

    def _give_back(self, claim: int) -> None:
        """Undo the last pick of a claim."""
        candidate = self.picks[claim].pop()
        pooled, request = candidate.pooled, candidate.request
        if candidate.consumed is None:
            self._picked_by[pooled].pop()
        else:
            give_back(self._shared, pooled.id, candidate.amounts)
            if candidate.was_shared:
                # The earlier share still marks the device as picked, even if it consumes nothing.
                self._shared.setdefault(pooled.id, {})
        if request.constraints:
            self._leave_constraints(request)
        if candidate.has_charged:
            self._counters.give_back(pooled)

    @staticmethod
    def _join_constraints(request: Request, pooled: PooledDevice, *, must: bool) -> bool:
        name = request.base_name
        for number, constraint in enumerate(request.constraints):
            if constraint.add(name, pooled):
                continue
            for earlier in reversed(request.constraints[:number]):
                earlier.remove(name)
            if must:
                raise AllocationError(
                    f"claim {key_of(request.claim.metadata)}, request {request.name}: cannot add "
                    f"device {pooled.id} because a claim constraint would not be satisfied"
                )
            return False
        return True

    @staticmethod
    def _leave_constraints(request: Request) -> None:
        for constraint in reversed(request.constraints):
            constraint.remove(request.base_name)


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
