"""The scheduling loop: pops pods, runs scheduling cycles, starts bindings, yields in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import Clock
from kubesched.base.logs import get_logger
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Failed
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.maybe_async import then
from kubesched.scheduler.background import BackgroundTasks
from kubesched.scheduler.binding_cycle import BindingCycle
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.checkpoint import Checkpoints
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.scheduler.event_gate import EventGate
from kubesched.scheduler.failure import FailureHandler
from kubesched.scheduler.flight import ATTEMPT_DECIDED, FlightRecorder
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.scheduling_cycle import Assumed, SchedulingCycle
from kubesched.scheduler.status_writer import StatusWriter

log = get_logger(__name__)

PLUGIN_METRICS_SAMPLE_PERCENT = 10
SLOW_ATTEMPT_S = 0.1
"""Slower attempts log the time spent in each extension point."""
BURST_PODS = 64
"""Maximum attempts in a row before other tasks (watches, bindings) run."""
BURST_S = 0.002
PAUSE_S = 0.02
"""How long the loop pops no pods for a checkpoint, at most once in `PAUSE_EVERY_S`."""
PAUSE_EVERY_S = 1.0
CHECKPOINT_RETRY_S = 0.1
"""Delay after a checkpoint that a plugin or a pod in flight prevented: the check is slow."""
MAX_BINDINGS = 256
"""Bindings in flight at which the loop stops popping pods: the API server is the bottleneck then,
and each additional assumed pod may have to be undone.
"""


@dataclass(frozen=True, slots=True)
class Suspended:
    """An attempt that awaits I/O. No other attempt may start before it ends."""

    outcome: Awaitable[Assumed | AssumedGroup | Finished]


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt that ended with nothing to bind."""


@dataclass(frozen=True, slots=True)
class QueueEmpty:
    """The active queue was empty."""


FINISHED: Final = Finished()
QUEUE_EMPTY: Final = QueueEmpty()


@dataclass(frozen=True, slots=True)
class AssumedGroup:
    """The members of a group that are to be bound, possibly none."""

    members: list[Assumed]


AttemptOutcome = Assumed | AssumedGroup | Finished | Suspended | QueueEmpty


