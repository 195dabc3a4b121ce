"""Allocator: for one scheduling attempt, which devices a node would give to the pod's claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.api.core_v1 import Node
from kubesched.api.resource_v1 import AllocationResult, DeviceSelector, ResourceClaim
from kubesched.plugins.dynamic_resources.structured import capacity
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.counters import AvailableCounters
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError, InvalidPools
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import (
    PooledDevice,
    Slices,
    gather_pools,
    node_matches,
)
from kubesched.plugins.dynamic_resources.structured.requests import (
    Checker,
    ClaimRequests,
    ClassLookup,
    Request,
    key_of,
)
from kubesched.plugins.dynamic_resources.structured.results import allocation_result
from kubesched.plugins.dynamic_resources.structured.search import Search
from kubesched.plugins.dynamic_resources.structured.selectors import (
    DeviceContent,
    DeviceSelectors,
    SelectorFailure,
)


class Allocator:
    """Sees the slices and the allocated state as they were when it was made."""

    def __init__(
        self,
        features: Features,
        allocated: AllocatedState,
        classes: ClassLookup,
        slices: Slices,
        selectors: DeviceSelectors,
        new_share_id: Callable[[], str],
    ) -> None:
        self._features = features
        self._allocated = allocated
        self._classes = classes
        self._slices = slices
        self._selectors = selectors
        self._new_share_id = new_share_id
        self._counters = AvailableCounters(allocated)

    def allocate(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        is_late: Callable[[], bool] = lambda: False,
    ) -> list[AllocationResult] | None:
        """One result per claim; None if the node does not have the devices.

        Raises:
            AllocationError: a claim, class or slice cannot be handled, or the time is up.
            InvalidPools: there is no solution, and some pool is invalid.
        """
        pools = gather_pools(self._slices, node, self._features)
        matching = _Matching(self._selectors, node, self._features)

        def is_eligible(request: Request, pooled: PooledDevice) -> bool:
            if not matching.is_selectable(request, pooled):
                return False
            return not self._features.consumable_capacity or capacity.fits(
                pooled.device, request.capacity, self._allocated.capacity.of(pooled.id), None
            )

        checker = Checker(self._features, self._classes, pools, is_eligible)
        checked = [checker.check(claim) for claim in claims]
        search = Search(
            checked,
            [pooled for pool in pools if pool.is_usable for pooled in pool.devices],
            self._allocated,
            self._counters,
            self._features,
            matching.is_selectable,
            is_late,
        )
        if not search.run():
            if any(pool.invalid_reason for pool in pools):
                raise InvalidPools
            return None
        return [
            allocation_result(
                each.claim,
                _chosen(each, index, search),
                search.picks[index],
                node.metadata.name,
                self._features,
                self._new_share_id,
            )
            for index, each in enumerate(checked)
        ]


def _chosen(claim: ClaimRequests, index: int, search: Search) -> list[Request]:
    return [
        alternatives[search.chosen.get((index, number), 0)]
        for number, alternatives in enumerate(claim.requests)
    ]


class _Matching:
    """Which devices a request selects on one node; asked once for each pair."""

    def __init__(self, selectors: DeviceSelectors, node: Node, features: Features) -> None:
        self._selectors = selectors
        self._node = node
        self._features = features
        self._known: dict[tuple[Request, PooledDevice], bool] = {}

    def is_selectable(self, request: Request, pooled: PooledDevice) -> bool:
        """Raises AllocationError."""
        key = (request, pooled)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._decide(request, pooled)
        return known

    def _decide(self, request: Request, pooled: PooledDevice) -> bool:
        device = pooled.device
        if not self._features.binding_conditions and device.binding_conditions:
            return False
        content = DeviceContent(pooled.id.driver, device)
        device_class = request.device_class
        subject = f"class {device_class.metadata.name}"
        if not self._all_match(device_class.spec.selectors or (), content, subject):
            return False
        if not self._all_match(request.selectors, content, f"claim {key_of(request.claim)}"):
            return False
        if pooled.slice.spec.per_device_node_selection:
            return node_matches(
                self._node, device.node_name, device.all_nodes, device.node_selector
            )
        return True

    def _all_match(
        self, selectors: Sequence[DeviceSelector], content: DeviceContent, subject: str
    ) -> bool:
        for index, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel is not None else ""
            try:
                if not self._selectors.matches(expression, content):
                    return False
            except SelectorFailure as failure:
                raise AllocationError(f"{subject}: selector #{index}: {failure}") from failure
        return True
