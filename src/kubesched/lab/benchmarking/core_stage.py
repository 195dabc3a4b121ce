"""Runs the scheduler of a core cluster: attempts, bindings and background activities."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from time import thread_time
from typing import cast

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Failed
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.lab.benchmarking.core_cluster import PACE_S, CoreCluster
from kubesched.lab.benchmarking.core_measuring import Measurement
from kubesched.scheduler.groups.group_cycle import GroupCycles, SkipPod
from kubesched.scheduler.groups.parts import GroupScheduler
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.scheduling_cycle import Assumed, SchedulingCycle

Progress = Callable[[str], None]
"""Receives a short status text. Called often; the receiver decides what to show."""

PATIENCE_S = 600.0
"""Virtual time without a binding after which the workload counts as stuck."""

FRUITLESS = 100_000
"""Attempts without a binding before the workload counts as stuck."""

NOTE_EVERY = 500
"""Attempts between two progress reports."""


@dataclass(slots=True)
class Beside:
    """A background activity that makes one step per interval while pods are scheduled."""

    steps: Iterator[None]
    next_at: float
    interval_s: float


@dataclass(slots=True, eq=False)
class TimedCycle(SchedulingCycle):
    """Adds up the CPU time of scheduling cycles, without the attempt's queue pop and reporting."""

    cpu_s: float = 0.0

    @classmethod
    def like(cls, cycle: SchedulingCycle) -> TimedCycle:
        return cls(*(getattr(cycle, member.name) for member in fields(cycle)))

    def run(
        self, framework: Framework, state: CycleState, info: QueuedPodInfo, started: float
    ) -> Assumed | Failed | Awaitable[Assumed | Failed]:
        began = thread_time()
        outcome = SchedulingCycle.run(self, framework, state, info, started)
        self.cpu_s += thread_time() - began
        return outcome


class TimedGroups:
    """Adds the CPU time of group cycles to that of the others."""

    def __init__(self, cycles: GroupCycles, timed: TimedCycle) -> None:
        self._cycles, self._timed = cycles, timed

    def run(self, entity: QueuedGroup, is_skipped: SkipPod) -> list[Assumed]:
        began = thread_time()
        assumed = self._cycles.run(entity, is_skipped)
        assert isinstance(assumed, list), "there are no extenders here"
        self._timed.cpu_s += thread_time() - began
        return assumed