class Scheduler:
    """The scheduling loop over a queue, a cache and some profiles."""

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        cache: Cache,
        frameworks: Mapping[str, Framework],
        cycle: SchedulingCycle,
        binding: BindingCycle,
        failures: FailureHandler,
        status_writer: StatusWriter,
        background: BackgroundTasks,
        metrics: SchedulerMetrics,
        clock: Clock,
        random: Random,
        event_gate: EventGate,
        decisions: DecisionRing,
        flight: FlightRecorder | None = None,
        checkpoints: Checkpoints,
    ) -> None:
        self.queue = queue
        self.event_gate = event_gate
        self.cache = cache
        self.frameworks = frameworks
        self.cycle = cycle
        self.binding = binding
        self.failures = failures
        self.status_writer = status_writer
        self.metrics = metrics
        self._clock = clock
        self._random = random
        self.decisions = decisions
        self._bindings: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self.may_begin: Callable[[], bool] = lambda: True
        """False while no attempt may start, e.g. after a restore. Call `wake` on a change."""
        self._flight = flight
        self.checkpoints = checkpoints
        self._paused_at = -PAUSE_EVERY_S
        self._next_checkpoint = 0.0
        self.background = background
        self._wake = asyncio.Event()
        queue.on_ready = self._wake.set
        binding.on_capacity = self._wake.set

    # -- one pod -----------------------------------------------------------------------------------

    def attempt(self) -> AttemptOutcome:
        """Run the next attempt."""
        if self._flight is not None:
            self._flight.tick()
        info = self.queue.pop()
        return QUEUE_EMPTY if info is None else self._begin(info)

    def _begin(self, info: QueuedPodInfo) -> AttemptOutcome:
        if self._flight is not None:
            self._flight.attempt(info)
        pod = info.pod_info.pod
        if log.enabled(4):
            log.info("About to try and schedule pod", v=4, pod=pod)
        framework = self.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            log.error(
                "No profile for the scheduler name of a pod",
                pod=pod,
                schedulerName=pod.spec.scheduler_name,
            )
            self.queue.done(pod.metadata.uid)
            return FINISHED
        if self.is_to_be_skipped(framework, pod):
            self.queue.done(pod.metadata.uid)
            return FINISHED
        return self._attempt(framework, info)

    def _attempt(self, framework: Framework, info: QueuedPodInfo) -> Assumed | Finished | Suspended:
        started = framework.now()
        if log.enabled(3):
            log.info("Attempting to schedule pod", v=3, pod=info.pod_info.pod)
        framework.attempt_begins()
        state = CycleState()
        state.cycle, state.signature = self.queue.scheduling_cycle, info.signature
        if self._random.randrange(100) < PLUGIN_METRICS_SAMPLE_PERCENT:
            state.timer = framework.timer
        ran = self.cycle.run(framework, state, info, started)
        started += state.shadow_s
        if self._flight is not None and not isinstance(ran, Assumed | Failed):
            ran = self._reported(self._flight, ran, info)
        if type(ran) is Assumed or type(ran) is Failed:  # inlined `then` for most pods
            return self._conclude(framework, state, info, started, ran)
        outcome: Assumed | Finished | Awaitable[Assumed | Finished] = then(
            ran, self._conclude, framework, state, info, started
        )
        return outcome if isinstance(outcome, Assumed | Finished) else Suspended(outcome)

    @staticmethod
    async def _reported(
        flight: FlightRecorder, outcome: Awaitable[Assumed | Failed], info: QueuedPodInfo
    ) -> Assumed | Failed:
        """Report where a suspended attempt continues."""
        decided = await outcome
        await flight.reach(ATTEMPT_DECIDED, info.pod_info.uid)
        return decided

    def _conclude(
        self,
        framework: Framework,
        state: CycleState,
        info: QueuedPodInfo,
        started: float,
        outcome: Assumed | Failed,
    ) -> Assumed | Finished:
        seconds = self._note_attempt(framework, state, info, started)
        if isinstance(outcome, Assumed):
            now, done = self._clock.now(), Outcome.SCHEDULED
            self.decisions.add(info, framework.profile_name, now, seconds, done, *outcome.result)
            if self._flight is not None:
                self._flight.decided(info, outcome.node_name, None)
            self.queue.assumed(info)
            return outcome
        if self._flight is not None:
            self._flight.decided(info, "", outcome.status)
        as_class = state.fails_as_class and framework.fails_per_class
        self.failures.handle(framework, info, outcome, started, as_class=as_class)
        return FINISHED

    @staticmethod
    def _note_attempt(
        framework: Framework, state: CycleState, info: QueuedPodInfo, started: float
    ) -> float:
        """Record a finished attempt; returns its duration in seconds."""
        if framework.evaluations is not None:
            framework.evaluations.note(state)
        seconds = framework.now() - started
        if seconds > SLOW_ATTEMPT_S:
            steps = {
                point: round(duration_s * 1000, 1) for point, duration_s in framework.steps.items()
            }
            log.info(
                "Slow scheduling attempt",
                pod=info.pod_info.pod,
                milliseconds=round(seconds * 1000, 1),
                steps=steps,
            )
        return seconds

    def is_to_be_skipped(self, framework: Framework, pod: Pod) -> bool:
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            log.info("Skip schedule deleting pod", v=3, pod=pod)
            if framework.handle.recorder is not None:
                note = f"skip schedule deleting pod: {meta.namespace}/{meta.name}"
                framework.handle.recorder.event(
                    pod, None, "Warning", "FailedScheduling", "Scheduling", note
                )
            return True
        return self.cache.is_assumed(meta.uid)

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled; bindings in flight are then cancelled and undone."""
        if self._flight is not None:
            self._flight.began()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_timers())
            group.create_task(self.status_writer.run())
            group.create_task(self.background.run())
            try:
                while True:
                    self._wake.clear()
                    worked = not self._pauses_for_checkpoint() and self._burst(group)
                    if isinstance(worked, Suspended):
                        with self.event_gate.hold():
                            outcome = await worked.outcome
                        self._start_bindings(group, outcome)
                    elif worked and not self._is_saturated():
                        await asyncio.sleep(0)
                    else:
                        await self._wake.wait()
            finally:
                if self._flight is not None:
                    self._flight.ended()
                self.binding.call_off()
                self.queue.close()

    def _burst(self, group: asyncio.TaskGroup) -> Suspended | bool:
        """Run attempts until the budget is spent or the queue is empty.

        Returns True if there was any attempt, or the attempt to be awaited.
        """
        deadline = self._clock.monotonic() + BURST_S
        worked = False
        if not self.may_begin():
            return worked
        for _ in range(BURST_PODS):
            if self._is_draining or self._is_saturated():
                break
            outcome = self.attempt()
            if isinstance(outcome, QueueEmpty):
                break
            worked = True
            if isinstance(outcome, Suspended):
                return outcome
            self._start_bindings(group, outcome)
            if self._clock.monotonic() >= deadline:
                break
        return worked

    def _pauses_for_checkpoint(self) -> bool:
        """Give the recorder its checkpoint; True while no pod may be popped because one is near.

        Bindings usually end soon. Those that wait for a plugin may take minutes: do not wait.
        """
        flight = self._flight
        if flight is None or not flight.wants_checkpoint or self._take_checkpoint(flight):
            return False
        if not self.bindings_under_way or self.binding.waiting_count:
            return False
        now = self._clock.monotonic()
        if now >= self._paused_at + PAUSE_EVERY_S:
            self._paused_at = now
            asyncio.get_running_loop().call_later(PAUSE_S, self._wake.set)
        return now < self._paused_at + PAUSE_S

    def _take_checkpoint(self, flight: FlightRecorder) -> bool:
        now = self._clock.monotonic()
        if (
            self.bindings_under_way
            or len(self.background)
            or self.event_gate.is_held
            or now < self._next_checkpoint
        ):
            return False
        state = self.checkpoints.take()
        if state is None:
            self._next_checkpoint = now + CHECKPOINT_RETRY_S
            return False
        flight.checkpoint(state)
        self.checkpoints.begin_anew(state.seed)
        return True

    def _is_saturated(self) -> bool:
        return self.bindings_under_way - self.binding.waiting_count >= MAX_BINDINGS

    @property
    def bindings_under_way(self) -> int:
        return len(self._bindings) + self.binding.direct_count

    def _start_bindings(
        self, group: asyncio.TaskGroup, outcome: Assumed | AssumedGroup | Finished
    ) -> None:
        if isinstance(outcome, Assumed):
            self.start_binding(group, outcome)
        elif isinstance(outcome, AssumedGroup):
            for assumed in outcome.members:
                self.start_binding(group, assumed)

    def start_binding(self, group: asyncio.TaskGroup, assumed: Assumed) -> None:
        self.binding.start(assumed, partial(self._spawn, group))

    def _spawn(
        self, group: asyncio.TaskGroup, assumed: Assumed, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        task = group.create_task(work)
        self._bindings.add(task)
        task.add_done_callback(self._binding_done)
        return task

    def _binding_done(self, task: asyncio.Task[None]) -> None:
        self._bindings.discard(task)
        self._wake.set()

    async def _run_timers(self) -> None:
        """Run the queue's timers when due, and publish cache sizes once a second."""
        sizes = {
            kind: self.metrics.cache_size.labels(kind) for kind in ("nodes", "pods", "assumed_pods")
        }
        while True:
            if self._flight is not None and self.queue.next_deadline() is not None:
                self._flight.flushed()
            if self._flight is not None and self._flight.wants_checkpoint:
                self._wake.set()
            self.queue.run_timers()
            sizes["nodes"].set(self.cache.node_count)
            sizes["pods"].set(self.cache.pod_count)
            sizes["assumed_pods"].set(self.cache.assumed_count)
            due = self.queue.next_deadline()
            pause = 1.0 if due is None else min(1.0, max(0.0, due - self._clock.monotonic()))
            # If the clock is not the loop's, the delay may be too small to advance loop time.
            await asyncio.sleep(pause if pause > 1e-6 else 0.001)

    def wake(self) -> None:
        """Check the queue."""
        self._wake.set()

    def take_no_more_pods(self) -> None:
        """Stop popping pods; work in progress continues."""
        self._is_draining = True

    async def drain(self, timeout_s: float) -> None:
        """Stop popping pods and wait for running work, up to `timeout_s`; then cancel `run`."""
        self.take_no_more_pods()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.background.drain(timeout_s))
            group.create_task(self._wait_for_bindings(timeout_s))
        if undone := self.bindings_under_way:
            log.warning("Some bindings did not finish in time and are cancelled", pods=undone)

    async def _wait_for_bindings(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                # Direct bindings first: if one fails, a task takes over.
                await self.binding.wait_for_direct()
                while self._bindings:
                    await asyncio.wait(set(self._bindings))
        except TimeoutError:
            return  # the caller says so

    def check_invariants(self) -> None:
        self.queue.check_invariants()
        self.cache.check_invariants()
