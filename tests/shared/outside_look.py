"""What simulated schedulers tell the API server, compared with what they decided.

The second look compares decisions, not their consequences: conditions, nominations, events,
evictions. Here every outcome is noted where it is handed over (a failed attempt, victims to be
evicted), and when all is quiet the API server has to show it. Since a write may be lost while
faults strike, only what was handed over after the last fault is demanded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from kubesched.api.core_v1 import Pod
from kubesched.client.transport import Request
from kubesched.framework.diagnosis import Failed
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.preemption.executor import Executor, OnBehalfOf
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.state.virtual_loop import OWNER, SENDER
from kubesched.lab.simulation.census import Census
from kubesched.lab.simulation.cluster import FINISHED
from kubesched.lab.simulation.devices import CLAIMS
from kubesched.lab.simulation.faults import CallFault
from kubesched.lab.simulation.processes import Processes
from kubesched.lab.simulation.workloads import resource_claim_names
from kubesched.lab.simulation.world import World
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change
from kubesched.scheduler.failure import FailureHandler
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.scheduler import Scheduler

CONDITIONS = "the condition of a pod is that of its last attempt"
NOMINATIONS = "the nomination of a pod is that of its last attempt"
EVENTS = "what is decided has an event"
EVICTIONS = "victims are told, and gone"
HELD = "a nomination holds at once"
QUEUED = "the queue knows the newest version of a pod"
TRIED = "a pod that nothing keeps back is tried"
GAUGES = "gauges say what there is"
PROMISES = (CONDITIONS, NOMINATIONS, EVENTS, EVICTIONS, HELD, QUEUED, TRIED, GAUGES)

EVENTS_RESOURCE = "events"
FAULTS = ("calls", "watches", "processes", "time")
"""Kinds of faults after which a write may be missing or late."""
SOON_S = 2.0
"""What was decided so shortly before all is quiet need not have been written."""
EVENT_S = 12.0
"""Events wait for what is more urgent."""
MANY_PODS = 100
"""With more of them, writes wait for the client's rate limit."""
NOTE_BYTES = 1024


@dataclass
class _Attempt:
    """A failed attempt."""

    at: float
    process: str
    reason: str
    message: str
    nomination: NominatingInfo
    is_behind: bool
    """The watch did not show the pod's newest version, to which a patch is the difference."""


@dataclass
class _Eviction:
    """Victims that a scheduler began to evict."""

    at: float
    preemptor: str
    kind: str
    node_name: str
    victims: list[str]
    """UIDs of those that were not terminating."""
    outranked: list[str]
    """UIDs of pods nominated to the node that the preemptor takes it from."""


