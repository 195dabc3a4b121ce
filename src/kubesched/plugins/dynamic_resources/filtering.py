"""Filter: can this node serve the pod's claims? One `NodeFilter` serves one attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.api.resources import node_allocatable
from kubesched.base.clock import Clock
from kubesched.framework.nodes.columns import Indices, Ints, Mask
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Status, error_status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.dynamic_resources.binding_conditions import (
    BindingFailed,
    is_ready,
    is_timed_out,
)
from kubesched.plugins.dynamic_resources.extended_resource_cache import ExtendedResourceCache
from kubesched.plugins.dynamic_resources.extended_resources import (
    may_be_backed,
    requests_and_mappings,
    with_requests,
)
from kubesched.plugins.dynamic_resources.signature_column import SignatureColumn
from kubesched.plugins.dynamic_resources.state import (
    ClaimInfo,
    DRAState,
    SpecialClaim,
)
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator, Solution
from kubesched.plugins.dynamic_resources.structured.failures import (
    AllocationError,
    AllocationTimeout,
    InvalidPools,
)
from kubesched.plugins.helper.node_selector_columns import admitted_by_terms

OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
"""A feature that nodes declare."""

CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
CANNOT_FIT_RESOURCE = unresolvable("cannot fit resource")
INVALID_POOLS = unresolvable(str(InvalidPools()))
STALE_SPECIAL_CLAIM = unresolvable("cannot schedule extended resource claim")
DEVICE_PLUGINS_SERVE: Final = "device plugins serve all of it"
UNAVAILABLE_CLAIM = unresolvable("resourceclaim not available on the node")


class NodeFilter:
    """Evaluates nodes and records in the attempt's state what Reserve and PostFilter need."""

    def __init__(
        self,
        state: DRAState,
        pod: Pod,
        classes: ExtendedResourceCache | None,
        clock: Clock,
        *,
        filter_timeout_s: float,
        binding_timeout_s: float | None,
        checks_node_operations: bool = True,
    ) -> None:
        """Without `classes` there is no special claim, without a timeout no binding condition."""
        self._state = state
        self._pod = pod
        self._classes = classes
        self._clock = clock
        self._filter_timeout_s = filter_timeout_s
        self._claims = [info.claim for info in state.unallocated()]
        self._restricted = [
            (index, info)
            for index, info in enumerate(state.claims)
            if info.available_on is not None
        ]
        self._never_available = [
            index
            for index, info in enumerate(state.claims)
            if info.is_allocated
            and binding_timeout_s is not None
            and not _may_still_bind(info.claim, binding_timeout_s, clock.now())
        ]
        self._without_node_operations = [
            index
            for index, info in enumerate(state.claims)
            if checks_node_operations and _skips_node_operations(info.claim)
        ]

    def filter(self, nodes: NodeColumns, column: SignatureColumn | None) -> Verdicts | None:
        """Evaluate one node of each group of equals; `column` is None without an allocator.

        Nodes are equal to the allocator if their signatures and special claims are.
        """
        state, indices = self._state, np.flatnonzero(nodes.candidates)
        specials, kinds = self._special_claims_of(nodes, indices)
        signatures = np.zeros(len(indices), dtype=np.int64)
        if column is not None:
            state.signatures = column
            signatures = column.sync()[nodes.row_indices()[indices]]
        equal = signatures * max(len(specials), 1) + kinds
        _, first, group_of = np.unique(equal, return_index=True, return_inverse=True)
        codes = np.zeros(len(first), dtype=np.int32)
        is_served = np.zeros(len(first), dtype=np.bool_)
        statuses: list[Status] = []
        failed = 0
        for group in np.argsort(first).tolist():
            at = first[group]
            special = specials[kinds[at]]
            answer = self._judge(nodes.node_at(int(indices[at])), special)
            if isinstance(answer, Solution):
                state.solutions[int(signatures[at]), id(special)] = answer
            elif isinstance(answer, Status):
                statuses.append(answer)
                codes[group] = len(statuses)
                if not answer.is_rejected:
                    failed = len(statuses)  # the first error ends the attempt
                    break
            is_served[group] = answer is DEVICE_PLUGINS_SERVE
        verdicts = np.zeros(len(nodes), dtype=np.int32)
        verdicts[indices] = codes[group_of]
        if not failed:
            among = np.zeros(len(nodes), dtype=np.bool_)
            among[indices] = ((codes == 0) & ~is_served)[group_of]
            unavailable = self._note_unavailable(nodes, among)
            if unavailable is not None:
                statuses.append(UNAVAILABLE_CLAIM)
                verdicts[unavailable] = len(statuses)
        if not statuses:
            return None
        return Verdicts.numbered(verdicts, statuses, verdicts == failed if failed else None)

    def _special_claims_of(
        self, nodes: NodeColumns, indices: Indices
    ) -> tuple[list[SpecialClaim], Ints]:
        """The different special claims of these nodes, and for each node which of them it has."""
        state, kinds = self._state, np.zeros(len(indices), dtype=np.int64)
        if state.special is None:
            return [None], kinds
        specials: dict[int, SpecialClaim] = {}
        numbers: dict[int, int] = {}
        for at, index in enumerate(indices.tolist()):
            special = self.special_claim_on(state.special, nodes.node_at(index))
            state.special_on[nodes.name_at(index)] = specials[id(special)] = special
            kinds[at] = numbers.setdefault(id(special), len(numbers))
        return list(specials.values()), kinds

    def _judge(self, node: Node, special: SpecialClaim) -> Solution | Status | str | None:
        """What the allocator finds for the node's claims; None if there is nothing to allocate."""
        state = self._state
        if isinstance(special, Status):
            return special
        if special is None and not state.has_user_claims:
            return DEVICE_PLUGINS_SERVE
        if state.allocator is None:
            return None
        claims = self._claims if special is None else [*self._claims[:-1], special[0]]
        return self._solve(state.allocator, node, claims)

    def _note_unavailable(self, nodes: NodeColumns, among: Mask) -> Mask | None:
        """Nodes where an allocated claim is unusable, or None."""
        unavailable: Mask | None = None
        for index, info in self._restricted:
            assert info.available_on is not None, "restricted claims have a selector"
            elsewhere = among & ~admitted_by_terms(nodes, info.available_on)
            if elsewhere.any():
                self._state.unavailable.add(index)
                unavailable = elsewhere if unavailable is None else unavailable | elsewhere
        if self._without_node_operations:
            elsewhere = among.copy()
            for at in np.flatnonzero(among).tolist():
                elsewhere[at] = not _can_skip_node_operations(nodes.node_at(at))
            if elsewhere.any():
                self._state.unavailable.update(self._without_node_operations)
                unavailable = elsewhere if unavailable is None else unavailable | elsewhere
        if self._never_available and among.any():
            self._state.unavailable.update(self._never_available)
            unavailable = among
        return unavailable

    def special_claim_on(self, info: ClaimInfo, node: Node) -> SpecialClaim:
        """The special claim for what device plugins do not serve here; None if they serve all."""
        if info.claim.spec.devices.requests is not None:
            return STALE_SPECIAL_CLAIM  # from an earlier attempt; PostFilter deletes it
        assert self._classes is not None, "a special claim comes from a class"
        offered = node_allocatable(node).scalars
        through_claim: dict[str, str] = {}
        for name, amount in self._state.extended_resources.items():
            if not amount or not may_be_backed(name):
                continue
            device_class = self._classes.by_resource.get(name)
            if device_class is not None and not offered.get(name, 0):
                through_claim[name] = device_class.metadata.name
            elif name not in offered:
                return CANNOT_FIT_RESOURCE
        if (not through_claim and not self._state.has_user_claims) or info.is_allocated:
            return None
        key = tuple(sorted(through_claim))
        made = self._state.special_claims.get(key)
        if made is None:
            requests, mappings = requests_and_mappings(self._pod, through_claim)
            made = with_requests(info.claim, requests), mappings
            self._state.special_claims[key] = made
        return made

    def _solve(
        self, allocator: Allocator, node: Node, claims: list[ResourceClaim]
    ) -> Solution | Status:
        try:
            solution = allocator.solve(node, claims, self._deadline())
        except AllocationTimeout:
            name = node.metadata.name
            return error_status(f"node {name}: timed out trying to allocate devices")
        except AllocationError as error:
            return error_status(error)
        except InvalidPools:
            return INVALID_POOLS
        return CANNOT_ALLOCATE if solution is None else solution

    def _deadline(self) -> Callable[[], bool]:
        if not self._filter_timeout_s:
            return _never
        now = self._clock.monotonic
        deadline = now() + self._filter_timeout_s
        return lambda: now() > deadline


def _never() -> bool:
    return False


def _skips_node_operations(claim: ResourceClaim) -> bool:
    """Does an allocated device need a node that can do without its driver?"""
    allocation = claim.status.allocation
    results = (None if allocation is None else allocation.devices.results) or ()
    return any(result.skip_node_operations for result in results)


def _can_skip_node_operations(node: Node) -> bool:
    return OPTIONAL_NODE_OPERATIONS in (node.status.declared_features or ())


def _may_still_bind(claim: ResourceClaim, timeout_s: float, now: float) -> bool:
    try:
        return is_ready(claim) or not is_timed_out(claim, timeout_s, now)
    except BindingFailed:
        return False
