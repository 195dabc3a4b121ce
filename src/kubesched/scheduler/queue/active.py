"""activeQ: pods ready for an attempt, ordered by the QueueSort plugin of the first profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.heap import KeyedHeap, RankedByLess
from kubesched.scheduler.queue.incoming import Incoming

ACTIVE: Final = "active"


class QueueSort(Protocol):
    """The part of a QueueSort plugin that the queue uses."""

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo, /) -> bool: ...


def rank_by(queue_sort: QueueSort) -> Callable[[QueuedPodInfo], Any]:
    """The plugin's order as a heap key.

    Uses the plugin's `sort_key` if it has one, which saves a Python call per comparison, unless a
    subclass overrides `less` without it.
    """
    for cls in type(queue_sort).__mro__:
        if "sort_key" in vars(cls):
            sort_key: Callable[[QueuedPodInfo], Any] = vars(cls)["sort_key"].__get__(queue_sort)
            return sort_key
        if "less" in vars(cls):
            break
    less = queue_sort.less
    return lambda info: RankedByLess(less, info)


class ActiveQueue(KeyedHeap[QueuedPodInfo]):
    """The heap of activeQ, with a count of incoming pods."""

    __slots__ = ("_incoming",)

    def __init__(self, rank: Callable[[QueuedPodInfo], Any], incoming: Incoming) -> None:
        super().__init__(rank)
        self._incoming = incoming

    def add(
        self, info: QueuedPodInfo, event_label: str, turn: int | None = None, decided: str = ""
    ) -> None:
        self.put(info.pod_info.key, info, turn)
        self._incoming.count(ACTIVE, event_label, decided)
        self._incoming.list_size(ACTIVE)

    def replace(self, info: QueuedPodInfo) -> None:
        """Replace a pod's entry with a newer version."""
        self.put_newer(info.pod_info.key, info)
