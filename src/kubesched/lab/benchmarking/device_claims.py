"""Resource driver and claim controller of a workload, which scheduler_perf also simulates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from uuid import UUID

from msgspec import structs

from kubesched.api.core_v1 import Node
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import KubeschedError
from kubesched.config.features import DEFAULT_GATES
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.dynamic_resources.manager import DRAManager
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator


def allocated_claims(
    listers: MemoryListers, namespace: str, random: Random
) -> Iterator[ResourceClaim]:
    """Allocate the unallocated claims of a namespace, on nodes in random order.

    The caller stores each claim in `listers` before it requests the next.

    Raises:
        KubeschedError: no node has devices for a claim.
    """
    manager = DRAManager(listers, DEFAULT_GATES)
    nodes: Sequence[Node] = listers.of(Node).list()
    try:
        for claim in listers.of(ResourceClaim).list(namespace):
            if claim.status.allocation is None:
                yield _allocated(manager, claim, random.sample(nodes, len(nodes)), random)
    finally:
        manager.close()


def _allocated(
    manager: DRAManager, claim: ResourceClaim, nodes: Sequence[Node], random: Random
) -> ResourceClaim:
    allocator = Allocator(
        manager.features,
        manager.claims.allocated,
        manager.device_class,
        manager.pools,
        manager.selectors,
        lambda: str(UUID(int=random.getrandbits(128), version=4)),
    )
    for node in nodes:
        solution = allocator.solve(node, [claim])
        if solution is not None:
            (result,) = allocator.results(node, solution)
            # Like scheduler_perf: no timestamp.
            allocation = structs.replace(result, allocation_timestamp=None)
            status = structs.replace(claim.status, allocation=allocation)
            return structs.replace(claim, status=status)
    raise KubeschedError(f"no node has devices for claim {key_of(claim.metadata)}")
