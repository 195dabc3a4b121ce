"""Playing a recording: the scheduler is given the logged inputs again, and its decisions are compared with the logged ones.

The production scheduler runs in virtual time over informers that the log feeds. Each record is one input: it is applied,
then everything that follows from it happens, then the next. Tasks that were beside the loop (bindings, evictions) run as
well, but wait where `scheduler.flight` says until the log says that they went on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, cast

import msgspec

from kubesched import errors
from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.meta import Record
from kubesched.api.names import key_of, object_key
from kubesched.api.times import format_time
from kubesched.api.watch import WatchEvent
from kubesched.app.watching import ask_for_informers, connect
from kubesched.config.features import FeatureGates, from_map
from kubesched.config.load import load
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.errors import ApiError, KubeschedError, NotFound, TransportError, without_groups
from kubesched.framework.diagnosis import Diagnosis, FitError
from kubesched.framework.extenders import Extender, ExtenderFilterResult, Victims
from kubesched.framework.profile import enabled_plugins
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.status import Code, Status, StatusError
from kubesched.informers.factory import InformerFactory
from kubesched.metrics.registry import MetricsRegistry
from kubesched.metrics.scheduler import SchedulerMetrics
from kubesched.plugins.registry import in_tree_registry
from kubesched.recording.reader import Objects, Run
from kubesched.recording.recorded_dependencies import object_name
from kubesched.recording.recorder import TASKS, LatchedClock, actor, digest_of, outcome_of
from kubesched.recording.records import (
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
from kubesched.recording.segments import RecordingError
from kubesched.scheduler.checkpoint import SchedulerState
from kubesched.scheduler.factory import Assembly, Dependencies, assemble
from kubesched.scheduler.flight import PRE_BIND_BEGINS, in_call
from kubesched.scheduler.http_extender import ExtenderError, make_extenders
from kubesched.scheduler.scheduler import QueueEmpty, Suspended
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.simulation.run import quiet_logs
from kubesched.simulation.virtual_loop import VirtualLoop, run_virtual
from kubesched.snapshot.node_table import NodeTable
from kubesched.state.memory import NoEvents

R = TypeVar("R", bound=Record)

_ENDED = "the recording has ended"
_CODES = {code.upstream_name: code for code in Code}


@dataclass(frozen=True, slots=True)
class Played:
    """What playing a run came to."""

    attempts: int
    decisions: int
    difference: str
    """The first decision that came out differently, explained; empty if none did."""


class Difference(KubeschedError):
    """A played run leaves the logged one; the text says where and how."""


BeforeAttempt = Callable[[int, Assembly], bool]
"""(number of the attempt, the scheduler as it is then) -> whether to stop there."""


def play(
    run: Run,
    registry: Registry | None = None,
    *,
    before_attempt: BeforeAttempt | None = None,
) -> Played:
    """Play a run from its first segment to its end, or to the first difference.

    `before_attempt` may look at the scheduler, which it must leave as it was, and end the play.

    Raises:
        RecordingError: its first segment does not hold the state of the scheduler, or the recording is damaged.
        ConfigError: the recorded configuration names plugins that are not installed.
    """
    if not run.is_playable:
        raise RecordingError(
            f"{run.segments[0].name}: begins without the state of the scheduler, and what was before it was "
            "deleted to stay within the limit, so its decisions cannot be played"
        )
    try:
        with quiet_logs():  # what was worth a line was logged then
            return run_virtual(lambda loop: _Player(run, loop, registry, before_attempt).play())
    except ExceptionGroup as error:
        raise without_groups(error) from None


class _Log:
    """The entries, of which the next can be looked at."""

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


class _Gates:
    """Tasks that wait for their place in the log, and places that wait for their task, by name and in order."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], deque[asyncio.Future[Any]]] = {}
        self._opened: dict[tuple[str, str], deque[Any]] = {}
        self.is_over = False
        """The log has ended: tasks are being called off, and none may wait any more."""

    def close(self) -> None:
        """Release what waits although its task was called off: writes of claims are not given up half way."""
        for waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(KubeschedError(_ENDED))

    async def wait(self, kind: str, name: str) -> Any:  # noqa: ANN401  # a record
        if self.is_over:
            raise KubeschedError(_ENDED)
        opened = self._opened.get((kind, name))
        if opened:
            return opened.popleft()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((kind, name), deque()).append(future)
        return await future

    def open(self, kind: str, name: str, entry: object) -> None:
        waiting = self._waiting.get((kind, name))
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(entry)
                return
        self._opened.setdefault((kind, name), deque()).append(entry)