@dataclass
class _Outside:
    """What was decided in one world, and what its API server shows."""

    world: World
    last_fault: float = 0.0
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    """The last failed one of each pod, by UID."""
    messages: set[str] = field(default_factory=set)
    """Of all failed attempts: pods of a class share them, and a patch holds what changes only."""
    evictions: list[_Eviction] = field(default_factory=list)
    bound: dict[str, tuple[float, str]] = field(default_factory=dict)
    """When each pod was bound by a scheduler, and where."""
    tried: set[str] = field(default_factory=set)
    """UIDs of pods whose attempt has failed."""

    def __post_init__(self) -> None:
        self.world.cluster.store.subscribe("pods", self._on_pod)

    @property
    def now(self) -> float:
        return self.world._loop.time()

    def _complain(self, promise: str, detail: str) -> None:
        self.world.complaints.add(promise, detail)

    # -- what is decided ---------------------------------------------------------------------------

    def failed(self, info: QueuedPodInfo, failed: Failed) -> None:
        if self.world.checkers.history_is_broken:
            self.last_fault = self.now  # it may have been said in the history that is gone
        status, process = failed.status, OWNER.get()
        reason = "Unschedulable" if status.is_rejected else "SchedulerError"
        uid = info.pod_info.uid
        self.tried.add(uid)
        attempt = self.attempts[uid] = _Attempt(
            self.now,
            process,
            reason,
            status.message,
            failed.nomination,
            self._is_behind(process, info.pod_info.pod),
        )
        self.messages.add(status.message)
        if self._is_reachable(process) and not attempt.is_behind:
            # Without the scheduler's context, or it would count among what the scheduler holds.
            self.world._loop.call_later(SOON_S, self._check_soon, uid, attempt, context=Context())

    def _is_behind(self, process: str, pod: Pod) -> bool:
        meta = pod.metadata
        stored = self.world.cluster.find_pod(meta.name)
        known = [
            it.pods.get(meta.namespace, meta.name)
            for it in self.world.processes.alive()
            if it.name == process
        ]
        return stored is None or [stored["metadata"]["resourceVersion"]] != [
            it and it.metadata.resource_version for it in known
        ]

    def evicts(self, candidate: Candidate, preemptor: OnBehalfOf) -> None:
        victims = {pod.metadata.uid for pod in candidate.victims.pods}
        stored = self.world.cluster.pods()
        leaving = {_uid(pod) for pod in stored if "deletionTimestamp" in pod["metadata"]}
        outranked = [
            _uid(pod)
            for pod in stored
            if _nominated(pod) == candidate.node_name
            and pod["spec"].get("priority", 0) < preemptor.priority
            and not pod["spec"].get("nodeName")
            and _uid(pod) not in {it.metadata.uid for it in preemptor.pods}
        ]
        self.evictions.append(
            _Eviction(
                self.now,
                preemptor.uid,
                preemptor.kind,
                candidate.node_name,
                sorted((victims & {_uid(pod) for pod in stored}) - leaving),
                outranked,
            )
        )

    # -- every commit ------------------------------------------------------------------------------

    def _on_pod(self, change: Change) -> None:
        pod, process = change.entry.obj, SENDER.get()
        if not process or change.old is None:
            return
        old = change.old.obj
        if pod["spec"].get("nodeName") and not old["spec"].get("nodeName"):
            self.bound[_uid(pod)] = self.now, pod["spec"]["nodeName"]
        told, before = _condition(pod, "PodScheduled"), _condition(old, "PodScheduled")
        is_new = told.get("status") == "False" and told != before
        if is_new and told.get("message", "") not in self.messages:
            self._complain(CONDITIONS, f"{_name(pod)} is told {told} by {process}")
        is_leaving = change.type == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if is_leaving and "deletionTimestamp" not in old["metadata"]:
            target = _condition(pod, "DisruptionTarget")
            if (target.get("status"), target.get("reason")) != ("True", "PreemptionByScheduler"):
                self._complain(EVICTIONS, f"{_name(pod)} is deleted by {process}: {target}")

    # -- when all is quiet -------------------------------------------------------------------------

    def _is_due(self, at: float, within_s: float) -> bool:
        return self.last_fault < at < self.now - within_s

    def check(self) -> None:
        by_uid = {_uid(pod): pod for pod in self.world.cluster.pods()}
        events = defaultdict[str, list[JsonObject]](list)
        for event in self.world.cluster.api.list(EVENTS_RESOURCE)[0]:
            events[event["involvedObject"].get("uid", "")].append(event)
        for uid, attempt in self.attempts.items():
            if uid not in by_uid or not self._is_reachable(attempt.process):
                continue
            if self._is_due(attempt.at, EVENT_S):
                self._check_failure_events(uid, attempt, events[uid])
            is_waiting = not (by_uid[uid]["spec"].get("nodeName") or attempt.is_behind)
            if is_waiting and self._is_due(attempt.at, SOON_S):
                self._check_waiting(by_uid[uid], attempt)
        for uid, (at, node_name) in self.bound.items():
            if self._is_due(at, EVENT_S) and uid in by_uid:
                note = f"Successfully assigned {_name(by_uid[uid])} to {node_name}"
                self._demand_event(events[uid], "Scheduled", "Normal", note)
        for eviction in self.evictions:
            if self._is_due(eviction.at, EVENT_S):
                self._check_eviction(eviction, by_uid, events)
        for pod in by_uid.values():
            if self._is_kept_back_by_nothing(pod) and _uid(pod) not in self.tried:
                self._complain(TRIED, f"{_name(pod)} has no attempt")
        for it in self.world.processes.alive():
            if it.process.is_scheduling:
                self._check_gauges(it.process.assembly.scheduler)
                self._check_versions(it.process.assembly.scheduler, by_uid)

    def _is_kept_back_by_nothing(self, pod: JsonObject) -> bool:
        """Groups are left out: they may wait for each other, and for members."""
        spec, claims = pod["spec"], resource_claim_names(pod)
        known = {
            claim["metadata"]["name"]
            for claim in (self.world.cluster.api.list(CLAIMS)[0] if claims else ())
            if "deletionTimestamp" not in claim["metadata"]
        }
        return not (
            spec.get("nodeName")
            or spec.get("schedulingGates")
            or spec.get("schedulingGroup")
            or "deletionTimestamp" in pod["metadata"]
            or (pod.get("status") or {}).get("phase") in FINISHED
            or len(claims) < len(spec.get("resourceClaims") or ())
            or not known.issuperset(claims)
        )

    def _check_versions(self, scheduler: Scheduler, by_uid: dict[str, JsonObject]) -> None:
        for entry in scheduler.queue.entries():
            known = entry.info.pod_info.pod.metadata
            stored = by_uid.get(known.uid, {"metadata": {}})["metadata"]
            TALLY[QUEUED] += 1
            if known.resource_version != stored.get("resourceVersion"):
                self._complain(QUEUED, f"{known.name}: {known.resource_version}, not {stored}")

    def check_held(self, queue: SchedulingQueue, info: QueuedPodInfo, failed: Failed) -> None:
        """Right after an attempt: the next one must leave the room."""
        pod = info.pod_info
        waiting = queue.get_pod(pod.namespace, pod.name)
        if failed.nomination.override and waiting is not None and waiting.pod_info.uid == pod.uid:
            held = queue.nominator.node_of(pod.uid)
            TALLY[HELD] += 1
            if held != failed.nomination.node_name:
                self._complain(HELD, f"{pod.key}: {held!r}, after {failed.nomination}")

    def _check_gauges(self, scheduler: Scheduler) -> None:
        metrics, queue = scheduler.metrics, scheduler.queue
        TALLY[GAUGES] += 1
        for labels, running in metrics.goroutines._cells.items():
            if running.current():
                self._complain(GAUGES, f"{running.current()} goroutines of {labels}")
        if isinstance(queue, GroupSchedulingQueue) or not queue._forgets_rejectors:
            return  # upstream never counts some of them down again
        waiting = Counter(
            (plugin, info.pod_info.pod.spec.scheduler_name)
            for place in (queue._active, queue._backoff, queue._pool)
            for info in place
            for plugin in info.rejector_plugins
        )
        cells = metrics.unschedulable_pods._cells.items()
        told = {labels: cell.current() for labels, cell in cells if cell.current()}
        if told != waiting:
            self._complain(GAUGES, f"unschedulable_pods {told}, waiting are {dict(waiting)}")

    def _check_soon(self, uid: str, attempt: _Attempt) -> None:
        """Nominations are short-lived: most are gone when all is quiet."""
        pods = {_uid(pod): pod for pod in self.world.cluster.pods()}
        if (
            uid in pods
            and not pods[uid]["spec"].get("nodeName")
            and self.attempts.get(uid) is attempt
            and self.last_fault < attempt.at
            and self._is_reachable(attempt.process)
            and len(pods) <= MANY_PODS
            and not self._is_under_way(pods[uid])
        ):
            self._check_waiting(pods[uid], attempt)

    def _check_waiting(self, pod: JsonObject, attempt: _Attempt) -> None:
        told = _condition(pod, "PodScheduled")
        TALLY[CONDITIONS] += 1
        said = told.get("status"), told.get("reason"), told.get("message", "")
        if said != ("False", attempt.reason, attempt.message):
            self._complain(CONDITIONS, f"{_name(pod)}: {said}, after {attempt}")
        if attempt.nomination.override:
            TALLY[NOMINATIONS] += 1
            taken = any(_uid(pod) in it.outranked and it.at > attempt.at for it in self.evictions)
            if _nominated(pod) != attempt.nomination.node_name and not taken:
                self._complain(NOMINATIONS, f"{_name(pod)}: {_nominated(pod)!r}, after {attempt}")

    def _check_failure_events(self, uid: str, attempt: _Attempt, events: list[JsonObject]) -> None:
        told = [it for it in events if it["reason"] == "FailedScheduling"]
        notes = {it["message"] for it in told if it["type"] == "Warning"}
        TALLY[EVENTS] += 1
        if not notes or not notes <= set(map(_shortened, self.messages)):
            self._complain(EVENTS, f"{uid}: {told} after {attempt}")

    def _demand_event(self, events: list[JsonObject], reason: str, kind: str, *notes: str) -> None:
        TALLY[EVENTS] += 1
        told = [(it["type"], it["message"]) for it in events if it["reason"] == reason]
        if not any((kind, note) in told for note in notes):
            self._complain(EVENTS, f"{reason}: {told}, not {notes}")

    def _check_eviction(
        self,
        eviction: _Eviction,
        by_uid: dict[str, JsonObject],
        events: dict[str, list[JsonObject]],
    ) -> None:
        for uid in eviction.victims:
            self._demand_event(events[uid], "Preempted", "Normal", *self._notes_about(uid))
        for uid in eviction.outranked if eviction.victims else ():
            TALLY["outranked"] += 1
            later = self.attempts.get(uid)
            was_told = later is not None and later.at >= eviction.at
            if uid in by_uid and _nominated(by_uid[uid]) == eviction.node_name and not was_told:
                self._complain(NOMINATIONS, f"{uid} is still nominated, {eviction}")

    def _notes_about(self, victim: str) -> Iterator[str]:
        """What its events may say: further evictions of a pod join the series of the first."""
        for it in self.evictions:
            if victim in it.victims:
                note = f"Preempted by {it.kind} {it.preemptor} on node {it.node_name}"
                yield from (note, f"{note} (in kube-scheduler memory).")

    def _is_reachable(self, process: str) -> bool:
        return any(
            it.name == process and it.process.is_scheduling and not it.transport.is_cut
            for it in self.world.processes.alive()
        )

    def _is_under_way(self, pod: JsonObject) -> bool:
        """Whether an older write about the pod has no answer yet, or it is being bound by now."""
        schedulers = [it.process.assembly.scheduler for it in self.world.processes.alive()]
        return any(
            it.status_writer.is_pending(_name(pod)) or it.cache.is_assumed(_uid(pod))
            for it in schedulers
        )


