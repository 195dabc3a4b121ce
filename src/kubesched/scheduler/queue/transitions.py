"""Transitions: moves entries between the parts of the queue, running PreEnqueue plugins."""

from __future__ import annotations

from collections.abc import Collection

from kubesched.base.clock import Clock
from kubesched.base.logs import get_logger
from kubesched.framework.events import (
    BACKOFF_COMPLETE,
    SCHEDULE_ATTEMPT_FAILURE,
)
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.active import ACTIVE, ActiveQueue
from kubesched.scheduler.queue.announcements import Announcements, ClassFailure
from kubesched.scheduler.queue.backoff import BACKOFF, BackoffQueue
from kubesched.scheduler.queue.hints import Strategy
from kubesched.scheduler.queue.incoming import Incoming
from kubesched.scheduler.queue.log_lines import MOVED, log_move
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.queue.pre_enqueue import PreEnqueueRunner
from kubesched.scheduler.queue.unschedulable import UNSCHEDULABLE, Judged, UnschedulablePods
from kubesched.scheduler.queue.waiting_classes import Member, Stamps, WaitingClass

log = get_logger("kubesched.scheduler.queue.scheduling_queue")


class Transitions:
    """Moves entries between activeQ, backoffQ and unschedulablePods."""

    def __init__(
        self,
        active: ActiveQueue,
        backoff: BackoffQueue,
        pool: UnschedulablePods,
        *,
        clock: Clock,
        incoming: Incoming,
        nominator: Nominator,
        pre_enqueue: PreEnqueueRunner,
        pops_from_backoff: bool,
        nominating_labels: Collection[str],
    ) -> None:
        self._active = active
        self._backoff = backoff
        self._pool = pool
        self._clock = clock
        self._incoming = incoming
        self._nominator = nominator
        self.pre_enqueue = pre_enqueue
        self._pops_from_backoff = pops_from_backoff
        self._nominating_labels = nominating_labels
        self.announcements = Announcements(pool.get_parked)

    # Single pods.

    def to_active(
        self,
        info: QueuedPodInfo,
        label: str,
        *,
        from_backoff: bool = False,
        turn: int | None = None,
        decided: str = "",
    ) -> bool:
        """Move to activeQ, or to the pool if a PreEnqueue plugin rejects the pod."""
        # With `pops_from_backoff` the plugins have run on entry into backoffQ.
        if not (from_backoff and self._pops_from_backoff):
            self.pre_enqueue.run(info)
        key = info.pod_info.key
        if info.is_gated:
            if key not in self._active and key not in self._backoff:
                self._keep_gated(info, label, decided)
            return False
        if info.initial_attempt_timestamp is None:
            info.initial_attempt_timestamp = self._clock.monotonic()
        self._pool.remove(key)
        self._active.put(key, info, turn)
        self._incoming.enter(ACTIVE, label, decided)
        if log.enabled(5):
            log_move(info, label, ACTIVE)
        if label in self._nominating_labels:
            self._nominator.add_nominated_pod(info.pod_info)
        return True

    def to_backoff(
        self, info: QueuedPodInfo, label: str, turn: int | None = None, decided: str = ""
    ) -> bool:
        """Move to backoffQ, or to the pool if a PreEnqueue plugin rejects the pod."""
        if self._pops_from_backoff:
            self.pre_enqueue.run(info)
            if info.is_gated:
                self._keep_gated(info, label, decided)
                return False
        key = info.pod_info.key
        self._pool.remove(key)
        self._backoff.put(key, info, turn)
        self._incoming.enter(BACKOFF, label, decided)
        if log.enabled(5):
            log_move(info, label, BACKOFF)
        return True

    def _keep_gated(self, info: QueuedPodInfo, label: str, decided: str) -> None:
        info.was_flushed_from_unschedulable = False
        self._pool.add_or_update(info, label, decided)
        if log.enabled(5):
            log_move(info, label, UNSCHEDULABLE, f"{MOVED}, because it is gated")

    def requeue(
        self,
        info: QueuedPodInfo,
        strategy: Strategy,
        label: str,
        turn: int | None = None,
        now: float | None = None,
    ) -> str:
        """Move a pod according to the strategy, at an event's time; returns its new place."""
        decided = strategy.value
        if strategy is Strategy.SKIP:
            self._pool.add_or_update(info, label, decided)
            return UNSCHEDULABLE
        must_rest = strategy is Strategy.AFTER_BACKOFF and self._backoff.policy.is_backing_off(
            info, self._clock.monotonic() if now is None else now
        )
        if must_rest:
            return BACKOFF if self.to_backoff(info, label, turn, decided) else UNSCHEDULABLE
        is_active = self.to_active(info, label, turn=turn, decided=decided)
        return ACTIVE if is_active else UNSCHEDULABLE

    def is_poppable(self, place: str) -> bool:
        return place == ACTIVE or (place == BACKOFF and self._pops_from_backoff)

    # Many pods and classes.

    def bring_back(
        self,
        pods: Judged[Member],
        classes: Judged[WaitingClass],
        label: str,
        now: float,
        *,
        is_flush: bool = False,
    ) -> bool:
        """Move pods out of the pool and wake classes, at the time of an event.

        Returns True if any of them can be popped.
        """
        is_poppable, stamps = False, Stamps(now)
        for member, strategy in pods:
            info = member.info
            self._pool.remove(info.pod_info.key)
            is_poppable |= self.is_poppable(self.requeue(info, strategy, label, now=now))
        for waiting, strategy in classes:
            stamp = stamps.after(waiting.stamp)
            waiting.wake(strategy, label, stamp, now if is_flush else None)
            is_poppable |= self.release_next(waiting, now)
        return is_poppable

    def release_next(self, waiting: WaitingClass, now: float | None = None) -> bool:
        """Release the next pod of a woken class; returns True if it can be popped."""
        while (head := self._pool.next_head(waiting)) is not None:
            info, turn = head
            place = self.requeue(info, waiting.strategy, waiting.label, turn, now)
            if place != UNSCHEDULABLE:  # otherwise it is gated now
                waiting.place = place
                return self.is_poppable(place)
        return False

    def end_backoffs(self, now: float) -> bool:
        """Move pods with expired backoff to activeQ; returns True if any of them can be popped."""
        is_poppable = False
        for info in self._backoff.pop_rested(now):
            is_poppable |= self.to_active(info, BACKOFF_COMPLETE, from_backoff=True)
        return is_poppable

    def wait_with_class(self, info: QueuedPodInfo, failure: ClassFailure) -> str:
        """Park a pod whose class no event has helped since the pod was popped."""
        waiting = self._pool.headed_by(info.pod_info.uid)
        if waiting is None or waiting.class_key != info.pod_info.class_key:
            self._pool.park(info, SCHEDULE_ATTEMPT_FAILURE, failure.message)
            return UNSCHEDULABLE
        self._backoff.policy.expiration(info)  # computed now, with its own attempt's timestamp
        decided = waiting.strategy.value
        others, untold = self._pool.settle(info, SCHEDULE_ATTEMPT_FAILURE, failure.message)
        failure.settled = others
        if others:
            self._incoming.count(waiting.place, waiting.label, decided, others)
        if untold:
            self.announcements.announce(untold, failure)
        return UNSCHEDULABLE
