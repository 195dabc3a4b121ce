"""activeQ: pods ready to be tried, ordered by the QueueSort plugin of the first profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.metrics import SchedulerMetrics
from kubesched.queue.heap import KeyedHeap, RankedByLess

ACTIVE: Final = "active"


class QueueSort(Protocol):
    """What the queue needs of a QueueSort plugin."""

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo, /) -> bool: ...


def rank_by(queue_sort: QueueSort) -> Callable[[QueuedPodInfo], Any]:
    """The plugin's order as a heap key.

    A plugin with a `sort_key` of its own is ordered by that, which saves a Python call per comparison,
    unless it derives from one that has it and brings another `less`.
    """
    for cls in type(queue_sort).__mro__:
        if "sort_key" in vars(cls):
            sort_key: Callable[[QueuedPodInfo], Any] = vars(cls)["sort_key"].__get__(queue_sort)
            return sort_key
        if "less" in vars(cls):
            break
    less = queue_sort.less
    return lambda info: RankedByLess(less, info)


class ActiveQueue:
    """The heap behind activeQ, and the count of what enters it."""

    __slots__ = ("_heap", "_incoming")

    def __init__(self, rank: Callable[[QueuedPodInfo], Any], metrics: SchedulerMetrics) -> None:
        self._heap: KeyedHeap[QueuedPodInfo] = KeyedHeap(rank)
        self._incoming = metrics.queue_incoming_pods_total

    def add(self, info: QueuedPodInfo, event_label: str, turn: int | None = None) -> None:
        self._heap.add(info.pod_info.key, info, turn)
        self._incoming.labels(ACTIVE, event_label).inc()

    def replace(self, info: QueuedPodInfo) -> None:
        """Replace a pod's entry with a newer version."""
        self._heap.replace(info.pod_info.key, info)

    def pop(self) -> QueuedPodInfo | None:
        return self._heap.pop()

    def remove(self, key: str) -> QueuedPodInfo | None:
        return self._heap.remove(key)

    def get(self, key: str) -> QueuedPodInfo | None:
        return self._heap.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._heap

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(self._heap)

    def by_arrival(self) -> list[QueuedPodInfo]:
        return self._heap.by_arrival()

    def in_order(self) -> list[QueuedPodInfo]:
        return self._heap.in_order()

    def check_invariants(self) -> None:
        self._heap.check_invariants()
