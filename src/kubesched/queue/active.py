"""activeQ: pods ready to be tried, ordered by the QueueSort plugin of the first profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from kubesched.framework.interfaces import QueueSortPlugin
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.metrics import SchedulerMetrics
from kubesched.queue.heap import KeyedHeap, RankedByLess

ACTIVE: Final = "active"


class QueueSort(Protocol):
    """What the queue needs of a QueueSort plugin."""

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo, /) -> bool: ...


def rank_by(queue_sort: QueueSort) -> Callable[[QueuedPodInfo], Any]:
    """The plugin's order as a heap key.

    A plugin that overrides `sort_key` is ordered by that, which saves a Python call per comparison; any other by
    its `less`.
    """
    sort_key: Callable[[QueuedPodInfo], Any] | None = getattr(queue_sort, "sort_key", None)
    if (
        sort_key is not None
        and getattr(type(queue_sort), "sort_key", None) is not QueueSortPlugin.sort_key
    ):
        return sort_key
    less = queue_sort.less
    return lambda info: RankedByLess(less, info)


class ActiveQueue(KeyedHeap[QueuedPodInfo]):
    """The heap behind activeQ, and the count of what enters it."""

    __slots__ = ("_incoming",)

    def __init__(self, rank: Callable[[QueuedPodInfo], Any], metrics: SchedulerMetrics) -> None:
        super().__init__(rank)
        self._incoming = metrics.queue_incoming_pods_total

    def add(self, info: QueuedPodInfo, event_label: str, turn: int | None = None) -> None:
        self.put(info.pod_info.key, info, turn)
        self._incoming.labels(ACTIVE, event_label).inc()

    def replace(self, info: QueuedPodInfo) -> None:
        """Replace a pod's entry with a newer version."""
        self.put_newer(info.pod_info.key, info)
