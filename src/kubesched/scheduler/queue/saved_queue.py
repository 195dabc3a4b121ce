"""The scheduling queue in a checkpoint of a recording: all entries with history, in order."""

from __future__ import annotations

from collections.abc import Iterable, Set
from operator import attrgetter
from typing import Any

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


class SavedGroup(msgspec.Struct):
    """A `QueuedGroup`: namespace, name and sort of its root, its history, and its members."""

    place: str
    root: tuple[str, str, bool]
    members: list[SavedPod]
    gate: str
    """The key of the member that is gated."""
    priority: int
    timestamp: float
    initial_attempt_timestamp: float | None
    attempts: int
    unschedulable_count: int
    consecutive_errors_count: int
    backoff_expiration: float | None
    was_flushed_from_unschedulable: bool
    flush_timestamp: float | None

    @classmethod
    def of(cls, place: str, group: Any) -> SavedGroup:  # noqa: ANN401  # imported with groups only
        gate = "" if group.gate is None else group.gate.pod_info.key
        history = (getattr(group, name) for name in cls.__struct_fields__[4:])
        return cls(place, group.root, list(map(SavedPod.of, group)), gate, *history)

    def history(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__[4:]}


class SavedQueue(msgspec.Struct):
    """All queued pods. Order matters for equal ranks in the heaps, and for the whole pool."""

    scheduling_cycle: int
    active: list[SavedPod]
    backoff: list[SavedPod]
    unschedulable: list[SavedPod]
    groups: list[SavedGroup] = []
    incomplete: list[SavedPod] = []
    """Members whose group, or a group above it, is missing."""

    @classmethod
    def of(
        cls,
        scheduling_cycle: int,
        active: Iterable[QueuedPodInfo],
        backoff: Iterable[QueuedPodInfo],
        unschedulable: Iterable[QueuedPodInfo],
    ) -> SavedQueue:
        saved = [list(map(SavedPod.of, queue)) for queue in (active, backoff, unschedulable)]
        return cls(scheduling_cycle, saved[0], saved[1], saved[2])