TALLY: Counter[str] = Counter()
"""How often something was compared when all was quiet."""


def _uid(pod: JsonObject) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def _name(pod: JsonObject) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _nominated(pod: JsonObject) -> str:
    return (pod.get("status") or {}).get("nominatedNodeName") or ""


def _condition(pod: JsonObject, kind: str) -> JsonObject:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((it for it in conditions if it["type"] == kind), {})


def _shortened(message: str) -> str:
    raw = message.encode()
    if len(raw) <= NOTE_BYTES:
        return message
    return raw[: NOTE_BYTES - 4].decode(errors="ignore") + " ..."


@contextmanager
def outside_look() -> Iterator[None]:
    """Compare what the simulations inside tell the API server."""
    current: list[_Outside] = []
    start, settle, tally = World.start, World.settle, Census.tally
    on_call = Processes._on_call
    handle, start_for, tell = FailureHandler.handle, Executor.start_for, FailureHandler._tell

    def started(world: World) -> Any:
        current[:] = [_Outside(world)]
        return start(world)

    async def settled(world: World) -> None:
        await settle(world)
        current[0].check()
        world.complaints.raise_first()

    def called(processes: Processes, name: str, request: Request) -> CallFault | None:
        fault = on_call(processes, name, request)
        if fault is not None:
            current[0].last_fault = current[0].now
        return fault

    def tallied(census: Census, where: str, what: str) -> None:
        if where in FAULTS and current:
            current[0].last_fault = current[0].now
        tally(census, where, what)

    def handled(handler: Any, framework: Any, info: Any, failed: Failed, *rest: Any, **how: Any):
        if OWNER.get():  # else it is one of the simulation's own
            current[0].failed(info, failed)
        handle(handler, framework, info, failed, *rest, **how)
        if OWNER.get():
            current[0].check_held(handler._queue, info, failed)

    def told(handler: Any, info: QueuedPodInfo, message: str) -> None:
        if OWNER.get():
            current[0].attempts.pop(info.pod_info.uid, None)
        return tell(handler, info, message)

    def evicted(executor: Any, candidate: Candidate, preemptor: OnBehalfOf) -> None:
        if executor._handle.rehearsed is None and OWNER.get():
            current[0].evicts(candidate, preemptor)
        start_for(executor, candidate, preemptor)

    with ExitStack() as patches:
        for owner, name, function in (
            (World, "start", started),
            (World, "settle", settled),
            (Census, "tally", tallied),
            (Processes, "_on_call", called),
            (FailureHandler, "handle", handled),
            (FailureHandler, "_tell", told),
            (Executor, "start_for", evicted),
        ):
            patches.enter_context(patch.object(owner, name, function))
        try:
            yield
        finally:
            current.clear()  # frozen with what refers to it, it would keep the world for good
