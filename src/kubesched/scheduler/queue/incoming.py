"""Counts what enters the queues, and lists the sizes of those that something has entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubesched.base.metrics import SchedulerMetrics

POD: Final = "pod"
"""The type of all entities: pod groups are not queued as one."""


class Incoming:
    """`queue_incoming_pods_total`, `queue_incoming_entities_total` and `queued_entities`."""

    __slots__ = ("_entities", "_pods", "_sizes", "unlisted")

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._pods = metrics.queue_incoming_pods_total
        self._entities = metrics.queue_incoming_entities_total
        self._sizes = metrics.queued_entities
        self.unlisted: dict[str, Callable[[], float]] = {}
        """How to read the size of each queue that no pod has entered."""

    def count(self, queue: str, label: str, decided: str = "", number: int = 1) -> None:
        """Count pods that enter a queue.

        # Upstream: entities only count if an event or failure had `decided` on another queue, or on
        # none; so most of those that are put back do not.
        """
        self._pods.labels(queue, label).inc(number)
        if decided != queue:
            self._entities.labels(queue, label, POD).inc(number)

    def enter(self, queue: str, label: str, decided: str = "") -> None:
        """Count a pod that enters a queue, whose size is exported from now on."""
        self.count(queue, label, decided)
        self.list_size(queue)

    def list_size(self, queue: str) -> None:
        """Show the size of a queue from now on."""
        if self.unlisted and (read := self.unlisted.pop(queue, None)) is not None:
            self._sizes.labels(queue, POD).read_from(read)