class _Player:
    """One run being played. Also the scheduler's `FlightRecorder` meanwhile."""

    def __init__(
        self,
        run: Run,
        loop: VirtualLoop,
        registry: Registry | None,
        before_attempt: BeforeAttempt | None = None,
    ) -> None:
        self._before_attempt = before_attempt
        header = run.segments[0].header
        self._run = run
        self._loop = loop
        self._header = header
        self._log = _Log(run.entries())
        self._objects = Objects(run.segments[0].name)
        self._gates = _Gates()
        self._timers: list[Callable[[], None]] = []
        self._attempts = 0
        self._decisions = 0
        self.clock = LatchedClock(header.time, self._wall)
        gates: FeatureGates = from_map(header.feature_gates)
        config = load(msgspec.json.encode(header.config), gates=gates)
        self._informers = InformerFactory(cast("Any", None), clock=self.clock, random=Random(0))
        self._assembly = self._assemble(config, gates, registry)
        connect(self._informers, self._assembly)
        self._scheduler = self._assembly.scheduler

    def _assemble(
        self, config: KubeSchedulerConfiguration, gates: FeatureGates, registry: Registry | None
    ) -> Assembly:
        if registry is None:
            registry = in_tree_registry()
            registry.add_installed()
        ask_for_informers(self._informers, enabled_plugins(config, registry), gates)
        no_events = NoEvents()
        return assemble(
            config,
            gates,
            registry,
            Dependencies(
                listers=self._informers,
                client=_AcceptingCalls(),
                recorder=lambda _profile: no_events,
                clock=self.clock,
                random=Random(self._header.seed),
                jitter=_ShortestPauses(),
                call_later=self._call_later,
                metrics=SchedulerMetrics(MetricsRegistry()),
                measures_plugins=False,
                extenders=self._extenders,
                flight=self,
                plugin_client=_PlayedCalls(self._gates),
            ),
            classes=self._header.classes,
            max_in_unschedulable_s=self._header.max_in_unschedulable_s,
        )

    def _extenders(
        self, configured: Sequence[ExtenderConfig], table: NodeTable
    ) -> Sequence[Extender]:
        made = make_extenders(configured, cast("Any", None), table, _no_network())
        return [cast("Extender", _PlayedExtender(extender, self._gates)) for extender in made]

    # -- the log ---------------------------------------------------------------------------------------------------

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
                    )  # after the group has called its tasks off
                raise _Finished
        except* _Finished:
            pass
        except* Difference as found:
            difference = str(found.exceptions[0])
        return Played(self._attempts, self._decisions, difference)

    async def _play(self, group: asyncio.TaskGroup) -> None:
        ready: deque[object] = self._loop._ready  # type: ignore[attr-defined]  # asyncio's own queue
        while (entry := self._log.take()) is not None:
            if not self._skip_time(entry.time):
                await asyncio.sleep(entry.time - self._header.time - self._loop.time())
            self.clock.time = entry.time
            if isinstance(entry, SchedulingEnded):
                return
            self._apply(entry, group)
            # Let everything happen that can without another input.
            if ready:
                while True:
                    await asyncio.sleep(0)
                    if not ready:
                        break
                self._loop.begin_instant()

    def _skip_time(self, time: float) -> bool:
        """Go on to that time without running a task; False if one sleeps that wakes up before."""
        loop, until = self._loop, time - self._header.time
        passed = until - loop.time()
        if passed <= 0:
            return True
        timers: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]  # asyncio's own heap
        if timers and timers[0].when() <= until:
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
        """Go on from a checkpoint: fill the stores without telling handlers, then the scheduler itself."""
        for obj in self._objects:
            self._informers.informer(type(obj)).store.put(key_of(obj.metadata), obj)
            if isinstance(obj, Namespace):
                self._assembly.handlers.namespace_changed(obj)
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
        if isinstance(outcome, Assumed):
            self._scheduler.start_binding(group, outcome)
        elif isinstance(outcome, Suspended):
            group.create_task(self._conclude(outcome, group))

    async def _conclude(self, suspended: Suspended, group: asyncio.TaskGroup) -> None:
        with self._scheduler.event_gate.hold():
            outcome = await suspended.outcome
        if isinstance(outcome, Assumed):
            self._scheduler.start_binding(group, outcome)

    # -- as the scheduler's recorder -------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time is the log's."""

    def attempt(self, info: QueuedPodInfo) -> None:
        if info.pod_info.uid != self._expected.uid:
            raise Difference(
                self._at(
                    self._expected,
                    f"{self._expected.pod} was taken off the queue; played, it is {info.pod_info.key}",
                )
            )

    def decided(self, info: QueuedPodInfo, node_name: str, status: Status | None) -> None:
        if self._gates.is_over:
            return
        logged = self._log.peek()
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
        """The log says when."""

    async def reach(self, point: str, uid: str, status: Status | None = None) -> Status | None:
        if point in TASKS:
            actor.set(uid)
        if self._gates.is_over or (point == PRE_BIND_BEGINS and not self._header.is_playable):
            return status  # the second: recordings of format 1 do not have this point
        entry = self._next_is(point, uid) or await self._gates.wait(point, uid)
        if entry.outcome is None:
            return None
        if status is not None and outcome_of(status) == entry.outcome:
            return status
        return _status(entry.outcome, self._expected.pod)

    def _next_is(self, point: str, uid: str) -> Reached | None:
        """Take the next record if it is this one, so that the task need not be suspended and woken."""
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
        """The log says when."""

    def began(self) -> None:
        """The log says when."""

    def ended(self) -> None:
        """The log says when."""

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
    """Tasks that pause between retries wake up before the log says that they went on, and wait for that."""

    def random(self) -> float:
        return 0.0


