"""Per-attempt state of the pod's claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubesched.api.core_v1 import Node
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.resource_v1 import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.plugins.dynamic_resources.extended_resources import IN_MEMORY_NAME, Mappings
from kubesched.plugins.dynamic_resources.signature_column import SignatureColumn
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator, Solution


@dataclass(slots=True)
class NodeAllocation:
    """Filter's result for one node, used by Reserve and PreBind if the node is chosen."""

    node: Node
    allocator: Allocator
    solution: Solution
    special_claim: ResourceClaim | None
    """The special claim with this node's requests."""
    mappings: Mappings
    _results: list[AllocationResult] | None = None

    @property
    def results(self) -> list[AllocationResult]:
        """One result for each unallocated claim, in order; computed on first use."""
        if self._results is None:
            self._results = self.allocator.results(self.node, self.solution)
        return self._results


@dataclass(slots=True)
class GroupedSolutions:
    """Filter's results for groups of equivalent nodes. Read within the attempt only."""

    allocator: Allocator
    nodes: NodeTable
    signatures: SignatureColumn
    by_signature: dict[int, Solution] = field(default_factory=dict)

    def on(self, node_name: str) -> NodeAllocation | None:
        row = self.nodes.row_of.get(node_name)
        node = None if row is None else self.nodes.nodes[row]
        solution = self.by_signature.get(self.signatures.of(node_name))
        if node is None or solution is None:
            return None
        return NodeAllocation(node, self.allocator, solution, None, [])


@dataclass(slots=True)
class ClaimInfo:
    """A claim of the pod."""

    claim: ResourceClaim
    """The version PreFilter saw; PreBind replaces it with the written one."""
    consumer: ResourceClaimConsumerReference
    """Who the claim is reserved for: the pod or its group."""
    is_special: bool = False
    available_on: ParsedNodeSelector | None = None
    """Nodes that can use the allocation; None if all can or there is no allocation yet."""
    shared: AllocationResult | None = None
    """Chosen for an earlier member of the pod's group, and not written yet."""
    allocation: AllocationResult | None = None
    """Chosen by Reserve, written by PreBind."""

    @property
    def is_allocated(self) -> bool:
        return self.claim.status.allocation is not None

    @property
    def is_in_memory(self) -> bool:
        """True for the special claim until PreBind has created it."""
        return self.is_special and self.claim.metadata.name == IN_MEMORY_NAME

    def is_elsewhere(self, allocation: AllocationResult) -> bool:
        """Is this allocation for nodes other than the one that Filter evaluated?"""
        selector = allocation.node_selector
        return selector is not None and ParsedNodeSelector(selector) != self.available_on


@dataclass(slots=True)
class DRAState:
    """The state of the attempt. What-if evaluation does not change it: clones share it."""

    claims: Sequence[ClaimInfo] = ()
    """The pod's claims in order; the special claim comes last."""
    special_uid: str = ""
    """The UID under which the special claim is in flight: a generated one until it is created."""
    extended_resources: dict[str, int] = field(default_factory=dict)
    """The pod's scalar requests, if a device class backs any of them."""
    allocator: Allocator | None = None
    """None if there is nothing to allocate."""
    allocations: dict[str, NodeAllocation] = field(default_factory=dict)
    """By node."""
    grouped: GroupedSolutions | None = None
    """Used instead of `allocations` if nodes were evaluated in groups."""
    unavailable: set[int] = field(default_factory=set)
    """Indices of allocated claims that some node could not use."""

    @property
    def special(self) -> ClaimInfo | None:
        return self.claims[-1] if self.claims and self.claims[-1].is_special else None

    @property
    def has_user_claims(self) -> bool:
        return len(self.claims) > (self.special is not None)

    @property
    def has_alternatives(self) -> bool:
        """Does any claim have a prioritized list?"""
        return any(
            request.first_available
            for info in self.claims
            for request in info.claim.spec.devices.requests or ()
        )

    def allocation_on(self, node_name: str) -> NodeAllocation | None:
        """Filter's result for a node; None if nothing has to be allocated there."""
        allocation = self.allocations.get(node_name)
        if allocation is None and self.grouped is not None:
            allocation = self.grouped.on(node_name)
            if allocation is not None:
                self.allocations[node_name] = allocation
        return allocation

    def unallocated(self) -> Iterator[ClaimInfo]:
        """The claims that the allocator has to serve."""
        return (info for info in self.claims if not info.is_allocated and info.shared is None)


NO_CLAIMS = DRAState()
"""Shared, immutable state of pods without claims."""
