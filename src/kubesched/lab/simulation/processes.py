"""The schedulers of a run: start, crash, partition from the lease, restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Protocol

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.base.clock import Clock
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.transport import Request, Transport
from kubesched.config.features import FeatureGates
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.insight.recording.reader import Run
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.state.virtual_loop import OWNER, LoopClock, VirtualLoop
from kubesched.lab.simulation.audit import Attempts, audit_pops, note_claims, watch_ports
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.disk import MountedDisk
from kubesched.lab.simulation.extenders import SimulatedExtender
from kubesched.lab.simulation.faults import CallFault, FaultyTransport, Network
from kubesched.lab.simulation.options import DiskOptions
from kubesched.lab.simulation.recordings import Recorded, Recordings
from kubesched.lab.simulation.second_look import SecondLook
from kubesched.lab.simulation.trace import Complaints, Trace, Violation
from kubesched.playground.server.memory_transport import MemoryTransport
from kubesched.scheduler.factory import Assembly

MIN_RESTART_S, MAX_RESTART_S = 2.0, 6.0
"""A crashed process restarts only after its requests in flight have arrived."""


class SimulatedScheduler(Protocol):
    """The simulation's interface to a scheduler process; the application provides it."""

    @property
    def assembly(self) -> Assembly: ...

    @property
    def informers(self) -> InformerFactory: ...

    @property
    def is_synced(self) -> bool: ...

    @property
    def is_scheduling(self) -> bool: ...

    def may_write(self) -> bool: ...

    @property
    def recorder(self) -> Recorder | None: ...

    def play(self, run: Run) -> str:
        """Play a recording; returns the first difference, or an empty string."""
        ...

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessParts:
    """What a production process is assembled from."""

    config: KubeSchedulerConfiguration
    gates: FeatureGates
    registry: Registry
    transport: Transport
    lock_transport: Transport
    extender_transport: Transport
    clock: Clock
    random: Random
    host_name: str
    identity: str
    disk: MountedDisk | None


ProcessFactory = Callable[[ProcessParts], SimulatedScheduler]


class Incarnation:
    """One process from its start to its end."""

    def __init__(
        self,
        name: str,
        process: SimulatedScheduler,
        transports: tuple[FaultyTransport, FaultyTransport],
        clock: LoopClock,
    ) -> None:
        self.name = name
        self.process = process
        self.transport, self.lock_transport = transports
        self.clock = clock
        self.pods = process.informers.of(Pod)
        self.task: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        """Set when it crashed or ended by itself."""
        self.has_scheduled = False
        self.crash: CallFault | None = None
        """Fault of its next API call, which is its last."""

    @property
    def is_alive(self) -> bool:
        return not self.transport.is_dead

    @property
    def is_working(self) -> bool:
        """Whether its queue and cache are valid: from the first sync to the end of scheduling."""
        process = self.process
        is_scheduling = process.is_scheduling
        self.has_scheduled |= is_scheduling
        return (
            (is_scheduling or not self.has_scheduled)
            and not self.transport.is_dead
            and process.is_synced
        )

    @property
    def is_holding_still(self) -> bool:
        return self.process.assembly.scheduler.event_gate.is_held

    def die(self) -> None:
        self.transport.is_dead = self.lock_transport.is_dead = True
        self.over.set()


