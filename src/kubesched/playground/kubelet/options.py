"""How the fake kubelets behave."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.playground.kubelet.node_templates import DEFAULT_POOLS, NodePool
from kubesched.playground.kubelet.stages import Stage, default_stages

STOPPED = "kubelet.kubesched.io/stopped"
"""Annotation on a node: with the value "true" its kubelet plays dead."""
RUN_DURATION = "kubelet.kubesched.io/run-duration"
"""Annotation on a pod: how long it runs before it ends."""
EXIT_CODE = "kubelet.kubesched.io/exit-code"
"""Annotation on a pod: what it ends with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """Settings of all fake kubelets together."""

    nodes: int = 0
    """How many nodes to register. Nodes others create are played as well."""

    pools: tuple[NodePool, ...] = DEFAULT_POOLS
    """What the nodes look like."""

    stages: tuple[Stage, ...] = field(default_factory=default_stages)
    """The life of a pod."""

    heartbeat_s: float = 10.0
    """How often a node renews its Lease, as a real kubelet does, while there are few nodes."""

    max_heartbeats_per_s: float = 100.0
    """Limit for all nodes together: 5,000 nodes renew every 50 seconds, and promise accordingly."""

    admission: bool = True
    """Whether pods that do not fit their node are refused."""

    node_selector: str = ""
    """Which nodes are played, as a label selector; all by default."""

    def heartbeat_interval_s(self, node_count: int) -> float:
        return max(self.heartbeat_s, node_count / self.max_heartbeats_per_s)
