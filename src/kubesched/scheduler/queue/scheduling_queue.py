"""SchedulingQueue: all pending pods, and the queue that each is in.

    add, update ──► activeQ ──pop──► in flight ──► bound: done(uid)
                      ▲  ▲               │
      backoff over    │  │ may be tried  │ failed: add_unschedulable_if_not_present(info)
                      │  │ at once       ▼
                   backoffQ ◄── unschedulablePods (rejected, or gated by a PreEnqueue plugin)
                        event + hint, own update, activate, or 5 minutes without any of them

A pod is in exactly one of: activeQ (may be tried now), backoffQ (may be tried after its backoff),
unschedulablePods (waits for an event), in flight (being tried). Of the pods that share an answer,
only the first is tried (`waiting_classes`). With `pop_from_backoff_q` an idle scheduler also pops
rejected pods before their backoff expires.

Attempts and watches are outside of this class. The caller reports events
(`move_all_to_active_or_backoff_queue`), pops pods (`pop`, which never waits: `on_ready` is called
when a pod may be available) and calls `run_timers` at `next_deadline`.

Single-threaded, so upstream's races between its locks cannot occur here; where upstream documents
an outcome of a race, it equals the outcome of the two operations in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor
from random import Random
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.clock import Clock
from kubesched.base.logs import get_logger
from kubesched.base.metrics import SchedulerMetrics
from kubesched.framework.events import (
    EVENT_UNSCHEDULED_POD_ADD,
    EVENT_UNSCHEDULED_POD_UPDATE,
    FORCE_ACTIVATE,
    POP_FROM_BACKOFF_Q,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
)
from kubesched.framework.interfaces import QueueSortPlugin
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.active import ACTIVE, ActiveQueue, rank_by
from kubesched.scheduler.queue.announcements import ClassFailure
from kubesched.scheduler.queue.backoff import (
    BACKOFF,
    FLUSH_PERIOD_S,
    BackoffPolicy,
    BackoffQueue,
)
from kubesched.scheduler.queue.cohorts import PreCheck
from kubesched.scheduler.queue.contents import QueueContents
from kubesched.scheduler.queue.entries import Entries, Signer
from kubesched.scheduler.queue.hints import HintEvaluator, HintMap, Strategy
from kubesched.scheduler.queue.in_flight import InFlight
from kubesched.scheduler.queue.incoming import POD, Incoming
from kubesched.scheduler.queue.log_lines import (
    MOVED,
    log_checking,
    log_failure,
    log_move,
    log_not_helped,
)
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.queue.pre_enqueue import PreEnqueueFn, PreEnqueueRunner
from kubesched.scheduler.queue.saved_queue import SavedPod, SavedQueue
from kubesched.scheduler.queue.settings import QueueSettings
from kubesched.scheduler.queue.transitions import Transitions
from kubesched.scheduler.queue.unschedulable import (
    GATED,
    UNSCHEDULABLE,
    UnschedulablePods,
)

log = get_logger(__name__)

LEFTOVER_PERIOD_S: Final = 30.0  # period of the flush of unschedulable pods


class SchedulingQueue(QueueContents):
    """activeQ, backoffQ, unschedulablePods and in-flight pods, and their operations."""

    def __init__(
        self,
        *,
        clock: Clock,
        stopwatch: Clock | None = None,
        queue_sort: QueueSortPlugin,
        hints: HintMap,
        pre_enqueue: Mapping[str, Mapping[str, PreEnqueueFn]],
        nominator: Nominator,
        metrics: SchedulerMetrics,
        random: Random,
        signers: Mapping[str, Signer] | None = None,
        settings: QueueSettings | None = None,
    ) -> None:
        """An empty queue.

        Args:
            clock: Its monotonic time is used for all timestamps.
            stopwatch: Measures plugin durations, if not `clock`.
            queue_sort: The QueueSort plugin of the first profile; all profiles share its order.
            hints: The plugins interested in each event.
            pre_enqueue: Per scheduler name, the PreEnqueue plugins by name, in order.
            nominator: Shared with the plugins; looks up queued pods here.
            metrics: Counts transitions; `pending_pods` reads the sizes from here.
            random: Draws the sample of measured PreEnqueue runs.
            signers: Per scheduler name; a missing one means no signature.
            settings: Durations and gates.
        """
        self.settings = settings = settings or QueueSettings()
        self.on_ready: Callable[[], None] = _nothing
        """Called when `pop` may return a pod, and on close.

        Must not call back into the queue.
        """
        self._clock = clock
        self._started = clock.monotonic()
        self._scheduling_cycle = 0
        self._is_closed = False
        self._entries = Entries(
            clock,
            signers or {},
            nominator,
            keeps_requests=not settings.reference.waiting_requests_follow,
        )
        rank = rank_by(queue_sort)
        policy = BackoffPolicy(
            initial_s=settings.initial_backoff_s,
            max_s=settings.max_backoff_s,
            whole_seconds=settings.pop_from_backoff_q,
        )
        self._hints = hints
        self._metrics = metrics
        self.nominator = nominator
        self._incoming = incoming = Incoming(metrics)
        self._active = ActiveQueue(rank)
        self._backoff = BackoffQueue(policy, rank if settings.pop_from_backoff_q else None)
        self._pool = UnschedulablePods(metrics, incoming)
        self._in_flight = InFlight(metrics, given_up=hints.resolve(UNSCHEDULABLE_TIMEOUT))
        self._show_sizes(incoming)
        if settings.reference.entity_metrics:
            for queue in ("incomplete", "pending"):  # members of pod groups only
                metrics.pending_pods.labels(queue)
        self._evaluator = HintEvaluator(stopwatch or clock, metrics)
        reference = settings.reference
        self._forgets_rejectors = reference.rejectors_forgotten_everywhere
        self._nominates_first = reference.gated_pods_are_nominated
        self._added = self.label_of(EVENT_UNSCHEDULED_POD_ADD)
        # An update of an unknown pod is an Add, but only newer releases label it as one.
        self._missed = self._added
        if not self._nominates_first:
            self._missed = self.label_of(EVENT_UNSCHEDULED_POD_UPDATE)
        self._transitions = Transitions(
            self._active,
            self._backoff,
            self._pool,
            clock=clock,
            incoming=incoming,
            nominator=nominator,
            pre_enqueue=PreEnqueueRunner(
                pre_enqueue,
                hints,
                clock=stopwatch or clock,
                random=random,
                metrics=metrics,
                sample_percent=settings.plugin_metrics_sample_percent,
            ),
            pops_from_backoff=settings.pop_from_backoff_q,
            nominating_labels=() if self._nominates_first else (self._added, self._missed),
        )
        self._announcements = self._transitions.announcements
        nominator.find_queued = self._find_queued

    # Adding, updating and deleting pods.

    def add(self, pod: Pod) -> None:
        """Add a new pod."""
        self._add(pod, self._added)

    def _add(self, pod: Pod, label: str) -> None:
        info = self._entries.new(pod)
        if self._nominates_first:
            self.nominator.add_nominated_pod(info.pod_info)
        if self._transitions.to_active(info, label):
            self._backoff.remove(info.pod_info.key)
            self.on_ready()

    def update(self, old: Pod, new: Pod, events: Sequence[ClusterEvent]) -> None:
        """Apply a newer version of a pod; `events` are its changes, most specific first."""
        if new.metadata.uid in self._in_flight:
            # The attempt continues with the old version; if it fails, these events decide what
            # follows.
            for event in events:
                self._in_flight.record(self._hints.resolve(event), old, new)
            return
        key = key_of(old.metadata)
        for queue in (self._active, self._backoff):
            info = queue.get(key)
            if info is not None:
                queue.put_newer(key, self._entries.newer(info, old, new))
                return
        info = self._pool.get(key)
        if info is not None:
            info = self._entries.newer(info, old, new)
            self._pool.refile(info)
            self._wake_if(self._requeue_updated(info, old, new, events))
            return
        self._add(new, self._missed)

    def _requeue_updated(
        self, info: QueuedPodInfo, old: Pod, new: Pod, events: Sequence[ClusterEvent]
    ) -> str:
        """Evaluate the changes of a waiting pod one by one until one of them moves it.

        Upstream continues after a move to backoffQ when popping from there is off, and may then
        keep the pod in two places; here the first move is the last.
        """
        for event in events:
            resolved = self._hints.resolve(event)
            strategy = self._evaluator.evaluate(info, resolved, old, new)
            place = self._transitions.requeue(info, strategy, resolved.label)
            if place != UNSCHEDULABLE:
                if log.enabled(5):
                    log_move(info, resolved.label, place, f"{MOVED} because the Pod is updated")
                return place
        return UNSCHEDULABLE

    def delete(self, pod: Pod) -> None:
        """Remove a pod that was deleted or bound. An attempt in flight is not affected."""
        self.nominator.delete_nominated_pod(pod)
        key = key_of(pod.metadata)
        info = self._active.remove(key) or self._backoff.remove(key)
        if info is not None:
            self._next_of_class(info.pod_info.uid)
            if not self._forgets_rejectors:  # they stay in `unschedulable_pods` for ever
                return
        else:
            info = self._pool.remove(key)
        if info is not None:
            self._count_rejections(info, -1)

    # Attempts.

    def pop(self) -> QueuedPodInfo | None:
        """Pop the next pod, which is then in flight; None if there is none at the moment."""
        while True:
            info = self._active.pop()
            if info is None and self.settings.pop_from_backoff_q:
                info = self._backoff.pop_rejected()
                if info is not None:
                    self._incoming.count(ACTIVE, POP_FROM_BACKOFF_Q)
            if info is None or self._take(info):
                return info

    def pop_specific_pod(self, pod: Pod) -> QueuedPodInfo | None:
        """Pop that pod from any queue; None if it is in no queue or gated."""
        self._activate(pod)
        info = self._active.remove(key_of(pod.metadata))
        return info if info is not None and self._take(info) else None

    def _take(self, info: QueuedPodInfo) -> bool:
        """Mark a popped pod as in flight; False if its UID is in flight already."""
        info.attempts += 1
        self.nominator.moved(info.pod_info.uid)
        if not self._in_flight.add(info.pod_info.uid):
            log.error(
                "Discarding the popped entity",
                f"the same pod is tracked in multiple places in the scheduler: {info.pod_info.key}",
                type=POD,
                entity=info.pod_info.pod,
            )
            return False
        self._scheduling_cycle += 1
        self._count_rejections(info, -1)
        return True

    def add_unschedulable_if_not_present(
        self, info: QueuedPodInfo, failure: ClassFailure | None = None
    ) -> str:
        """Requeue a pod whose attempt failed; it is no longer in flight in any case.

        The caller has recorded the rejecting plugins; none means that the attempt failed with an
        error. A `failure` means that every other pod of the class would have been rejected in the
        same way; pods that wait behind this one are not tried, and count as rejected too.

        Returns:
            The pod's queue; empty if another entry for the pod is already queued, which is kept.
        """
        now, is_tried_again = self._clock.monotonic(), False
        try:
            place = self.place_of_key(info.pod_info.key)
            if place is not None:
                log.info("Pod is queued already", pod=info.pod_info.pod, queue=place)
                return ""
            self._announcements.drop(info.pod_info.key)
            self._note_failure(info, now)
            strategy = self._strategy_for_failed(info)
            if failure is None or not info.pod_info.class_key:
                queue = self._transitions.requeue(info, strategy, SCHEDULE_ATTEMPT_FAILURE)
            elif strategy is Strategy.SKIP:
                queue = self._transitions.wait_with_class(info, failure)
            else:
                queue = self._transitions.requeue(info, strategy, SCHEDULE_ATTEMPT_FAILURE)
                # The event that released it was for its whole class: it is still tried for all.
                is_tried_again = queue != UNSCHEDULABLE and self._is_head(info)
            if log.enabled(3):
                log_failure(info, queue, strategy, self._scheduling_cycle)
            if queue == UNSCHEDULABLE:
                return GATED if info.is_gated else queue
            self._wake_if(queue)
            return queue
        finally:
            self._in_flight.done(info.pod_info.uid)
            self.nominator.moved(info.pod_info.uid)
            if not is_tried_again:
                self._next_of_class(info.pod_info.uid)

    def _note_failure(self, info: QueuedPodInfo, now: float) -> None:
        if info.unschedulable_plugins or info.pending_plugins:
            info.unschedulable_count += 1
            info.consecutive_errors_count = 0
        else:
            info.consecutive_errors_count += 1
        info.timestamp = now
        info.backoff_expiration = None
        info.was_flushed_from_unschedulable = False
        info.flush_timestamp = None
        self._count_rejections(info, 1)

    def _strategy_for_failed(self, info: QueuedPodInfo) -> Strategy:
        """The combined effect of the events since the pod was popped."""
        pod_info = info.pod_info
        if not info.unschedulable_plugins and not info.pending_plugins:
            return Strategy.AFTER_BACKOFF
        if log.enabled(5):
            log_checking(info, self._in_flight.event_count, len(self._in_flight))
        events = self._in_flight.events_since_pop(pod_info.uid)
        if events is None:
            log.error(
                "Error getting cluster events for pod",
                "in flight entity isn't found in the scheduling queue. If you see this error log, "
                "it's likely a bug in the scheduler",
                pod=pod_info.pod,
            )
            return Strategy.AFTER_BACKOFF
        return self._evaluator.evaluate_all(info, events) if events else Strategy.SKIP

    def assumed(self, info: QueuedPodInfo) -> None:
        """The attempt found a node: try the next pod of its class during the binding."""
        self._next_of_class(info.pod_info.uid)

    def done(self, uid: str) -> None:
        """The attempt for that pod is over; unknown pods are ignored."""
        self._in_flight.done(uid)
        self._next_of_class(uid)

    def _next_of_class(self, uid: str) -> None:
        """If a pod was tried for its class and did not settle it, let the next one be tried."""
        waiting = self._pool.headed_by(uid)
        if waiting is not None and self._transitions.release_next(waiting):
            self.on_ready()

    def _is_head(self, info: QueuedPodInfo) -> bool:
        waiting = self._pool.headed_by(info.pod_info.uid)
        return waiting is not None and waiting.class_key == info.pod_info.class_key

    @property
    def scheduling_cycle(self) -> int:
        """Number of pods popped so far."""
        return self._scheduling_cycle

    # Events.

    def label_of(self, event: ClusterEvent) -> str:
        """The event's name in metrics and logs."""
        return self._hints.resolve(event).label

    def move_all_to_active_or_backoff_queue(
        self, event: ClusterEvent, old: object, new: object, pre_check: PreCheck | None = None
    ) -> None:
        """Move the pods that the event may help, among those that pass `pre_check`."""
        resolved = self._hints.resolve(event)
        if not resolved.is_of_interest:
            return
        now = self._clock.monotonic()
        self._in_flight.record(resolved, old, new)
        if self._in_flight.event_count and log.enabled(5):
            log.info("Event received while entities are in flight", v=5, event=resolved.label)
        narrowed = self._evaluator.narrow(resolved, old, new)
        if len(self._pool):  # usually empty
            helped = self._pool.helped_by(resolved, old, new, pre_check, self._evaluator, narrowed)
            is_poppable = self._transitions.bring_back(*helped, resolved.label, now)
            if log.enabled(5):
                log_not_helped(self._pool, resolved.label)
            if is_poppable:
                self.on_ready()

    def activate(self, pods: Mapping[str, Pod]) -> None:
        """Move pods to activeQ now, ignoring backoff; a pod in flight follows if it fails."""
        activated = False
        for pod in pods.values():
            if self._activate(pod):
                activated = True
            elif pod.metadata.uid in self._in_flight:
                event = self._hints.resolve(FORCE_ACTIVATE)
                self._in_flight.record(event, None, pod)
        if activated:
            self.on_ready()

    def _activate(self, pod: Pod) -> bool:
        key = key_of(pod.metadata)
        info = self._pool.get(key)
        if info is not None:
            return self._transitions.to_active(info, FORCE_ACTIVATE.label)
        info = self._backoff.remove(key)
        if info is not None:
            return self._transitions.to_active(info, FORCE_ACTIVATE.label, from_backoff=True)
        return False

    def dissolve_classes(self) -> None:
        """Let every pod wait individually, as in a queue restored from a checkpoint.

        Pods behind a head are woken as it was. Classes form again as pods are tried.
        """
        self._announcements.tell_all()
        is_poppable = False
        for info, waiting in self._pool.dissolve_classes():
            place = self._transitions.requeue(info, waiting.strategy, waiting.label)
            is_poppable |= self._transitions.is_poppable(place)
        if is_poppable:
            self.on_ready()

    def close(self) -> None:
        """Clear the pods in flight. Queued pods can still be popped."""
        self._is_closed = True
        log.info("Scheduling queue is closed", v=2)
        self._in_flight.done_all()
        self.on_ready()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # Timers.

    def next_deadline(self) -> float | None:
        """When `run_timers` is next due; None if nothing depends on time."""
        deadlines: list[float] = []
        if self._announcements:
            deadlines.append(self._clock.monotonic())
        expiration = self._backoff.earliest_expiration()
        if expiration is not None:
            # With backoffs in whole seconds, ticks are whole seconds, else relative to the start.
            grid = 0.0 if self.settings.pop_from_backoff_q else self._started
            deadlines.append(tick_after(max(expiration, self._started), FLUSH_PERIOD_S, grid))
        oldest_stay = self._pool.oldest_stay
        if oldest_stay is not None:
            due = oldest_stay + self.settings.max_in_unschedulable_s
            deadlines.append(tick_after(due, LEFTOVER_PERIOD_S, self._started))
        return min(deadlines, default=None)

    def run_timers(self) -> None:
        """Run the flushes that are due, and report to some of the settled pods."""
        self.flush_backoff_completed()
        self.flush_unschedulable_leftovers()
        self._announcements.tell_some()

    def flush_backoff_completed(self) -> None:
        """Move every pod whose backoff has expired to activeQ."""
        if self._transitions.end_backoffs(self._clock.monotonic()):
            self.on_ready()

    def flush_unschedulable_leftovers(self, max_stay_s: float | None = None) -> None:
        """Move pods that have waited too long for an event: one may have been missed."""
        now, oldest = self._clock.monotonic(), self._pool.oldest_stay
        max_stay_s = self.settings.max_in_unschedulable_s if max_stay_s is None else max_stay_s
        if oldest is None or now - oldest <= max_stay_s:
            return  # timers run often, and scanning all pods is slow
        event = self._hints.resolve(UNSCHEDULABLE_TIMEOUT)
        pods, classes = self._pool.flushed(event, now, max_stay_s)
        if pods or classes:
            # Upstream: remembered for pods in flight as well, even if all overdue stay gated.
            self._in_flight.record(event, None, None)
        if self._transitions.bring_back(pods, classes, event.label, now, is_flush=True):
            self.on_ready()

    # Checkpoints and checks.

    @property
    def can_be_saved(self) -> bool:
        """True if the entries determine the queue: nothing is in progress."""
        return not len(self._in_flight) and not self._announcements and not self._pool.heads()

    def save(self) -> SavedQueue:
        """All queued pods, for a checkpoint. Call `dissolve_classes` afterwards."""
        return SavedQueue.of(
            self._scheduling_cycle,
            self._active.by_arrival(),
            self._backoff.by_arrival(),
            self._pool,
        )

    def restore(self, saved: SavedQueue, find_pod: Callable[[str], Pod]) -> None:
        """Fill an empty queue from a checkpoint; `find_pod` returns pods by key."""
        for place, pods in (
            (ACTIVE, saved.active),
            (BACKOFF, saved.backoff),
            (UNSCHEDULABLE, saved.unschedulable),
        ):
            for saved_pod in pods:
                info = self._restored(saved_pod, find_pod)
                if place == UNSCHEDULABLE:
                    self._pool.add_or_update(info, self._added)
                    continue
                (self._active if place == ACTIVE else self._backoff).put(saved_pod.key, info)
                self._incoming.enter(place, self._added)
        self._scheduling_cycle = saved.scheduling_cycle

    def _restored(self, saved: SavedPod, find_pod: Callable[[str], Pod]) -> QueuedPodInfo:
        info = saved.entry(PodInfo(find_pod(saved.key)))
        info.signature = self._entries.sign(info.pod_info)
        if info.is_gated:
            info.gating_plugin_events = self._hints.events_of(info.gating_plugin)
        self._count_rejections(info, 1)
        return info

    def check_invariants(self) -> None:
        """Raise AssertionError if the queue is inconsistent."""
        self._check(can_pop_backoff=self.settings.pop_from_backoff_q)
        self._pool.check_stays()

    def _count_rejections(self, info: QueuedPodInfo, delta: int) -> None:
        rejectors = info.unschedulable_plugins
        if info.pending_plugins:
            rejectors = info.rejector_plugins
        if not rejectors:
            return
        profile = info.pod_info.pod.spec.scheduler_name
        for plugin in rejectors:
            self._metrics.unschedulable_pods.labels(plugin, profile).inc(delta)

    def _wake_if(self, place: str) -> None:
        if self._transitions.is_poppable(place):
            self.on_ready()


def tick_after(instant: float, period_s: float, grid: float) -> float:
    """The first instant `grid + n * period` after `instant`."""
    return grid + period_s * (floor((instant - grid) / period_s) + 1)


def _nothing() -> None: ...  # the default `on_ready`
