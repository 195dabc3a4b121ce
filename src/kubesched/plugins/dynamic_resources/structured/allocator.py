"""Allocator: finds, for one scheduling attempt, a node's devices for the pod's claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.api.core_v1 import Node
from kubesched.api.resource_v1 import AllocationResult, ResourceClaim
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.candidates import Candidates
from kubesched.plugins.dynamic_resources.structured.counters import AvailableCounters
from kubesched.plugins.dynamic_resources.structured.failures import InvalidPools
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.node_pools import NodePools, PoolIndex
from kubesched.plugins.dynamic_resources.structured.pools import PooledDevice
from kubesched.plugins.dynamic_resources.structured.requests import (
    Checker,
    ClaimRequests,
    ClassLookup,
)
from kubesched.plugins.dynamic_resources.structured.results import (
    Pick,
    allocation_result,
    check_node_selectors,
)
from kubesched.plugins.dynamic_resources.structured.search import Search
from kubesched.plugins.dynamic_resources.structured.selectors import DeviceSelectors


class Solution:
    """Devices for all claims, by position: valid for every node with the same signature."""

    __slots__ = ("claims", "picks", "requests", "shape")

    def __init__(self, claims: Sequence[ClaimRequests], known: NodePools, search: Search) -> None:
        positions = {pooled: position for position, pooled in enumerate(known.devices)}
        self.shape = known.shape
        self.claims = [requested.claim for requested in claims]
        self.requests = [
            [
                alternatives[search.chosen.get((index, number), 0)]
                for number, alternatives in enumerate(requested.requests)
            ]
            for index, requested in enumerate(claims)
        ]
        self.picks = [
            [
                (positions[taken.pooled], Pick(taken.request, taken.pooled, taken.consumed))
                for taken in picks
            ]
            for picks in search.picks
        ]

    def on(self, devices: Sequence[PooledDevice]) -> list[list[Pick]]:
        """The picks by claim, given a node's devices."""
        return [
            [Pick(pick.request, devices[position], pick.consumed) for position, pick in picks]
            for picks in self.picks
        ]


class Allocator:
    """Serves one scheduling attempt, during which slices and allocated devices do not change."""

    def __init__(
        self,
        features: Features,
        allocated: AllocatedState,
        classes: ClassLookup,
        pools: PoolIndex,
        selectors: DeviceSelectors,
        new_share_id: Callable[[], str],
        counters: AvailableCounters | None = None,
    ) -> None:
        self._features = features
        self._allocated = allocated
        self._classes = classes
        self._pools = pools
        self._selectors = selectors
        self._new_share_id = new_share_id
        self._counters = counters or AvailableCounters(allocated)
        self._solutions: dict[tuple[int, ...], tuple[Sequence[ResourceClaim], _Outcome]] = {}
        """By node signature and claim identity; the claims are kept alive here."""

    def solve(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        is_late: Callable[[], bool] = lambda: False,
    ) -> Solution | None:
        """The node's devices for all claims; None if they do not suffice.

        Raises:
            AllocationError: a claim, class or slice cannot be handled, or the time is up.
            InvalidPools: there is no solution, and some pool is invalid.
        """
        known = self._pools.of(node)
        key = (known.signature, *map(id, claims))
        kept = self._solutions.get(key)
        if kept is None:
            kept = self._solutions[key] = claims, self._search(node, known, claims, is_late)
        outcome = kept[1]
        if isinstance(outcome, InvalidPools):
            raise outcome.with_traceback(None)
        return outcome

    def results(self, node: Node, solution: Solution) -> list[AllocationResult]:
        """The allocation results of a solution on a node, one per claim; none if slices changed."""
        known = self._pools.of(node)
        if known.shape != solution.shape:  # an extender was awaited; upstream has the devices kept
            return []
        return [
            allocation_result(
                claim, requests, picks, node.metadata.name, self._features, self._new_share_id
            )
            for claim, requests, picks in zip(
                solution.claims, solution.requests, solution.on(known.devices), strict=True
            )
        ]

    def _search(
        self,
        node: Node,
        known: NodePools,
        claims: Sequence[ResourceClaim],
        is_late: Callable[[], bool],
    ) -> _Outcome:
        candidates = Candidates(self._selectors, node, self._allocated, self._features)
        checker = Checker(self._features, self._classes, known.pools, candidates.for_all)
        checked = [checker.check(claim) for claim in claims]
        search = Search(
            checked, known.devices, self._allocated, self._counters, candidates, is_late
        )
        if search.run():
            solution = Solution(checked, known, search)
            for claim, picks in zip(solution.claims, solution.on(known.devices), strict=True):
                check_node_selectors(claim, picks)
            return solution
        return InvalidPools() if any(pool.invalid_reason for pool in known.pools) else None


_Outcome = Solution | InvalidPools | None
