"""Models one trace under one configuration and seed: the production scheduler in virtual time.

Decisions take no time. A pod waits for resources and for the backoff after failed attempts, not for
the scheduler's speed. Between events the scheduler tries all possible pods; the periodic retry of
unaffected pods is off, because in months of virtual time it would be most of the work.

A recording says when its scheduler popped pods. The player pops at the same places of the log, so
that pods meet the same cluster state; where the recorded scheduler was idle, the player runs
freely. Bindings and calls of plugins return when the recorded ones did, those that were not
recorded after as long as they usually took. `log_player` plays a recording exactly as it was.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from msgspec import structs

from kubesched.api.core_v1 import Node, Pod, PodStatus
from kubesched.api.names import key_of
from kubesched.base.clock import ManualClock
from kubesched.config.defaults import without_extenders
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration, Plugin, Plugins
from kubesched.framework.pod_status import REASON_SCHEDULER_ERROR
from kubesched.framework.registry import Registry
from kubesched.insight.explain import Explainer
from kubesched.insight.explain.selection import one_node
from kubesched.insight.state.claim_controller import FINISHED, existing_claims, released
from kubesched.insight.state.collector import collector_paused
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.insight.state.replacements import pods_on
from kubesched.lab.traces.fragmentation import GpuFragmentation
from kubesched.lab.traces.gpu_share import PLUGIN, GpuLedger, gpu_share_with
from kubesched.lab.traces.measuring import Meter
from kubesched.lab.traces.outcome import Outcome
from kubesched.lab.traces.trace import (
    Arrival,
    CallReturned,
    Event,
    Flush,
    PodChange,
    Put,
    Remove,
    Trace,
    Turn,
)
from kubesched.plugins.registry import installed_registry

PAUSE_S = 5.0
"""If the next turn is further away, the recorded scheduler was idle and the replay runs freely."""
NEVER_S = 1e12
"""Longer than any trace."""
MOST_TOLD = 5
"""Pods on other nodes than recorded for which a note says why."""
SAME_CALL_S = 60.0
"""A plugin's call matches a recorded one that returned at most this much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The settings under which a trace is played."""

    name: str
    """Name of the configuration."""
    config: KubeSchedulerConfiguration
    gates: FeatureGates = DEFAULT_GATES
    seed: int = 0


def play_trace(
    trace: Trace,
    cell: Cell,
    registry: Registry | None = None,
    *,
    on_bound: Callable[[Pod], None] = lambda _pod: None,
) -> Outcome:
    """Play a trace to its end. `on_bound` is called for every pod that gets a node.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
        TraceError, PlanError: the trace contradicts itself.
    """
    with collector_paused():
        world, notes = replayed_cluster(trace, cell, registry)
        with world:
            outcome = _Player(trace, cell, world, on_bound).play()
    outcome.notes += (f"{cell.name}: {note}" for note in notes)
    return outcome


