"""Options of the fake kubelets."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.playground.kubelet.node_templates import DEFAULT_POOLS, NodePool
from kubesched.playground.kubelet.stages import Stage, default_stages

STOPPED = "kubelet.kubesched.io/stopped"
"""Node annotation: if "true", its kubelet stops responding."""
RUN_DURATION = "kubelet.kubesched.io/run-duration"
"""Pod annotation: how long the pod runs before it ends."""
EXIT_CODE = "kubelet.kubesched.io/exit-code"
"""Pod annotation: its exit code."""
IMAGE_PULL = "kubelet.kubesched.io/image-pull"
"""Pod annotation: if "fail", its images cannot be pulled."""
READY_AFTER = "kubelet.kubesched.io/ready-after"
"""Pod annotation: how long the pod runs before it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """Settings shared by all fake kubelets."""

    nodes: int = 0
    """How many nodes to register. Nodes created by other clients are simulated as well."""

    pools: tuple[NodePool, ...] = DEFAULT_POOLS
    """Shapes of the nodes."""

    stages: tuple[Stage, ...] = field(default_factory=default_stages)
    """Life cycle of a pod."""

    heartbeat_s: float = 10.0
    """Lease renewal interval in small clusters; the same as a real kubelet's."""

    max_heartbeats_per_s: float = 100.0
    """Limit over all nodes: 5,000 nodes renew every 50 seconds, with longer leases accordingly."""

    def heartbeat_interval_s(self, node_count: int) -> float:
        return max(self.heartbeat_s, node_count / self.max_heartbeats_per_s)
