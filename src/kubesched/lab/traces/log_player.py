"""Plays a recording: feeds the logged inputs to the scheduler and compares its decisions.

The production scheduler runs in virtual time over informers fed from the log. Each record is one
input: it is applied, then all its consequences run, then the next. Background tasks (bindings,
evictions) run as well, but wait at the points of `scheduler.flight` until the log resumes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import msgspec

from kubesched.api.core_v1 import Namespace, Pod
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.api.times import format_time
from kubesched.api.watch import WatchEvent
from kubesched.base.errors import KubeschedError, without_groups
from kubesched.base.logs import quiet_logs
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.base.version import __version__
from kubesched.client.informers.factory import InformerFactory
from kubesched.config.features import FeatureGates
from kubesched.config.load import load
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration, KubeSchedulerProfile
from kubesched.framework.diagnosis import Diagnosis, FitError
from kubesched.framework.extenders import Extender
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.profile import enabled_plugins
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.status import Code, Status, StatusError
from kubesched.insight.recording.reader import Objects, Run
from kubesched.insight.recording.recorder import TASKS, LatchedClock, actor, digest_of, outcome_of
from kubesched.insight.recording.records import (
    AnyEntry,
    Attempt,
    CallDone,
    Changed,
    Checkpointed,
    CheckpointEnd,
    Decision,
    QueueFlushed,
    Reached,
    SavedScheduler,
    SchedulingBegan,
    SchedulingEnded,
    Stored,
    TimerFired,
)
from kubesched.insight.recording.segments import RecordingError
from kubesched.insight.state.memory import NoEvents, PretendingClient
from kubesched.insight.state.virtual_loop import VirtualLoop, run_virtual
from kubesched.insight.state.watching import ask_for_informers, connect
from kubesched.lab.traces.played_calls import Gates, PlayedCalls, PlayedExtender, no_network
from kubesched.plugins.registry import installed_registry
from kubesched.scheduler.checkpoint import SchedulerState
from kubesched.scheduler.factory import Assembly, Dependencies, assemble
from kubesched.scheduler.flight import PRE_BIND_BEGINS
from kubesched.scheduler.http_extender import make_extenders
from kubesched.scheduler.scheduler import AssumedGroup, QueueEmpty, Suspended
from kubesched.scheduler.scheduling_cycle import Assumed

_CODES = {code.upstream_name: code for code in Code}


@dataclass(frozen=True, slots=True)
class Played:
    """The result of playing a run."""

    attempts: int
    decisions: int
    difference: str
    """The first different decision, explained; empty if there is none."""


class Difference(KubeschedError):
    """A played run differs from the logged one; the text says where and how."""


BeforeAttempt = Callable[[int, Assembly], bool]
"""(attempt number, current scheduler) -> whether to stop there."""


def play(
    run: Run,
    registry: Registry | None = None,
    *,
    before_attempt: BeforeAttempt | None = None,
    shadows: Sequence[KubeSchedulerProfile] = (),
) -> Played:
    """Play a run from its first segment to its end, or to the first difference.

    `before_attempt` may inspect the scheduler, without changing it, and stop the play. `shadows`
    decide beside the recorded profiles, in place of those that did so then.

    Raises:
        RecordingError: the first segment lacks the scheduler's state, or the recording is damaged.
        ConfigError: the recorded configuration names plugins that are not installed.
    """
    if not run.is_playable:
        raise RecordingError(
            f"{run.segments[0].name}: begins without the state of the scheduler, "
            "and what was before it was "
            "deleted to stay within the limit, so its decisions cannot be played"
        )
    try:
        with quiet_logs():  # already logged by the recorded scheduler
            return run_virtual(
                lambda loop: _Player(run, loop, registry, before_attempt, shadows).play()
            )
    except ExceptionGroup as error:
        raise without_groups(error) from None


class _Log:
    """The entries, with lookahead."""

    def __init__(self, entries: Iterator[AnyEntry]) -> None:
        self._entries = entries
        self._next = next(entries, None)
        self.count = 0

    def peek(self) -> AnyEntry | None:
        return self._next

    def take(self) -> AnyEntry | None:
        entry, self._next = self._next, next(self._entries, None)
        self.count += 1
        return entry


class _Player:
    """Plays one run, and acts as the scheduler's `FlightRecorder`."""

    def __init__(
        self,
        run: Run,
        loop: VirtualLoop,
        registry: Registry | None,
        before_attempt: BeforeAttempt | None = None,
        shadows: Sequence[KubeSchedulerProfile] = (),
    ) -> None:
        self._before_attempt = before_attempt
        header = run.segments[0].header
        self._loop = loop
        self._header = header
        self._log = _Log(run.entries())
        self._objects = Objects(run.segments[0].name)
        self._gates = Gates()
        self._timers: list[Callable[[], None]] = []
        self._attempts = 0
        self._decisions = 0
        self.clock = LatchedClock(header.time, self._wall)
        gates = header.gates()
        config = load(msgspec.json.encode(header.config), gates=gates)
        if shadows:
            live = (profile for profile in config.profiles if profile.shadow is None)
            config = replace(config, profiles=(*live, *shadows))
        self._informers = InformerFactory(cast("Any", None), clock=self.clock, random=Random(0))
        self._assembly = self._assemble(config, gates, registry)
        connect(self._informers, self._assembly)
        self._scheduler = self._assembly.scheduler

    def _assemble(
        self, config: KubeSchedulerConfiguration, gates: FeatureGates, registry: Registry | None
    ) -> Assembly:
        if registry is None:
            registry = installed_registry()
        ask_for_informers(self._informers, enabled_plugins(config, registry), gates)
        no_events = NoEvents()
        return assemble(
            config,
            gates,
            registry,
            Dependencies(
                listers=self._informers,
                client=PretendingClient(),  # call results come from the log
                recorder=lambda _profile: no_events,
                clock=self.clock,
                random=Random(self._header.seed),
                jitter=_ShortestPauses(),
                call_later=self._call_later,
                metrics=SchedulerMetrics(MetricsRegistry()),
                measures_plugins=False,
                extenders=self._extenders,
                flight=self,
                plugin_client=PlayedCalls(self._gates),
            ),
            classes=self._header.classes,
            max_in_unschedulable_s=self._header.max_in_unschedulable_s,
        )

    def _extenders(
        self, configured: Sequence[ExtenderConfig], table: NodeTable
    ) -> Sequence[Extender]:
        made = make_extenders(configured, cast("Any", None), table, no_network())
        return [cast("Extender", PlayedExtender(extender, self._gates)) for extender in made]

    # -- the log -----------------------------------------------------------------------------------

    async def play(self) -> Played:
        difference = ""
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    await self._play(group)
                finally:
                    self._gates.is_over = True
                    self._loop.call_soon(
                        self._gates.close
                    )  # after the group has cancelled its tasks
                raise _Finished
        except* (_Finished, _BrokenOff):
            pass
        except* Difference as found:
            difference = str(found.exceptions[0])
            if self._header.made_by != __version__:
                difference += f" (recorded by kubesched {self._header.made_by})"
        return Played(self._attempts, self._decisions, difference)

    async def _play(self, group: asyncio.TaskGroup) -> None:
        while (entry := self._log.take()) is not None:
            if not self._skip_time(entry.time):
                await asyncio.sleep(entry.time - self._header.time - self._loop.time())
            self.clock.time = entry.time
            if isinstance(entry, SchedulingEnded):
                return
            self._apply(entry, group)
            # Run everything that needs no further input.
            if not self._loop.is_idle:
                while True:
                    await asyncio.sleep(0)
                    if self._loop.is_idle:
                        break
                self._loop.begin_instant()

    def _skip_time(self, time: float) -> bool:
        """Advance to that time without running a task; False if a sleeping task wakes up before."""
        loop, until = self._loop, time - self._header.time
        passed = until - loop.time()
        if passed <= 0:
            return True
        next_at = loop.next_timer_at
        if next_at is not None and next_at <= until:
            return False
        loop.stall(passed)
        return True

    def _apply(self, entry: AnyEntry, group: asyncio.TaskGroup) -> None:
        match entry:
            case Changed():
                self._change(entry)
            case Attempt():
                self._attempt(entry, group)
            case Reached():
                self._gates.open(entry.point, entry.uid, entry)
            case CallDone():
                self._gates.open(entry.verb, entry.key, entry)
            case TimerFired():
                self._timers[entry.number - 1]()
            case QueueFlushed():
                self._scheduler.queue.run_timers()
            case SchedulingBegan():
                self._begin(group)
            case Decision():
                raise Difference(
                    self._at(entry, f"{entry.pod} was decided there, but not when played")
                )
            case Checkpointed():
                self._scheduler.checkpoints.begin_anew(entry.seed)
            case Stored():
                self._objects.store(entry)
            case SavedScheduler():
                self._restore(entry, group)
            case CheckpointEnd() | SchedulingEnded():
                pass

    def _begin(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._scheduler.status_writer.run())
        group.create_task(self._scheduler.background.run())

    def _restore(self, entry: SavedScheduler, group: asyncio.TaskGroup) -> None:
        """Restore a checkpoint: the stores, without calling handlers, then the scheduler."""
        frameworks = self._assembly.frameworks
        groups = next(iter(frameworks.values())).handle.groups
        for obj in self._objects:
            self._informers.informer(type(obj)).store.put(key_of(obj.metadata), obj)
            if isinstance(obj, Namespace):
                self._assembly.handlers.namespace_changed(obj)
            elif groups is not None and isinstance(obj, PodGroup | CompositePodGroup):
                groups.put(obj)
            elif groups is not None and isinstance(obj, Pod) and _waits(obj, frameworks):
                groups.pod_waits(obj)
        self._timers = [_no_longer] * entry.timers
        self._scheduler.checkpoints.restore(entry.state)
        self._begin(group)

    def _change(self, entry: Changed) -> None:
        obj = self._objects.change(entry)
        informer = self._informers.informer(type(obj))
        if entry.op == "t":
            informer.note_missing(entry.key)
        else:
            kind = {"a": "ADDED", "u": "MODIFIED", "d": "DELETED"}[entry.op]
            informer.apply(WatchEvent(cast("Any", kind), obj))

    def _attempt(self, entry: Attempt, group: asyncio.TaskGroup) -> None:
        before = self._before_attempt
        if before is not None and before(entry.number, self._assembly):
            raise _Finished
        self._expected = entry
        self._attempts += 1
        outcome = self._scheduler.attempt()
        if isinstance(outcome, QueueEmpty):
            raise Difference(
                self._at(entry, f"{entry.pod} was taken off the queue, which is empty when played")
            )
        if isinstance(outcome, Assumed | AssumedGroup):
            self._bind(outcome, group)
        elif isinstance(outcome, Suspended):
            group.create_task(self._conclude(outcome, group))

    async def _conclude(self, suspended: Suspended, group: asyncio.TaskGroup) -> None:
        with self._scheduler.event_gate.hold():
            outcome = await suspended.outcome
        if isinstance(outcome, Assumed | AssumedGroup):
            self._bind(outcome, group)

    def _bind(self, outcome: Assumed | AssumedGroup, group: asyncio.TaskGroup) -> None:
        for assumed in [outcome] if isinstance(outcome, Assumed) else outcome.members:
            self._scheduler.start_binding(group, assumed)

    # -- as the scheduler's recorder ---------------------------------------------------------------

    def tick(self) -> None:
        """No-op: the log sets the time."""

    def attempt(self, info: QueuedPodInfo) -> None:
        if info.pod_info.uid != self._expected.uid:
            raise Difference(
                self._at(
                    self._expected,
                    f"{self._expected.pod} was taken off the queue; "
                    f"played, it is {info.pod_info.key}",
                )
            )

    def decided(self, info: QueuedPodInfo, node_name: str, status: Status | None) -> None:
        if self._gates.is_over:
            return
        logged = self._log.peek()
        if logged is None:
            raise _BrokenOff("the process ended between attempt and decision")
        pod = info.pod_info
        if not isinstance(logged, Decision) or logged.uid != pod.uid:
            raise Difference(
                self._at(self._expected, f"{pod.key} is decided when played, but was not then")
            )
        self._log.take()
        self.clock.time = logged.time
        self._decisions += 1
        code = "" if status is None else status.code.upstream_name
        digest = "" if status is None else digest_of(status)
        if (logged.node, logged.code, logged.digest) != (node_name, code, digest):
            then = (
                f"node {logged.node}" if logged.node else f"{logged.code} (digest {logged.digest})"
            )
            now = f"node {node_name}"
            if status is not None:
                now = f"{code} (digest {digest}): {status.message}"
            raise Difference(self._at(logged, f"{pod.key}: logged {then}; played {now}"))

    def flushed(self) -> None:
        """No-op: the log triggers flushes."""

    async def reach(self, point: str, uid: str, status: Status | None = None) -> Status | None:
        if point in TASKS:
            actor.set(uid)
        if self._gates.is_over or (point == PRE_BIND_BEGINS and not self._header.is_playable):
            return status  # the second; recordings of format 1 lack this point
        entry = self._next_is(point, uid) or await self._gates.wait(point, uid)
        if entry.outcome is None:
            return None
        if status is not None and outcome_of(status) == entry.outcome:
            return status
        return _status(entry.outcome, self._expected.pod)

    def passed(self, point: str, uid: str) -> None:
        raise AssertionError("the clients of a replay do not bind without a task")

    def _next_is(self, point: str, uid: str) -> Reached | None:
        """Take the next record if it matches, which avoids suspending and waking the task."""
        entry = self._log.peek()
        if not isinstance(entry, Reached) or entry.uid != uid or entry.point != point:
            return None
        if not self._skip_time(entry.time):
            return None
        self.clock.time = entry.time
        self._log.take()
        return entry

    wants_checkpoint = False

    def checkpoint(self, state: SchedulerState) -> None:
        """No-op: the log triggers checkpoints."""

    def began(self) -> None:
        """No-op."""

    def ended(self) -> None:
        """No-op."""

    def _call_later(self, _delay: float, callback: Callable[[], None]) -> _PlayedTimer:
        timer = _PlayedTimer(callback)
        self._timers.append(timer.fire)
        return timer

    def _wall(self) -> float:
        return self._header.wall_time + (self.clock.time - self._header.time)

    def _at(self, entry: Attempt | Decision, text: str) -> str:
        when = format_time(self._header.wall_time + (entry.time - self._header.time))
        return f"attempt {entry.number} at {when}, record {self._log.count}: {text}"


