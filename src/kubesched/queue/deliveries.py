"""Deliveries: an event beside thousands of waiting pods is evaluated in slices, so that no turn of the loop takes long.

    event ──► delivery: every class and pod that it concerns ──► in one slice at once, in several one per turn of the loop
                          │
                          └─ while a delivery is under way no pod is popped: for attempts the event is one moment

Pods that have waited for too long are flushed in the same way: that is an event for the overdue among them.

Events wait for each other in their order, and between two deliveries pods may be popped. A pod that comes to wait after the
event was tried in a state that includes it, or evaluated it when its attempt ended; so it is left out (`mark`). A pod that is
about to change gets the events that wait for it first (`catch_up`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.queue.hints import HintEvaluator, ResolvedEvent, Strategy
from kubesched.queue.rejection import PreCheck
from kubesched.queue.unschedulable import UnschedulablePods
from kubesched.queue.waiting_classes import Stamps, WaitingClass

SLICE: Final = 256
"""Classes and pods evaluated at a time: each takes 10 to 30 µs if it moves."""
MAX_DELIVERIES: Final = 64
"""Events that wait for each other at most: beyond, the oldest is delivered in one go."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Delivery:
    """One event, and what it has still to be evaluated for."""

    event: ResolvedEvent
    old: object
    new: object
    pre_check: PreCheck | None
    stamps: Stamps
    """The time of the event, and the time stamps that woken classes get."""
    mark: int
    """The last pod that had come to wait before the event."""
    listed: Sequence[WaitingClass]
    """The classes that wait for plugins which the event concerns."""
    classes: deque[WaitingClass]
    """Those that are left."""
    pods: deque[str]
    """Keys of pods that are evaluated one by one."""
    max_stay_s: float | None = None
    """For a flush: it brings back what has waited for longer, whatever hints would say."""
    is_helpful: bool = False
    """Whether a flush has brought back a pod that can be popped."""
    is_recorded: bool = False
    """Whether a flush has brought back anything, and pods in flight know."""
    is_started: bool = False
    done: set[str] = field(default_factory=set)
    """Pods that it was evaluated for out of turn: they may be others by now."""

    @property
    def is_done(self) -> bool:
        return not self.classes and not self.pods

    def take(self, limit: int) -> tuple[Sequence[WaitingClass], Sequence[str]]:
        """The next classes, and after the last of them the next pods."""
        self.is_started = True
        if self.classes:
            return _taken(self.classes, limit), ()
        return (), _taken(self.pods, limit)


def _taken(items: deque[T], limit: int) -> list[T]:
    return [items.popleft() for _ in range(min(limit, len(items)))]


class BringBack(Protocol):
    """Moves pods out of the pool and wakes classes; returns whether any pod can be popped."""

    def __call__(
        self,
        pods: Iterable[tuple[QueuedPodInfo, Strategy]],
        classes: Sequence[tuple[WaitingClass, Strategy]],
        label: str,
        stamps: Stamps,
        *,
        is_flush: bool = False,
    ) -> bool: ...


