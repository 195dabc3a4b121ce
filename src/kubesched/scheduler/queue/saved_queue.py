"""The scheduling queue in a checkpoint of a recording: all entries with history, in order."""

from __future__ import annotations

from collections.abc import Iterable, Set
from operator import attrgetter

import msgspec

from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo

_HISTORY = (
    "timestamp",
    "initial_attempt_timestamp",
    "attempts",
    "unschedulable_count",
    "consecutive_errors_count",
    "unschedulable_plugins",
    "pending_plugins",
    "gating_plugin",
    "was_flushed_from_unschedulable",
    "flush_timestamp",
)
_history = attrgetter(*_HISTORY)


class SavedPod(msgspec.Struct, array_like=True, gc=False):
    """A `QueuedPodInfo`: the pod's key, and the history fields."""

    key: str
    timestamp: float
    initial_attempt_timestamp: float | None
    attempts: int
    unschedulable_count: int
    consecutive_errors_count: int
    unschedulable_plugins: Set[str]
    pending_plugins: Set[str]
    gating_plugin: str
    was_flushed_from_unschedulable: bool
    flush_timestamp: float | None

    @classmethod
    def of(cls, info: QueuedPodInfo) -> SavedPod:
        return cls(info.pod_info.key, *_history(info))

    def entry(self, pod: PodInfo) -> QueuedPodInfo:
        """Rebuild the entry, including backoff; the queue adds the gating plugin's events."""
        return QueuedPodInfo(pod, **{name: getattr(self, name) for name in _HISTORY})


class SavedQueue(msgspec.Struct):
    """All queued pods. Order matters for equal ranks in the heaps, and for the whole pool."""

    scheduling_cycle: int
    active: list[SavedPod]
    backoff: list[SavedPod]
    unschedulable: list[SavedPod]

    @classmethod
    def of(cls, scheduling_cycle: int, *queues: Iterable[QueuedPodInfo]) -> SavedQueue:
        return cls(scheduling_cycle, *(list(map(SavedPod.of, queue)) for queue in queues))
