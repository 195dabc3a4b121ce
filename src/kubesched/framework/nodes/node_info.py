"""NodeInfo: one node as an object, for plugins that evaluate node by node and for diagnostics.

A read-only copy of a live or what-if row, valid until the table changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubesched.api.core_v1 import Node
from kubesched.api.host_ports import HostPort
from kubesched.framework.nodes.pods import PodInfo


class Resource(msgspec.Struct, frozen=True):
    """Amounts by resource: CPU in millicores, memory and storage in bytes."""

    milli_cpu: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    allowed_pods: int = 0
    scalars: dict[str, int] = msgspec.field(default_factory=dict)


class NodeInfo(msgspec.Struct, frozen=True):
    """A node, its pods, and their sums."""

    node: Node
    pods: Sequence[PodInfo]
    allocatable: Resource
    requested: Resource
    non_zero_requested: Resource
    used_ports: frozenset[HostPort]
    image_states: dict[str, tuple[int, int]]
    """Image name -> (size in bytes, number of nodes holding it)."""

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def pods_with_affinity(self) -> list[PodInfo]:
        return [
            p
            for p in self.pods
            if (a := p.pod.spec.affinity) and (a.pod_affinity or a.pod_anti_affinity)
        ]

    @property
    def pods_with_required_anti_affinity(self) -> list[PodInfo]:
        return [p for p in self.pods if p.affinity_terms.required_anti_affinity]

    @property
    def pvc_ref_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for pod in self.pods:
            for claim in pod.claims:
                counts[claim] = counts.get(claim, 0) + 1
        return counts