class Deliveries:
    """The events that are evaluated in slices."""

    def __init__(
        self,
        pool: UnschedulablePods,
        evaluator: HintEvaluator,
        bring_back: BringBack,
        record: Callable[[ResolvedEvent, object, object, float], None],
    ) -> None:
        """`record` remembers an event for the pods in flight."""
        self._record = record
        self._pool = pool
        self._evaluator = evaluator
        self._bring_back = bring_back
        self._waiting: deque[Delivery] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_under_way(self) -> bool:
        return bool(self._waiting) and self._waiting[0].is_started

    def add(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        now: float,
    ) -> None:
        """Evaluate an event, after those that wait already."""
        pool = self._pool
        classes, pods = pool.classes.concerned(event), pool.lone_keys(event)
        if not classes and not pods:
            return  # as most events: what is rejected for other reasons later is not meant
        stamps, mark = Stamps(now), pool.arrivals
        self._begin(
            Delivery(event, old, new, pre_check, stamps, mark, classes, deque(classes), deque(pods))
        )
        while len(self._waiting) > MAX_DELIVERIES:
            self.deliver_slice()

    @property
    def has_flush(self) -> bool:
        return any(delivery.max_stay_s is not None for delivery in self._waiting)

    def flush(
        self, event: ResolvedEvent, max_stay_s: float, now: float, *, in_slices: bool
    ) -> bool:
        """Bring back what has waited for longer than that, after the events that wait already.

        Returns whether any of it can be popped, or is not known to be yet.
        """
        pool = self._pool
        pool.begin_flush()
        classes, pods = pool.classes.classes(), deque(pool.keys())
        stamps, mark = Stamps(now), pool.arrivals
        delivery = Delivery(
            event, None, None, None, stamps, mark, classes, deque(classes), pods, max_stay_s
        )
        if in_slices:
            self._begin(delivery)
            return True
        self._waiting.append(delivery)
        while not delivery.is_done:
            self.deliver_slice()
        return delivery.is_helpful

    def _begin(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        if len(self._waiting) > 1:
            return
        if len(delivery.classes) + len(delivery.pods) <= SLICE:
            self.deliver_slice()
        else:
            delivery.is_started = True  # to list so many is enough for a turn

    def deliver_slice(self) -> bool:
        """Returns whether that was the last of an event."""
        delivery = self._waiting[0]
        classes, pods = delivery.take(SLICE)
        self._deliver(delivery, self._deliverable(delivery, classes), pods)
        if delivery.is_done:
            self._waiting.popleft()
            if delivery.max_stay_s is not None:
                self._pool.end_flush()
        return delivery.is_done

    def catch_up(self, key: str) -> None:
        """Evaluate for one pod, or its class, the events that have not reached it yet: it is about to change."""
        classes = self._pool.classes
        for delivery in self._waiting:
            waiting = classes.class_of(key)
            if waiting is not None and waiting.asleep_since <= delivery.mark:
                self._deliver(delivery, (waiting,), ())
                if waiting.rejection.asks_per_class(delivery.event):
                    continue
            self._deliver(delivery, (), (key,))
            delivery.done.add(key)

    def _deliverable(
        self, delivery: Delivery, classes: Iterable[WaitingClass]
    ) -> list[WaitingClass]:
        """The classes that have waited since before the event."""
        deliverable: list[WaitingClass] = []
        for listed in classes:
            waiting = self._pool.classes.current(listed)
            if waiting is None or waiting.asleep_since > delivery.mark:
                continue
            # If it was merged into another class since, the event is meant for the pods that it brought along.
            if waiting is listed or waiting not in delivery.listed:
                deliverable.append(waiting)
        return deliverable

    def _deliver(
        self, delivery: Delivery, classes: Sequence[WaitingClass], pods: Iterable[str]
    ) -> None:
        pool, event = self._pool, delivery.event
        if delivery.max_stay_s is not None:
            now, max_stay_s = delivery.stamps.now, delivery.max_stay_s
            keys = [key for key in pods if key not in delivery.done]
            overdue = pool.flushed(keys, classes, now, max_stay_s, delivery.mark)
            delivery.is_helpful |= self._bring_back(
                *overdue, event.label, delivery.stamps, is_flush=True
            )
            if any(overdue) and not delivery.is_recorded:
                delivery.is_recorded = True
                self._record(event, None, None, now)
            return
        asked = (event, delivery.old, delivery.new, delivery.pre_check, self._evaluator)
        woken = pool.classes.worth_waking(*asked, classes)
        delivery.pods.extend(pool.classes.asked_one_by_one(event, classes))
        evaluated = [
            pool.evaluate(key, *asked, delivery.mark) for key in pods if key not in delivery.done
        ]
        moved = [entry for entry in evaluated if entry is not None]
        self._bring_back(moved, woken, event.label, delivery.stamps)
