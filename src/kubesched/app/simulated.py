"""The replica that `run` starts, over the simulation's transports and clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from kubesched.app.connecting import Connections
from kubesched.app.control_thread import ControlThread
from kubesched.app.election import election_settings
from kubesched.app.replica import Replica
from kubesched.client.leader_election import LeaderMetrics
from kubesched.client.rate_limit import TokenBucket
from kubesched.client.transport import Transport
from kubesched.clock import Clock
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.informers.factory import InformerFactory
from kubesched.recording.recorded_dependencies import Recording
from kubesched.scheduler.factory import Assembly

OpenRecording = Callable[[KubeSchedulerConfiguration, FeatureGates, Clock], Recording]


class SimulatedProcess(Replica):
    """A replica as the simulation looks at it (`simulation.processes.SimulatedScheduler`)."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        registry: Registry,
        *,
        transport: Transport,
        lock_transport: Transport,
        extender_transport: Transport,
        clock: Clock,
        random: Random,
        host_name: str,
        identity: str,
        record: OpenRecording | None = None,
    ) -> None:
        connection, election = config.client_connection, config.leader_election
        connections = Connections(
            transport,
            lock_transport,
            lambda: TokenBucket(connection.qps, connection.burst, clock=clock),
            clock=clock,
            random=random,
            host_name=host_name,
        )
        super().__init__(
            config,
            gates,
            connections,
            election_settings(election, identity) if election.leader_elect else None,
            registry=registry,
            clock=clock,
            random=random,
            extender_transport=extender_transport,
            recording=None if record is None else record(config, gates, clock),
        )

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
        """False as soon as it is to end: claims that are being written may take a while longer."""
        return self.app.is_scheduling and not self.assembly.scheduler.queue.is_closed

    async def run(
        self,
        metrics: LeaderMetrics | None = None,
        control: ControlThread | None = None,
        on_stopped_leading: Callable[[], None] = lambda: None,
    ) -> None:
        """Until cancelled, or until the lease is lost."""
        async with asyncio.TaskGroup() as group:
            events = group.create_task(self._connections.write_events())
            try:
                await super().run(metrics, control, on_stopped_leading)
            finally:
                events.cancel()