class CoreStage:
    """Steps the scheduler of a cluster."""

    def __init__(
        self,
        cluster: CoreCluster,
        progress: Progress,
        make_measurement: type[Measurement] = Measurement,
        *,
        times_cycles: bool = False,
    ) -> None:
        self.cluster = cluster
        self.clock = cluster.paced
        self._scheduler = cluster.assembly.scheduler
        self._cycle: TimedCycle | None = None
        if times_cycles:
            self._cycle = self._scheduler.cycle = TimedCycle.like(self._scheduler.cycle)
            if isinstance(self._scheduler, GroupScheduler):
                timed = TimedGroups(self._scheduler.groups, self._cycle)
                self._scheduler.groups = cast("GroupCycles", timed)
        self._progress = progress
        self._has_frozen = False
        self._beside: list[Beside] = []
        self._awaited: set[str] = set()
        """Pods the workload waits for, by uid."""
        self.on_bound: Callable[[Pod], None] = lambda _pod: None
        self._last_binding = self.clock.monotonic()
        self._attempts_at_last_binding = 0
        self._measurement: Measurement | None = None
        self._make_measurement = make_measurement
        self._attempts = 0
        self._binding_began: float | None = None
        """CPU time when the current attempt had found a node."""
        cluster.on_bound = self._bound
        cluster.on_binding = self._binding_begins

    # -- measuring ---------------------------------------------------------------------------------

    def start_measuring(self, namespaces: Sequence[str], labels: Mapping[str, str]) -> None:
        # Like `kubesched run`: keeps the collector from traversing the cluster again. If the caller
        # has frozen its own objects, do not unfreeze: that would thaw them, too.
        gc.collect()
        self._has_frozen = gc.get_freeze_count() == 0
        if self._has_frozen:
            gc.freeze()
        self._measurement = self._make_measurement(namespaces, labels)
        if self._cycle is not None:
            self._cycle.cpu_s = 0.0

    def stop_measuring(self) -> Measurement:
        measurement, self._measurement = self._measurement, None
        if measurement is None:
            raise KubeschedError("stopCollectingMetrics without startCollectingMetrics")
        if self._has_frozen:
            gc.unfreeze()
        if self._cycle is not None:
            measurement.cycles_s = self._cycle.cpu_s
        return measurement

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Charge the scheduler's work to the open measurements."""
        measured = self._measurement
        if measured is None:
            yield
            return
        measured.begin()
        try:
            yield
        finally:
            measured.end()

    # -- pods --------------------------------------------------------------------------------------

    def enqueue(self, pods: Sequence[Pod]) -> None:
        """Add new pods."""
        with self._measured():
            self.clock.enter()
            for pod in pods:
                self.cluster.add(pod)
            self.clock.leave()

    def until_bound(self, pods: Sequence[Pod], what: str) -> None:
        """Schedule until all of these pods are bound or deleted.

        Raises:
            KubeschedError: nothing has been bound for a long time.
        """
        self._awaited = {pod.metadata.uid for pod in pods if not pod.spec.node_name}
        self._work(lambda: not self._awaited, what)

    def until_time(self, instant: float) -> None:
        """Schedule until this time, whether or not pods are bound."""
        self._work(lambda: self.clock.monotonic() >= instant, "", until=instant)

    def until_attempted(self) -> None:
        """Schedule until no pod can be tried right now."""
        tried = False

        def is_over() -> bool:
            return tried

        def nothing_left() -> bool:
            nonlocal tried
            tried = True
            return True

        self._work(is_over, "", when_idle=nothing_left)

    def forget(self, pod: Pod) -> None:
        """Stop waiting for a deleted pod."""
        self._awaited.discard(pod.metadata.uid)

    def _bound(self, pod: Pod) -> None:
        self._awaited.discard(pod.metadata.uid)
        self._last_binding = self.clock.monotonic()
        self._attempts_at_last_binding = self._attempts
        if self._measurement is not None:
            self._measurement.note_bound(pod)
        self.on_bound(pod)

    # -- background activities ---------------------------------------------------------------------

    def go_on_beside(self, steps: Iterator[None], interval_s: float) -> Beside:
        """Start an activity with one step per interval; the first step is due now."""
        activity = Beside(steps, self.clock.monotonic(), interval_s)
        self._beside.append(activity)
        return activity

    def until_over(self, activity: Beside) -> None:
        """Schedule until an activity has finished."""
        self._work(lambda: activity not in self._beside, "")

    def end_beside(self, activity: Beside) -> None:
        self._beside.remove(activity)

    def _make_steps(self) -> None:
        now = self.clock.monotonic()
        for activity in [activity for activity in self._beside if activity.next_at <= now]:
            while activity.next_at <= now:
                activity.next_at += activity.interval_s
                if next(activity.steps, self) is self:
                    self._beside.remove(activity)
                    break

    # -- work --------------------------------------------------------------------------------------

    def _work(
        self,
        is_over: Callable[[], bool],
        what: str,
        *,
        until: float | None = None,
        when_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._last_binding = self.clock.monotonic()
        self._attempts_at_last_binding = self._attempts
        with self._measured():
            while not is_over():
                if self._beside:
                    self._make_steps()
                if self._attempt():
                    self._check_progress(what)
                elif self.cluster.finish_background():
                    continue
                elif self.cluster.background_count:
                    raise KubeschedError("background work of the scheduler does not come to an end")
                elif not when_idle() and not is_over():
                    self._let_time_pass(what, until)

    def _check_progress(self, what: str) -> None:
        if self._attempts - self._attempts_at_last_binding > FRUITLESS:
            raise KubeschedError(self._stuck(what))
        if self._attempts % NOTE_EVERY == 0:
            self._progress(f"{self._attempts} attempts")

    def _attempt(self) -> bool:
        """Try the next pod and bind it if a node was found; returns False if the queue is empty."""
        measured, self._binding_began = self._measurement, None
        self.clock.enter()
        started = thread_time()
        if not self.cluster.attempt():
            self.clock.leave()
            return False
        ended = thread_time()
        self.clock.leave(PACE_S)
        self._attempts += 1
        if measured is not None:
            measured.decisions_s.append((self._binding_began or ended) - started)
            measured.unschedulable += self._binding_began is None
        self.cluster.finish_background()
        return True

    def _binding_begins(self) -> None:
        self._binding_began = thread_time()

    def _let_time_pass(self, what: str, until: float | None) -> None:
        """Advance the clock to the next due time."""
        due = [activity.next_at for activity in self._beside]
        deadline = self._scheduler.queue.next_deadline()
        due += [moment for moment in (deadline, until) if moment is not None]
        if not due or (what and min(due) - self._last_binding > PATIENCE_S):
            raise KubeschedError(self._stuck(what))
        self.cluster.jump_to(min(due))

    def _stuck(self, what: str) -> str:
        waiting = [pod for pod in self.cluster.objects(Pod) if pod.metadata.uid in self._awaited]
        text = f"{len(waiting)} {what or 'pods'} cannot be scheduled"
        for pod in waiting[:1]:
            conditions = pod.status.conditions or ()
            message = next((c.message for c in conditions if c.type == "PodScheduled"), "")
            text += f"; {key_of(pod.metadata)}: {message or 'never tried'}"
        return text
