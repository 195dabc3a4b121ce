"""In-flight pods, and what happened since each of them was taken off the queue.

While a pod is being tried it is in no queue, so an event that would have woken it finds nobody to wake. Those events
are remembered here; when the attempt fails they decide whether the pod may be tried again at once.

One list serves all pods: `_events` in order of arrival, and for each pod the number of events that had arrived when it
was taken. Events before the oldest of these positions concern nobody any more and are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kubesched.metrics import SchedulerMetrics
from kubesched.queue.hints import ResolvedEvent

POD_POPPED: Final = "PodPopped"
_GAUGE_PERIOD_S: Final = 1.0


class RecordedEvent(NamedTuple):
    """An event and the objects it came with."""

    event: ResolvedEvent
    old: Any
    new: Any


class InFlight:
    """Which pods are being tried, by UID, and the events since."""

    __slots__ = ("_dropped", "_events", "_gauge", "_positions")

    def __init__(self, metrics: SchedulerMetrics, now: float) -> None:
        # Insertion order is the order of popping, so positions never decrease along this dictionary.
        self._positions: dict[str, int] = {}
        self._events: list[RecordedEvent] = []
        self._dropped = 0
        """How many events have been dropped from the front; `_events[0]` has this position."""
        self._gauge = _EventsGauge(metrics, now)

    def add(self, uid: str, now: float) -> bool:
        """Start tracking a pod; False if it is tracked already."""
        if uid in self._positions:
            return False
        self._positions[uid] = self._dropped + len(self._events)
        self._gauge.count(POD_POPPED, 1, now)
        return True

    def done(self, uid: str, now: float) -> None:
        """Stop tracking a pod, and drop the events that nobody can ask for any more."""
        if self._positions.pop(uid, None) is None:
            return
        self._gauge.count(POD_POPPED, -1, now)
        oldest = next(iter(self._positions.values()), self._dropped + len(self._events))
        obsolete = oldest - self._dropped
        for recorded in self._events[:obsolete]:
            self._gauge.count(recorded.event.label, -1, now)
        del self._events[:obsolete]
        self._dropped = oldest
        if not self._positions:
            self._gauge.publish(now)

    def done_all(self, now: float) -> None:
        for uid in list(self._positions):
            self.done(uid, now)

    def record(self, event: ResolvedEvent, old: object, new: object, now: float) -> None:
        """Remember an event for the pods in flight; with none there is nobody to remember it for."""
        if self._positions:
            self._events.append(RecordedEvent(event, old, new))
            self._gauge.count(event.label, 1, now)

    def events_since_pop(self, uid: str) -> Sequence[RecordedEvent] | None:
        """What arrived since that pod was taken, oldest first; None if it is not tracked."""
        position = self._positions.get(uid)
        return None if position is None else self._events[position - self._dropped :]

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
        assert all(self._dropped <= position <= end for position in positions), (
            "a pod points outside the list"
        )
        assert not self._events or positions, "events are kept although no pod is in flight"
        assert not positions or positions[0] == self._dropped, (
            "events older than every pod are kept"
        )


class _EventsGauge:
    """`inflight_events`, moved at most once a second: the list changes far more often than anybody looks."""

    __slots__ = ("_deltas", "_family", "_published")

    def __init__(self, metrics: SchedulerMetrics, now: float) -> None:
        self._family = metrics.inflight_events
        self._deltas: dict[str, int] = {}
        self._published = now

    def count(self, label: str, delta: int, now: float) -> None:
        self._deltas[label] = self._deltas.get(label, 0) + delta
        if now - self._published > _GAUGE_PERIOD_S:
            self.publish(now)

    def publish(self, now: float) -> None:
        for label, delta in self._deltas.items():
            self._family.labels(label).inc(delta)
        self._deltas.clear()
        self._published = now
