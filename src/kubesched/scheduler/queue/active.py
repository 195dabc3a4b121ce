"""activeQ: pods ready for an attempt, ordered by the QueueSort plugin of the first profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubesched.framework.interfaces import QueueSortPlugin
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.heap import KeyedHeap, RankedByLess

ACTIVE: Final = "active"
ActiveQueue = KeyedHeap[QueuedPodInfo]


def rank_by(queue_sort: QueueSortPlugin) -> Callable[[QueuedPodInfo], Any]:
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
