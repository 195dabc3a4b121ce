"""The replica that `run` starts, over the simulation's transports and clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import msgspec

from kubesched.app.connecting import Connections
from kubesched.app.control_thread import ControlThread
from kubesched.app.replica import Replica, election_settings
from kubesched.base.rate_limit import TokenBucket
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.metrics import LeaderMetrics
from kubesched.framework.registry import Registry
from kubesched.insight.recording.reader import Run
from kubesched.insight.recording.recorded_dependencies import Recording, open_recording
from kubesched.lab.simulation.audit import AUDITOR, SilentAuditor
from kubesched.lab.simulation.gangs import SilentGangAuditor
from kubesched.lab.simulation.options import of_seed
from kubesched.lab.simulation.processes import ProcessParts
from kubesched.lab.simulation.run import SimulationResult, simulate
from kubesched.lab.simulation.trace import Violation
from kubesched.lab.sweeps.store import key_of_cell
from kubesched.lab.sweeps.sweep import Keyed
from kubesched.lab.traces.log_player import play
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.factory import Assembly


def recorded_to_disk(parts: ProcessParts) -> Recording | None:
    """A recording on the disk of the process, if it has one."""
    disk = parts.disk
    if disk is None:
        return None
    return open_recording(
        None,
        parts.config,
        parts.gates,
        limits=disk.disk.limits,
        clock=parts.clock,
        random=parts.random,
        threaded=False,
        flush_at=disk.disk.options.flush_at,
        storage=disk,
    )


def playing_registry(*, gangs: bool = False) -> Registry:
    registry = in_tree_registry()
    registry.register(AUDITOR, lambda: SilentGangAuditor if gangs else SilentAuditor)
    return registry


class SimulatedProcess(Replica):
    """A replica as seen by the simulation (`simulation.processes.SimulatedScheduler`)."""

    def __init__(
        self,
        parts: ProcessParts,
        record: Callable[[ProcessParts], Recording | None] = recorded_to_disk,
    ) -> None:
        recording = record(parts)
        self.recorder = None if recording is None else recording.recorder
        config, clock = parts.config, parts.clock
        connection, election = config.client_connection, config.leader_election
        connections = Connections(
            parts.transport,
            parts.lock_transport,
            lambda: TokenBucket(connection.qps, connection.burst, clock=clock),
            clock=clock,
            random=parts.random,
            host_name=parts.host_name,
        )
        super().__init__(
            config,
            parts.gates,
            connections,
            election_settings(election, parts.identity) if election.leader_elect else None,
            registry=parts.registry,
            clock=clock,
            random=parts.random,
            extender_transport=parts.extender_transport,
            recording=recording,
        )

    def play(self, run: Run) -> str:
        return play(run, playing_registry()).difference

    @property
    def assembly(self) -> Assembly:
        return self.app.assembly

    @property
    def informers(self) -> InformerFactory:
        return self.app.informers

    @property
    def is_synced(self) -> bool:
        return self.app.synced.is_set()

    @property
    def is_scheduling(self) -> bool:
        """False as soon as it must stop; claim writes in progress may take a while longer."""
        return self.app.is_scheduling and not self.assembly.scheduler.queue.is_closed

    async def run(
        self,
        metrics: LeaderMetrics | None = None,
        control: ControlThread | None = None,
        on_stopped_leading: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until cancelled, or until the lease is lost."""
        async with asyncio.TaskGroup() as group:
            events = group.create_task(self._connections.events.run())
            try:
                await super().run(metrics, control, on_stopped_leading)
            finally:
                events.cancel()


# Runs as cells of a sweep: one seed each, in this process or another.


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings shared by all seeds of a sweep."""

    faults: bool
    extras: tuple[str, ...] = ()


def simulate_cell(settings: SimulationSettings, seed: int) -> bytes:
    """One run as JSON."""
    options = of_seed(seed, faults=settings.faults, extras=settings.extras)
    return encode(simulate(seed, SimulatedProcess, options=options))


def keyed(settings: SimulationSettings, seeds: Sequence[int]) -> list[Keyed]:
    """The seeds, keyed by the hash of (settings, seed, version)."""
    return [Keyed(key_of_cell(simulation=asdict(settings), seed=seed), seed) for seed in seeds]


def encode(outcome: SimulationResult) -> bytes:
    return msgspec.json.encode(outcome, enc_hook=lambda found: [found.property, found.detail])


def decode(data: bytes) -> SimulationResult:
    return msgspec.json.decode(
        data, type=SimulationResult, dec_hook=lambda _violation, found: Violation(*found)
    )