class _ShortestPauses(Random):
    """Makes retry pauses minimal, so that tasks wait for their record in the log."""

    def random(self) -> float:
        return 0.0


class _Finished(Exception):
    """Ends the task group of a played run."""


class _BrokenOff(Difference):
    """The log ends within an attempt, so the decision cannot be compared."""


class _PlayedTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def fire(self) -> None:
        self._callback()

    def cancel(self) -> None:
        """No-op: cancelled timers are not in the log."""


def _waits(pod: Pod, profiles: Container[str]) -> bool:
    return not pod.spec.node_name and pod.spec.scheduler_name in profiles


def _no_longer() -> None:
    """A timer that ended before the checkpoint."""


class _RecordedFitError(FitError):
    """A rejection after the node was chosen, with the details in the log."""

    def __init__(self, pod_key: str, diagnosis: Diagnosis, text: str) -> None:
        super().__init__(pod_key, 1, diagnosis)
        self._text = text

    def __str__(self) -> str:
        return self._text


def _status(outcome: list[str], pod_key: str) -> Status:
    code, plugin, message, is_fit, unschedulable, pending = outcome
    error: Exception = StatusError(message)
    if is_fit:
        diagnosis = Diagnosis(
            unschedulable_plugins=set(filter(None, unschedulable.split(","))),
            pending_plugins=set(filter(None, pending.split(","))),
        )
        error = _RecordedFitError(pod_key, diagnosis, message)
    return Status(_CODES[code], error=error, plugin=plugin)