class Processes:
    """One slot per replica, each with a process most of the time."""

    def __init__(
        self,
        make_process: ProcessFactory,
        cluster: SimulatedCluster,
        network: Network,
        loop: VirtualLoop,
        trace: Trace,
        complaints: Complaints,
        *,
        seed: str,
        config: bytes,
        gates: FeatureGates,
        registry: Registry,
        honest: Registry,
        extender: SimulatedExtender,
        mischief: Callable[[], int],
        disk: DiskOptions | None = None,
    ) -> None:
        """`honest` has the plugins of the second look; `mischief` counts what a plugin did."""
        self.recordings = Recordings(disk, seed, trace.census, loop.time)
        self._make_process = make_process
        self._cluster = cluster
        self._network = network
        self._loop = loop
        self._trace = trace
        self._complaints = complaints
        self._seed = seed
        self.gates = gates
        self._config = _loaded(config, gates)
        self._registry = registry
        self._honest = honest
        self._extender = extender
        self._mischief = mischief
        self._random = Random(f"{seed}/processes")
        self._started = 0
        self.drift = 0.0
        """Maximum clock drift of new processes."""
        self.slots: dict[int, Incarnation] = {}
        self.attempts: Attempts = {}
        """All so far; grows as attempts begin."""
        self.on_call: Callable[[str, Request], CallFault | None] = lambda _process, _request: None
        network.on_call = self._on_call

    def alive(self) -> list[Incarnation]:
        # Ordered by slot: slots are first filled in that order, which a dictionary keeps.
        slots = self.slots.values()
        return [incarnation for incarnation in slots if not incarnation.transport.is_dead]

    async def keep_running(self, slot: int) -> None:
        """Run one replica forever, restarting it whenever it ends."""
        while True:
            incarnation = self.slots[slot] = self._start(slot)
            assert incarnation.task is not None
            await incarnation.over.wait()
            self._note_end(incarnation)
            self.recordings.end(incarnation.name)
            incarnation.die()
            await asyncio.sleep(self._random.uniform(MIN_RESTART_S, MAX_RESTART_S))
            self._tally("started again")

    def _start(self, slot: int) -> Incarnation:
        self._started += 1
        name = f"s{slot}.{self._started}"
        self._trace.add("start", name)
        transports = (self._transport(name), self._transport(name))
        clock = LoopClock(
            self._loop, wall_error_s=self._random.uniform(-2.0, 2.0), drift=self._draw_drift()
        )
        disk = self.recordings.mount(slot, lambda: self._crash_in_write(name))
        parts = ProcessParts(
            config=self._config,
            gates=self.gates,
            registry=self._registry,
            transport=transports[0],
            lock_transport=transports[1],
            extender_transport=self._extender,
            clock=clock,
            random=Random(f"{self._seed}/{name}"),
            host_name=f"host{slot}",
            identity=name,
            disk=disk,
        )
        try:
            process = self._make_process(parts)
        except OSError as error:
            raise Violation("no scheduler dies by itself", f"{name}: {error!r}") from error
        if disk is not None and process.recorder is not None:
            self.recordings.add(Recorded(name, disk, process.recorder, process.play))
        claims = process.informers.of(PersistentVolumeClaim)
        audit_pops(
            process.assembly.scheduler.queue,
            self._complaints.add,
            partial(note_claims, self.attempts, name, claims),
            self._loop.time,
        )
        watch_ports(process.assembly.scheduler.cache.table)
        look = SecondLook(
            process.assembly,
            process.informers,
            self._config,
            self.gates,
            self._honest,
            clock,
            self._complaints.add,
            partial(self._extender.listen, name),
            self._mischief,
        )
        look.watch()
        incarnation = Incarnation(name, process, transports, clock)
        context = copy_context()
        context.run(OWNER.set, name)
        incarnation.task = self._loop.create_task(process.run(), context=context)
        incarnation.task.add_done_callback(lambda _task: incarnation.over.set())
        incarnation.task.add_done_callback(
            lambda _task: self._loop.call_later(1.0, self._check_slots, incarnation)
        )
        return incarnation

    def _check_slots(self, ended: Incarnation) -> None:
        """Bindings that were cancelled have given their slots back."""
        count = ended.process.assembly.scheduler.binding.slots.taken
        if count:
            self._complaints.add(
                "what a scheduler takes comes back", f"{ended.name} ended with {count} slots"
            )

    def _draw_drift(self) -> float:
        if not self.drift:
            return 0.0
        self._trace.census.tally("time", "clock drifts")
        return self._random.uniform(-self.drift, self.drift)

    def _transport(self, name: str) -> FaultyTransport:
        return FaultyTransport(MemoryTransport(self._cluster.server), self._network, name)

    def _note_end(self, incarnation: Incarnation) -> None:
        task = incarnation.task
        if not incarnation.is_alive or task is None or not task.done() or task.cancelled():
            return
        error = task.exception()
        self._trace.add("end", f"{incarnation.name} {type(error).__name__ if error else ''}")
        if error is not None:
            self._complaints.add("no scheduler dies by itself", f"{incarnation.name}: {error!r}")

    # Faults.

    def crash_one(self) -> None:
        """Crash a process at its next API call, with or without the call taking effect."""
        alive = self.alive()
        if alive:
            chosen = self._random.choice(alive)
            chosen.crash = CallFault("broken", commits=self._random.random() < 0.5)

    def _on_call(self, name: str, request: Request) -> CallFault | None:
        chosen = self.on_call(name, request)
        if chosen is not None:
            return chosen
        for incarnation in self.alive():
            if incarnation.name == name and incarnation.crash is not None:
                return self.crash_now(incarnation, incarnation.crash)
        return None

    def crash_now(self, incarnation: Incarnation, last_call: CallFault) -> CallFault:
        self._trace.add("crash", f"{incarnation.name} in a call that {last_call}")
        how = "that took effect" if last_call.commits else "without effect"
        self._tally(f"crashed in a call {how}")
        self._loop.call_soon(self._kill, incarnation)
        return last_call

    def _crash_in_write(self, name: str) -> None:
        """End a process during a disk write."""
        self._trace.add("crash", f"{name} in a write to its disk")
        self._loop.call_soon(self._kill_named, name)

    def _kill_named(self, name: str) -> None:
        for incarnation in self.alive():
            if incarnation.name == name:
                self._kill(incarnation)

    def _kill(self, incarnation: Incarnation) -> None:
        self.recordings.crash(incarnation.name)
        incarnation.die()
        self._loop.thaw(incarnation.name)
        if incarnation.task is not None:
            incarnation.task.cancel()
            incarnation.task.add_done_callback(_retrieve)

    def restart_deceived(self, lost: set[str]) -> None:
        """End processes with acknowledged bindings that were lost and never shown by a watch.

        Operators have to do this: informers cannot tell, since they only know restored history.
        """
        for incarnation in self.alive():
            assumed = incarnation.process.assembly.scheduler.cache.assumed_pods()
            if any(info.pod.metadata.uid in lost for info in assumed):
                self._trace.add("stop", incarnation.name)
                self._kill(incarnation)

    def freeze_one(self, seconds: float) -> None:
        """Stop a process for a while, like a paused machine or SIGSTOP; the world continues."""
        alive = self.alive()
        if alive:
            leaders = [incarnation for incarnation in alive if incarnation.process.may_write()]
            chosen = self._random.choice(leaders or alive)
            self._trace.add("freeze", f"{chosen.name} for {seconds:.3f} s")
            self._tally("frozen")
            self._loop.freeze(chosen.name)
            self._loop.call_later(seconds, self._loop.thaw, chosen.name)

    def is_interrupted(self, incarnation: Incarnation) -> bool:
        """Whether it was stopped between two related steps, so its state may be inconsistent."""
        return self._loop.is_interrupted(incarnation.name)

    def partition_one(self, seconds: float) -> None:
        """Partition a process for a while, from its lease alone or from everything."""
        alive = self.alive()
        if not alive:
            return
        chosen = self._random.choice(alive)
        transports = [chosen.lock_transport]
        if self._random.random() < 0.5:
            transports.append(chosen.transport)
        self._cut(chosen, transports, seconds)

    def cut_off(self, incarnation: Incarnation, seconds: float) -> None:
        """Partition this process for a while; requests already sent still arrive."""
        self._cut(incarnation, [incarnation.lock_transport, incarnation.transport], seconds)

    def _cut(self, chosen: Incarnation, transports: list[FaultyTransport], seconds: float) -> None:
        self._trace.add("cut", f"{chosen.name} {len(transports)} for {seconds:.3f} s")
        self._tally("cut off" if len(transports) > 1 else "cut off from the lease")
        for transport in transports:
            transport.is_cut = True
            self._loop.call_later(seconds, _mend, transport)

    def jump_one(self) -> None:
        """Set a random machine's wall clock."""
        alive = self.alive()
        if alive:
            chosen = self._random.choice(alive)
            chosen.clock.wall_error_s += self._random.uniform(-120.0, 120.0)
            self._trace.add("jump", f"{chosen.name} to {chosen.clock.wall_error_s:.3f} s")
            self._trace.census.tally("time", "clock jumped")

    def _tally(self, what: str) -> None:
        self._trace.census.tally("processes", what)

    def mend(self) -> None:
        """Clear the faults of all live processes."""
        self.recordings.heal()
        for incarnation in self.alive():
            incarnation.crash = None
            incarnation.transport.is_cut = incarnation.lock_transport.is_cut = False


@lru_cache(maxsize=256)
def _loaded(config: bytes, gates: FeatureGates) -> KubeSchedulerConfiguration:
    return load(config, "simulation", gates)


def _mend(transport: FaultyTransport) -> None:
    transport.is_cut = False


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # of a dead process: mark as retrieved