class _Finished(Exception):
    """Ends the group of a run that was played."""


class _PlayedTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def fire(self) -> None:
        self._callback()

    def cancel(self) -> None:
        """A timer that was called off is not in the log."""


def _no_longer() -> None:
    """A timer that ended before the checkpoint."""


class _RecordedFitError(FitError):
    """A rejection after the node was chosen, as far as the log tells."""

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


def _raised(error: list[str]) -> Exception:
    """The exception that a call raised, as far as callers look at it."""
    name, message, *rest = error
    known = getattr(errors, name, None)
    if isinstance(known, type) and issubclass(known, ApiError):
        code, reason = rest
        return known(message, code=int(code), reason=reason)
    if isinstance(known, type) and issubclass(known, TransportError):
        return known(message)
    return ExtenderError(message) if name == "ExtenderError" else KubeschedError(message)


class _AcceptingCalls:
    """The client of everything whose outcome the log tells elsewhere, or that no decision depends on."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        """How it went is in the log as the end of the binding."""

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Conditions come back as informer events."""

    async def delete_pod(self, pod: Pod) -> None:
        """Only plugins delete."""

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        raise NotFound(f'{kind.__name__} "{name}" is not in the log')

    async def create(self, obj: R) -> R:
        return obj

    async def update(self, obj: R) -> R:
        return obj

    async def update_status(self, obj: R) -> R:
        return obj

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        raise NotFound(f'{kind.__name__} "{name}" is not in the log')

    async def delete(self, obj: Record) -> None:
        """Only plugins delete."""


class _PlayedCalls(_AcceptingCalls):
    """The plugins' client: calls return when, and with what, the log says."""

    def __init__(self, gates: _Gates) -> None:
        self._gates = gates

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await _answer(self._gates, "patch", key_of(pod.metadata))

    async def delete_pod(self, pod: Pod) -> None:
        await _answer(self._gates, "delete", key_of(pod.metadata))

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        key = f"{kind.__name__}/{object_key(namespace, name)}"
        return msgspec.convert(await _answer(self._gates, "get", key), kind)

    async def create(self, obj: R) -> R:
        return await self._written("create", obj)

    async def update(self, obj: R) -> R:
        return await self._written("update", obj)

    async def update_status(self, obj: R) -> R:
        return await self._written("update status", obj)

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        key = f"{kind.__name__}/{object_key(namespace, name)}"
        return msgspec.convert(await _answer(self._gates, "patch status", key), kind)

    async def delete(self, obj: Record) -> None:
        await _answer(self._gates, "delete object", object_name(obj))

    async def _written(self, verb: str, obj: R) -> R:
        return msgspec.convert(await _answer(self._gates, verb, object_name(obj)), type(obj))


async def _answer(gates: _Gates, verb: str, key: str) -> Any:  # noqa: ANN401  # as logged
    token = in_call.set(True)
    try:
        entry: CallDone = await gates.wait(verb, f"{actor.get()} {key}")
    finally:
        in_call.reset(token)
    if entry.error is not None:
        raise _raised(entry.error)
    return entry.result


class _PlayedExtender:
    """An extender that answers what it answered then."""

    def __init__(self, extender: Extender, gates: _Gates) -> None:
        self._extender = extender
        self._gates = gates

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # what the configuration says of it
        return getattr(self._extender, name)

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderFilterResult:
        return msgspec.convert(await self._asked("filter", pod), ExtenderFilterResult)

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        return [(name, int(points)) for name, points in await self._asked("prioritize", pod)]

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        return msgspec.convert(await self._asked("preempt", pod), dict[str, Victims])

    async def bind(self, pod: Pod, node_name: str) -> None:
        """How it went is in the log as the end of the binding."""

    async def _asked(self, verb: str, pod: Pod) -> Any:  # noqa: ANN401  # as logged
        return await _answer(self._gates, verb, f"{self._extender.name} {key_of(pod.metadata)}")


def _no_network() -> Any:  # noqa: ANN401  # stands where a transport would
    class NoNetwork:
        async def aclose(self) -> None:
            """Nothing is open."""

    return NoNetwork()
