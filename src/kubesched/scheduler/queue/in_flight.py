"""In-flight pods, and the events since each of them was popped.

While a pod is being tried it is in no queue, so an event that would have woken it cannot reach it.
These events are recorded here; if the attempt fails they decide whether the pod may be retried at
once.

One list serves all pods: `_events` in order of arrival, and for each pod the number of events that
had arrived when it was popped. Events before the oldest of these positions are dropped.

A pod may wait on Permit for minutes while thousands of events arrive, each with references to two
objects. Beyond a limit the older half is dropped; pods that would have needed it are retried as if
it had contained a helpful event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kubesched.base.metrics import SchedulerMetrics
from kubesched.scheduler.queue.hints import ResolvedEvent

POD_POPPED: Final = "PodPopped"
MAX_EVENTS: Final = 100_000
"""More than 15 minutes of events (the longest wait on Permit) at 100 per second."""


class RecordedEvent(NamedTuple):
    """An event and its objects."""

    event: ResolvedEvent
    old: Any
    new: Any


class InFlight:
    """The pods being tried, by UID, and the events since each was popped."""

    __slots__ = (
        "_counts",
        "_dropped",
        "_events",
        "_gauge",
        "_given_up",
        "_max_events",
        "_positions",
    )

    def __init__(
        self,
        metrics: SchedulerMetrics,
        *,
        given_up: ResolvedEvent,
        max_events: int = MAX_EVENTS,
    ) -> None:
        """`given_up` stands for dropped events: a wildcard, which may help any pod."""
        # Insertion order is pop order, so positions never decrease along this dictionary.
        self._positions: dict[str, int] = {}
        self._events: list[RecordedEvent] = []
        self._dropped = 0
        """Number of events dropped from the front, which is the position of `_events[0]`."""
        self._counts: dict[str, int] = {}
        """Recorded events by label, which `inflight_events` reads."""
        self._gauge = metrics.inflight_events
        self._given_up = RecordedEvent(given_up, None, None)
        self._max_events = max_events

    def add(self, uid: str) -> bool:
        """Start tracking a pod; False if it is tracked already."""
        if uid in self._positions:
            return False
        self._positions[uid] = self._dropped + len(self._events)
        self._count(POD_POPPED, 1)
        return True

    def done(self, uid: str) -> None:
        """Stop tracking a pod, and drop events that no pod in flight needs."""
        if self._positions.pop(uid, None) is None:
            return
        self._count(POD_POPPED, -1)
        oldest = next(iter(self._positions.values()), self._dropped + len(self._events))
        if oldest > self._dropped:
            self._drop(oldest - self._dropped)

    def done_all(self) -> None:
        for uid in list(self._positions):
            self.done(uid)

    def record(self, event: ResolvedEvent, old: object, new: object) -> None:
        """Record an event for the pods in flight; no-op if there are none."""
        if self._positions:
            if len(self._events) >= self._max_events:
                self._drop(self._max_events // 2)
            self._events.append(RecordedEvent(event, old, new))
            self._count(event.label, 1)

    def events_since_pop(self, uid: str) -> Sequence[RecordedEvent] | None:
        """Events since that pod was popped, oldest first; None if it is not tracked."""
        position = self._positions.get(uid)
        if position is None:
            return None
        if position < self._dropped:
            return [self._given_up, *self._events]
        return self._events[position - self._dropped :]

    def __contains__(self, uid: str) -> bool:
        return uid in self._positions

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[str]:
        """UIDs, longest in flight first."""
        return iter(self._positions)

    @property
    def event_count(self) -> int:
        return len(self._events)

    def check_invariants(self) -> None:
        positions = list(self._positions.values())
        end = self._dropped + len(self._events)
        assert positions == sorted(positions), "pods in flight are out of order"
        assert all(position <= end for position in positions), "a pod points beyond the list"
        assert not self._events or positions, "events are kept although no pod is in flight"
        assert not positions or positions[0] <= self._dropped, (
            "events older than every pod are kept"
        )
        assert len(self._events) <= self._max_events, "the list grew beyond its limit"

    def _count(self, label: str, delta: int) -> None:
        counts = self._counts
        if label not in counts:
            counts[label] = 0
            self._gauge.labels(label).read_from(lambda: counts[label])
        counts[label] += delta

    def _drop(self, count: int) -> None:
        """Drop the oldest events; none if the oldest pod has already lost some."""
        if count > 0:
            for recorded in self._events[:count]:
                self._count(recorded.event.label, -1)
            del self._events[:count]
            self._dropped += count