def replayed_cluster(
    trace: Trace, cell: Cell, registry: Registry | None = None
) -> tuple[ReplayedCluster, list[str]]:
    """The cluster at the beginning of a trace, and what was left out of the configuration.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    ledger = GpuLedger() if trace.shares_gpus else None
    config, notes = without_extenders(cell.config)
    if registry is None:
        registry = installed_registry()
    if ledger is not None:
        registry.register(PLUGIN, lambda: gpu_share_with(ledger))
        config = _with_plugin(config, PLUGIN)
    return ReplayedCluster(trace, replace(cell, config=config), registry, ledger), notes


def _with_plugin(config: KubeSchedulerConfiguration, name: str) -> KubeSchedulerConfiguration:
    """The configuration with a further plugin in every profile."""
    profiles = []
    for profile in config.profiles:
        plugins = profile.plugins or Plugins()
        enabled = (*plugins.multi_point.enabled, Plugin(name))
        multi_point = replace(plugins.multi_point, enabled=enabled)
        profiles.append(replace(profile, plugins=replace(plugins, multi_point=multi_point)))
    return replace(config, profiles=tuple(profiles))


def is_own(trace: Trace, cell: Cell) -> bool:
    """Whether a recording is played with its own settings."""
    own = trace.own
    return own is not None and (own.config, own.gates, own.seed) == (
        cell.config,
        cell.gates,
        cell.seed,
    )


class ReplayedCluster(PlannedCluster):
    """Keeps the device ledger, and deletes evicted pods when the recording did."""

    def __init__(
        self, trace: Trace, cell: Cell, registry: Registry, ledger: GpuLedger | None
    ) -> None:
        self.ledger = ledger
        own = trace.own
        self._is_recorded = own is not None
        self.recorded_calls = _RecordedCalls(trace, own.usual_s) if own is not None else None
        super().__init__(
            trace.state,
            cell.config,
            gates=cell.gates,
            registry=registry,
            seed=cell.seed,
            max_in_unschedulable_s=own.max_in_unschedulable_s if own is not None else NEVER_S,
            plugin_client=cast("Any", self.recorded_calls),
            clock=None if own is None else ManualClock(trace.begins_at, own.monotonic_s),
        )
        if self.recorded_calls is not None:
            self.recorded_calls.world = self
        self.began = self.clock.monotonic()
        for node in self.objects(Node):
            self._note_node(node)
        if ledger is not None:
            for pod in self.objects(Pod):
                self._take(pod)

    @property
    def now_s(self) -> float:
        return self.clock.monotonic() - self.began

    def add(self, *objects: Any) -> None:  # noqa: ANN401  # of whichever kinds
        super().add(*objects)
        for obj in objects:
            if isinstance(obj, Node):
                self._note_node(obj)
            elif isinstance(obj, Pod) and obj.spec.node_name:
                self._take(obj)

    def _note_node(self, node: Node) -> None:
        if self.ledger is not None:
            self.ledger.set_node(self.assembly.table, node)

    def _take(self, pod: Pod) -> None:
        row = self.assembly.table.row_of.get(pod.spec.node_name)
        if self.ledger is not None and row is not None:
            self.ledger.take(row, pod)

    def _drop(self, obj: Any) -> None:  # noqa: ANN401  # as above
        # Before the event: hints read what is free afterwards.
        if self.ledger is not None and isinstance(obj, Pod):
            self.ledger.give_back(obj.metadata.uid)
        super()._drop(obj)

    async def pause(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call_later(seconds, partial(_return, future))
        await future

    def pass_time(self, seconds: float) -> None:
        """Set the clock forward: calls return, but nothing is taken off the queue."""
        self.clock.advance(max(0.0, seconds))
        self._fire_timers()
        self.work()
        self.run_hooks()

    def jump_to(self, moment: float) -> None:
        super().jump_to(moment)
        self.work()  # of calls that have returned

    def status_when_bound(self, pod: Pod) -> PodStatus:
        # A recording contains the kubelets' reports.
        return pod.status if self._is_recorded else super().status_when_bound(pod)


class _RecordedCalls:
    """The plugins' client: recorded calls return at their recorded time.

    Others take as long as such calls usually took. The effects of recorded patches and deletions
    are in the recording as well.
    """

    def __init__(self, trace: Trace, usual_s: Mapping[str, float]) -> None:
        self.world: ReplayedCluster
        self.evictions = 0
        self._usual_s = usual_s
        self._to_come: dict[tuple[str, str], deque[float]] = {}
        self._waiting: dict[tuple[str, str], deque[asyncio.Future[None]]] = {}
        for event in trace.events:
            if isinstance(event, CallReturned):
                self._to_come.setdefault((event.verb, event.pod), deque()).append(event.time_s)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # calls that are not about pods
        return getattr(self.world.client, name)

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        await self._returned("bind", pod)
        await self.world.client.bind_pod(pod, node_name)

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        if not await self._returned("patch", pod):
            await self.world.client.patch_pod_status(pod, patch)

    async def delete_pod(self, pod: Pod) -> None:
        if await self._returned("delete", pod):
            self.evictions += 1
        else:
            await self.world.client.delete_pod(pod)

    async def _returned(self, verb: str, pod: Pod) -> bool:
        """Wait for the return of this call; False if it was not recorded."""
        key, now_s = (verb, key_of(pod.metadata)), self.world.now_s
        to_come = self._to_come.get(key)
        if not to_come or to_come[0] > now_s + SAME_CALL_S:
            if usual_s := self._usual_s.get(verb):
                await self.world.pause(usual_s)
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(future)
        await future
        return True

    def arrive(self, event: CallReturned) -> None:
        """The log has reached the return of a call."""
        key = (event.verb, event.pod)
        self._to_come[key].popleft()
        waiting = self._waiting.get(key)
        if waiting:
            _return(waiting.popleft())


def _return(future: asyncio.Future[None]) -> None:
    """Let a call return, unless its task was cancelled."""
    if not future.done():
        future.set_result(None)


class _Player:
    """One replay."""

    def __init__(
        self, trace: Trace, cell: Cell, world: ReplayedCluster, on_bound: Callable[[Pod], None]
    ) -> None:
        self._on_bound = on_bound
        self._trace = trace
        self._cell = cell
        self._world = world
        gpus = None
        if world.ledger is not None:
            pods = [event.pod for event in trace.arrivals]
            gpus = GpuFragmentation(pods, world.assembly.table, world.ledger)
        self._meter = Meter(world.assembly, trace.ends_s, gpus)
        self._departures: list[tuple[float, int, str, str]] = []
        """Heap of (time, number, pod's key, uid)."""
        self._number = 0
        self._lifetimes: dict[str, Arrival] = {}
        """Pod UID -> its arrival."""
        self._placed: dict[str, str] = {}
        """Pod UID -> its last node."""
        own = trace.own
        self._recorded = own.placements if own is not None and is_own(trace, cell) else {}
        """Pod UID -> the node it had in the recording, if it is modelled with its own settings."""
        self._elsewhere: list[str] = []
        """Why the first pods that went elsewhere did."""
        self._is_own_removal = False
        turns = (event.time_s for event in trace.events if isinstance(event, Turn))
        self._turns = sorted(turns, reverse=True)
        """Of recordings: times of the remaining turns, the next one last."""
        world.on_bound = self._bound
        world.on_deleted = self._deleted

    def play(self) -> Outcome:
        world, meter = self._world, self._meter
        for pod in world.objects(Pod):
            if pod.spec.node_name:
                meter.occupies(pod, 0.0)
            else:
                meter.submitted(key_of(pod.metadata), 0.0)
        for event in self._trace.events:
            while meter.next_sample_s < event.time_s:
                self._go_to(meter.next_sample_s, settle=True)
                meter.sample()
            self._go_to(event.time_s)
            self._apply(event)
        while meter.next_sample_s <= self._trace.ends_s:
            self._run_until(meter.next_sample_s)
            meter.sample()
        if world.recorded_calls is not None:
            meter.evictions += world.recorded_calls.evictions
        notes = [f"left out, as the scheduler would: {problem}" for problem in world.problems]
        notes += self._model_notes()
        notes += self._errors()
        return meter.outcome(self._cell.name, self._cell.seed, notes)

    def _errors(self) -> list[str]:
        """Pods whose last attempt ended in an error, such as an exception of a plugin."""
        failed = [
            f"{key_of(pod.metadata)}: {condition.message}"
            for pod in self._world.objects(Pod)
            for condition in pod.status.conditions or ()
            if not pod.spec.node_name and condition.reason == REASON_SCHEDULER_ERROR
        ]
        if not failed:
            return []
        return [f"{self._cell.name}: attempts of {len(failed)} pods failed, such as {failed[0]}"]

    def _model_notes(self) -> list[str]:
        """Of a recording: what the model omits, and its accuracy under the recorded settings."""
        own, cell = self._trace.own, self._cell
        if own is None:
            return []
        notes = []
        if own.left_out:
            notes.append(
                f"modelled without {own.left_out}: placements that depended on them may differ"
            )
        if not is_own(self._trace, cell):
            return notes
        logged = own.placements
        same = sum(self._placed.get(uid) == node for uid, node in logged.items())
        notes.append(
            f"{cell.name}: modelled; {same} of {len(logged)} placements are those of the recording"
        )
        notes += (f"{cell.name}: {told}" for told in self._elsewhere)
        more = len(logged) - same - len(self._elsewhere)
        if more > 0:
            notes.append(
                f"{cell.name}: {more} more pods are elsewhere or nowhere: one on another node "
                "moves those after it; -o json has the placements of both"
            )
        return notes

    def _note_elsewhere(self, pod: Pod, recorded: str) -> None:
        """Work out why a pod did not get the node that it had in the recording."""
        node, key = pod.spec.node_name, key_of(pod.metadata)
        explainer = Explainer(self._world.assembly)
        told = explainer.explain(pod, one_node(recorded), decided=node)
        row = next(iter(told.matrix), None)
        if row is None:
            why = f"{recorded} is not there"
        elif not row.feasible:
            why = "; ".join(text for failure in row.failures for text in failure.lacks)
            why = f"{recorded} lacks {why}"
        elif told.chosen is not None and told.chosen.total == row.total:
            why = "both score the same, and the lot fell differently"
        else:
            total = told.chosen.total if told.chosen is not None else None
            why = f"{recorded} scores {row.total} of {total} with the pods that are elsewhere"
        self._elsewhere.append(f"{key} went to {node}, not to {recorded}: {why}")

    # -- time --------------------------------------------------------------------------------------

    def _go_to(self, time_s: float, *, settle: bool = False) -> None:
        """Advance time.

        Events of one moment happen together; `settle` lets the scheduler react to those of this
        moment.
        """
        world = self._world
        if self._turns and not self._pauses():
            while self._departures and self._departures[0][0] <= time_s:
                self._depart()
            world.pass_time(time_s - world.now_s)
        elif settle or time_s > world.now_s:
            self._run_until(time_s)

    def _pauses(self) -> bool:
        """Whether the recorded scheduler was running and idle."""
        now_s = self._world.now_s
        while self._turns and self._turns[-1] < now_s:
            self._turns.pop()
        began = self._trace.schedules_from_s <= now_s
        return began and (not self._turns or self._turns[-1] - now_s > PAUSE_S)

    def _run_until(self, time_s: float) -> None:
        """Run the scheduler and end pods whose time has come, including this moment."""
        world = self._world
        while self._departures and self._departures[0][0] <= time_s:
            # Not compared with the clock, which counts from 1970 and so rounds fractions.
            moment_s = max(self._departures[0][0], world.now_s)
            world.advance_to(world.began + moment_s)
            # Binding may have added earlier departures.
            if self._departures[0][0] <= moment_s:
                self._depart()
        world.advance_to(world.began + max(time_s, world.now_s))

    def _depart(self) -> None:
        _, _, key, uid = heapq.heappop(self._departures)
        namespace, _, name = key.partition("/")
        pod = self._world.find(Pod, namespace, name)
        if pod is not None and pod.metadata.uid == uid:
            self._take_away(pod)

    def _take_away(self, pod: Pod) -> None:
        self._is_own_removal = True
        self._world.delete(pod)
        self._is_own_removal = False

    # -- events ------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        world = self._world
        match event:
            case Arrival():
                self._meter.submitted(key_of(event.pod.metadata), event.time_s)
                self._arrive(event, event.pod)
            case Put():
                self._put(event.obj)
            case Remove():
                self._remove(event)
            case PodChange():
                self._change(event.pod)
            case Turn():
                world.attempt_once()
            case CallReturned():
                assert world.recorded_calls is not None
                world.recorded_calls.arrive(event)
                world.work()
            case Flush():
                world.flush_queue()

    def _arrive(self, arrival: Arrival, pod: Pod) -> None:
        world, uid = self._world, pod.metadata.uid
        self._lifetimes[uid] = arrival
        if arrival.leaves_s is not None:
            self._leave_at(arrival.leaves_s, pod)
        world.add(pod)

    def _leave_at(self, time_s: float, pod: Pod) -> None:
        self._number += 1
        entry = (time_s, self._number, key_of(pod.metadata), pod.metadata.uid)
        heapq.heappush(self._departures, entry)

    def _put(self, obj: Any) -> None:  # noqa: ANN401  # of whichever kind
        world = self._world
        if world.find(type(obj), obj.metadata.namespace, obj.metadata.name) is None:
            world.add(obj)
            if isinstance(obj, Pod) and obj.spec.node_name:
                self._meter.occupies(obj, world.now_s)
        else:
            world.put(obj)

    def _remove(self, event: Remove) -> None:
        world, obj = self._world, event.obj
        if isinstance(obj, Pod):
            pod = world.find(Pod, obj.metadata.namespace, obj.metadata.name)
            if pod is not None and pod.metadata.uid == obj.metadata.uid:
                self._take_away(pod)
            return
        if isinstance(obj, Node) and event.evicts:
            for pod in pods_on(world, obj.metadata.name):
                world.delete(pod)
        world.delete(obj)

    def _change(self, pod: Pod) -> None:
        """Update a pod's own fields, and its status once it runs; its node stays."""
        world, meta = self._world, pod.metadata
        known = world.find(Pod, meta.namespace, meta.name)
        if known is None or known.metadata.uid != meta.uid:
            return
        node = known.spec.node_name
        status = pod.status
        if not node or not pod.spec.node_name:
            claims = pod.status.resource_claim_statuses
            status = structs.replace(known.status, resource_claim_statuses=claims)
        spec = structs.replace(pod.spec, node_name=node)
        world.put(structs.replace(known, metadata=meta, spec=spec, status=status))
        if status.phase in FINISHED:
            self._release_claims(pod)

    def _release_claims(self, pod: Pod) -> None:
        """Withdraw a pod's reservations. A recording deletes claims made for pods itself."""
        for claim in existing_claims(self._world, pod):
            without = released(claim, lambda uid: uid != pod.metadata.uid)
            if without is not None:
                self._world.put(without)

    # -- scheduler results -------------------------------------------------------------------------

    def _bound(self, pod: Pod) -> None:
        now_s = self._world.now_s
        self._meter.bound(key_of(pod.metadata), pod, now_s)
        self._placed[pod.metadata.uid] = pod.spec.node_name
        recorded = self._recorded.get(pod.metadata.uid, pod.spec.node_name)
        if recorded != pod.spec.node_name and len(self._elsewhere) < MOST_TOLD:
            self._note_elsewhere(pod, recorded)
        self._on_bound(pod)
        arrival = self._lifetimes.get(pod.metadata.uid)
        if arrival is not None and arrival.lifetime_s is not None:
            self._leave_at(now_s + arrival.lifetime_s, pod)

    def _deleted(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._meter.left(pod, self._world.now_s)
        if self._trace.own is not None:
            self._release_claims(pod)
        if self._is_own_removal:
            return
        self._meter.evictions += 1
        arrival = self._lifetimes.get(pod.metadata.uid)
        if arrival is not None and self._trace.resubmits:
            meta = arrival.pod.metadata
            again = structs.replace(meta, uid=f"{meta.uid}/{self._meter.evictions}")
            self._arrive(arrival, structs.replace(arrival.pod, metadata=again))
