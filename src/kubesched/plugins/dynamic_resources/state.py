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
from kubesched.framework.status import Status
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


SpecialClaim = tuple[ResourceClaim, Mappings] | Status | None
"""A node's special claim, why it cannot have one, or None if it needs none."""


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
    signatures: SignatureColumn | None = None
    """Of the nodes, as Filter saw them."""
    special_claims: dict[tuple[str, ...], tuple[ResourceClaim, Mappings]] = field(
        default_factory=dict
    )
    """By resources covered: nodes with the same set share the claim's requests."""
    special_on: dict[str, SpecialClaim] = field(default_factory=dict)
    """By node; empty if the pod has no special claim."""
    solutions: dict[tuple[int, int], Solution] = field(default_factory=dict)
    """By signature of nodes and identity of their special claim."""
    allocations: dict[str, NodeAllocation] = field(default_factory=dict)
    """By node, as far as they were looked up."""
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
        """Filter's result for a node; None if nothing has to be allocated there.

        It is first asked for within the attempt.
        """
        known, column, allocator = self.allocations.get(node_name), self.signatures, self.allocator
        if known is not None or column is None or allocator is None:
            return known
        special = self.special_on.get(node_name)
        solution = self.solutions.get((column.of(node_name), id(special)))
        node = column.node(node_name)
        if solution is None or node is None:
            return None
        claim, mappings = special if isinstance(special, tuple) else (None, [])
        made = NodeAllocation(node, allocator, solution, claim, mappings)
        self.allocations[node_name] = made
        return made

    def unallocated(self) -> Iterator[ClaimInfo]:
        """The claims that the allocator has to serve."""
        return (info for info in self.claims if not info.is_allocated and info.shared is None)


NO_CLAIMS = DRAState()
"""Shared, immutable state of pods without claims."""
