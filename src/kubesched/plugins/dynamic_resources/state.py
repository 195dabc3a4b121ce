"""What one scheduling attempt knows about the pod's claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubesched.api.core_v1 import Node
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.resource_v1 import AllocationResult, ResourceClaim
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.plugins.dynamic_resources.extended_resources import IN_MEMORY_NAME, Mappings
from kubesched.plugins.dynamic_resources.signature_column import SignatureColumn
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator, Solution


@dataclass(slots=True)
class NodeAllocation:
    """What Filter found for one node; Reserve and PreBind use it if the node is chosen."""

    node: Node
    allocator: Allocator
    solution: Solution
    special_claim: ResourceClaim | None
    """The special claim with the requests of this node."""
    mappings: Mappings
    _results: list[AllocationResult] | None = None

    @property
    def results(self) -> list[AllocationResult]:
        """One for each claim that had no allocation, in order; made when first asked for."""
        if self._results is None:
            self._results = self.allocator.results(self.node, self.solution)
        return self._results


@dataclass(slots=True)
class GroupedSolutions:
    """What Filter found for groups of nodes that are alike. Read within the attempt only."""

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
    """As it was in PreFilter; PreBind replaces it by what it wrote."""
    is_special: bool = False
    available_on: ParsedNodeSelector | None = None
    """Nodes that can use the allocation; None: all, or there is none yet."""
    allocation: AllocationResult | None = None
    """What Reserve decided on, for PreBind to write."""

    @property
    def is_allocated(self) -> bool:
        return self.claim.status.allocation is not None

    @property
    def is_in_memory(self) -> bool:
        """The special claim, before PreBind has created it."""
        return self.is_special and self.claim.metadata.name == IN_MEMORY_NAME

    def is_elsewhere(self, allocation: AllocationResult) -> bool:
        """Is this allocation for other nodes than the one that Filter judged?"""
        selector = allocation.node_selector
        return selector is not None and ParsedNodeSelector(selector) != self.available_on


@dataclass(slots=True)
class DRAState:
    """The state of the attempt. What-ifs about other pods do not change it: clones share it."""

    claims: Sequence[ClaimInfo] = ()
    """The pod's claims in order; the special claim comes last."""
    special_uid: str = ""
    """The generated UID under which the special claim is in flight."""
    extended_resources: dict[str, int] = field(default_factory=dict)
    """The pod's scalar requests, if device classes back any of them."""
    allocator: Allocator | None = None
    """Set if there is something to allocate."""
    allocations: dict[str, NodeAllocation] = field(default_factory=dict)
    """By node."""
    grouped: GroupedSolutions | None = None
    """Instead of `allocations`, if nodes were judged in groups."""
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
        """Does a claim have a prioritized list?"""
        return any(
            request.first_available
            for info in self.claims
            for request in info.claim.spec.devices.requests or ()
        )

    def allocation_on(self, node_name: str) -> NodeAllocation | None:
        """What Filter found for a node; None if it has nothing to allocate there."""
        allocation = self.allocations.get(node_name)
        if allocation is None and self.grouped is not None:
            allocation = self.grouped.on(node_name)
            if allocation is not None:
                self.allocations[node_name] = allocation
        return allocation

    def unallocated(self) -> Iterator[ClaimInfo]:
        return (info for info in self.claims if not info.is_allocated)


NO_CLAIMS = DRAState()
"""The state of pods without claims, shared by all of them and never changed."""
