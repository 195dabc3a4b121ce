"""PrioritySort: higher priority first, then first come, first served.

Mirrors `queuesort/priority_sort.go`.
"""

from __future__ import annotations

from kubesched.framework.engine import InTreePlugin
from kubesched.framework.interfaces import QueueSortPlugin
from kubesched.framework.queued_pod import QueuedPodInfo


class PrioritySort(QueueSortPlugin, InTreePlugin):
    """Orders pending pods by `spec.priority` (default 0), then by the time they were queued."""

    name = "PrioritySort"

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        return self.sort_key(a) < self.sort_key(b)

    def sort_key(self, info: QueuedPodInfo) -> tuple[int, float]:
        return (-info.priority, info.timestamp)
