"""QueuedPodInfo: a pod with its scheduling history."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from kubesched.framework.events import ClusterEvent
from kubesched.framework.nodes.pods import PodInfo


@dataclass(slots=True, eq=False, repr=False)
class QueuedPodInfo:
    """A pending pod: when it was queued, number of attempts, and the plugins that rejected it.

    The queue tracks which collection holds it (active, backoff, unschedulable, in flight).
    All times are seconds of the scheduler's clock.
    """

    pod_info: PodInfo
    timestamp: float
    """When it (last) entered the queue; renewed only after a failed attempt."""
    initial_attempt_timestamp: float | None = None
    """When it first passed PreEnqueue into the active queue; time spent gated does not count."""
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration: float | None = None
    """Computed on first use, cleared after every failed attempt."""
    # Replaced, never changed in place: most pods are never rejected and share the empty set.
    unschedulable_plugins: Set[str] = frozenset()
    pending_plugins: Set[str] = frozenset()
    gating_plugin: str = ""
    gating_plugin_events: tuple[ClusterEvent, ...] = ()
    was_flushed_from_unschedulable: bool = False
    flush_timestamp: float | None = None
    signature: bytes | None = None

    @property
    def priority(self) -> int:
        return self.pod_info.priority

    @property
    def is_gated(self) -> bool:
        return self.gating_plugin != ""

    @property
    def rejector_plugins(self) -> Set[str]:
        return self.unschedulable_plugins | self.pending_plugins

    def __repr__(self) -> str:
        return f"<QueuedPodInfo {self.pod_info.key} attempts={self.attempts}>"
