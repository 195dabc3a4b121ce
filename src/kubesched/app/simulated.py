"""A scheduler process as `run` puts it together, over transports and a clock that are given; for the simulation."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

from kubesched.app.election import election_settings, make_elector
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.app.scheduling_calls import CarefulCalls
from kubesched.client.event_client import RestEventClient
from kubesched.client.events import EventBroadcaster
from kubesched.client.rate_limit import TokenBucket
from kubesched.client.rest import RestClient, user_agent
from kubesched.client.transport import DEFAULT_DEADLINE_S, Transport
from kubesched.clock import Clock
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.informers.factory import InformerFactory
from kubesched.scheduler.factory import Assembly


class SimulatedProcess:
    """Clients, informers, scheduler and, if the configuration has it, leader election. `run` once."""

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
    ) -> None:
        self._config = config
        self._clock = clock
        self._random = random
        client = self._client(transport, "scheduler", DEFAULT_DEADLINE_S)
        self._events = EventBroadcaster(
            RestEventClient(self._client(transport, "scheduler", DEFAULT_DEADLINE_S)),
            clock=clock,
            rng=random,
            host_name=host_name,
        )
        self._app = SchedulerApp(
            config,
            gates,
            client,
            self._events.recorder,
            calls=CarefulCalls(client, may_write=self.may_write),
            registry=registry,
            clock=clock,
            random=random,
            extender_transport=extender_transport,
        )
        self._elector = None
        if config.leader_election.leader_elect:
            settings = election_settings(config.leader_election, identity)
            self._elector = make_elector(
                settings,
                self._client(lock_transport, "leader-election", settings.call_deadline_s),
                self._app.schedule,
                self._events.legacy_recorder(config.profiles[0].scheduler_name),
                clock=clock,
                random=random,
            )

    def _client(self, transport: Transport, component: str, deadline_s: float) -> RestClient:
        connection = self._config.client_connection
        return RestClient(
            transport,
            user_agent=user_agent(component),
            limiter=TokenBucket(connection.qps, connection.burst, clock=self._clock),
            clock=self._clock,
            random=self._random,
            deadline_s=deadline_s,
        )

    @property
    def assembly(self) -> Assembly:
        return self._app.assembly

    @property
    def informers(self) -> InformerFactory:
        return self._app.informers

    @property
    def is_synced(self) -> bool:
        return self._app.synced.is_set()

    @property
    def is_scheduling(self) -> bool:
        return self._app.is_scheduling

    def may_write(self) -> bool:
        """Whether it leads, or need not."""
        return self._elector is None or self._elector.is_leader()

    async def run(self) -> None:
        """Until cancelled, or until the lease is lost."""
        async with asyncio.TaskGroup() as group:
            events = group.create_task(self._events.run())
            try:
                await self._run_app()
            finally:
                events.cancel()

    async def _run_app(self) -> None:
        async with asyncio.TaskGroup() as group:
            try:
                await self._app.start_informers(group)
                await (self._app.schedule() if self._elector is None else self._elector.run())
            finally:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._app.informers.stop()
