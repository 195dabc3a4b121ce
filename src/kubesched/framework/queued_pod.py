"""QueuedPodInfo: a pod with its scheduling history."""

from __future__ import annotations

from collections.abc import Set

from kubesched.framework.events import ClusterEvent
from kubesched.snapshot.pods import PodInfo

_NO_PLUGINS: Set[str] = frozenset()


class QueuedPodInfo:
    """A pending pod: when it was queued, how often it was tried, and which plugins rejected it.

    The queue tracks which collection holds it (active, backoff, unschedulable, in flight).
    All times are seconds of the scheduler's clock.
    """

    __slots__ = (
        "attempts",
        "backoff_expiration",
        "consecutive_errors_count",
        "flush_timestamp",
        "gating_plugin",
        "gating_plugin_events",
        "initial_attempt_timestamp",
        "pending_plugins",
        "pod_info",
        "signature",
        "timestamp",
        "unschedulable_count",
        "unschedulable_plugins",
        "was_flushed_from_unschedulable",
    )

    def __init__(self, pod_info: PodInfo, timestamp: float) -> None:
        self.pod_info = pod_info
        self.timestamp = timestamp
        """When it (last) entered the queue; renewed only after a failed attempt."""
        self.initial_attempt_timestamp: float | None = None
        """When it first passed PreEnqueue into the active queue; time spent gated does not count."""
        self.attempts = 0
        self.unschedulable_count = 0
        self.consecutive_errors_count = 0
        self.backoff_expiration: float | None = None
        """Computed on first use, cleared after every failed attempt."""
        # Replaced, never changed in place: most pods are never rejected, and share the empty set.
        self.unschedulable_plugins: Set[str] = _NO_PLUGINS
        self.pending_plugins: Set[str] = _NO_PLUGINS
        self.gating_plugin = ""
        self.gating_plugin_events: tuple[ClusterEvent, ...] = ()
        self.was_flushed_from_unschedulable = False
        self.flush_timestamp: float | None = None
        self.signature: bytes | None = None

    @property
    def is_gated(self) -> bool:
        return self.gating_plugin != ""

    @property
    def rejector_plugins(self) -> Set[str]:
        return self.unschedulable_plugins | self.pending_plugins

    def __repr__(self) -> str:
        return f"<QueuedPodInfo {self.pod_info.key} attempts={self.attempts}>"
