"""One scheduler replica: the scheduler, its leader election and its write permission.

`run` starts one per process; the simulation starts several in one process, under virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from kubesched.app.connecting import Connections
from kubesched.app.control_thread import ControlThread, run_on
from kubesched.app.election import make_elector
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.app.scheduling_calls import CarefulCalls
from kubesched.base.clock import BootClock, Clock
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.client.leader_election import LeaderElectionSettings, LeaderElector, LeaderMetrics
from kubesched.client.transport import Transport
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.insight.recording.recorded_dependencies import Recording


class Replica:
    """Must be built inside a running event loop; call `run` once."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        connections: Connections,
        election: LeaderElectionSettings | None,
        *,
        registry: Registry | None = None,
        metrics_registry: MetricsRegistry | None = None,
        clock: Clock,
        random: Random,
        max_in_unschedulable_s: float = 300.0,
        extender_transport: Transport | None = None,
        recording: Recording | None = None,
    ) -> None:
        """Without `election` the replica schedules at once, even next to other replicas."""
        self._config = config
        self._connections = connections
        self._election = election
        self._clock, self._random = clock, random
        self._elector: LeaderElector | None = None
        connections.may_write = self.may_write
        calls = CarefulCalls(connections.main, retries=gates.reference.bindings_are_retried)
        self.app = SchedulerApp(
            config,
            gates,
            connections.main,
            connections.recorder,
            calls=calls,
            registry=registry,
            metrics_registry=metrics_registry,
            clock=clock,
            random=random,
            max_in_unschedulable_s=max_in_unschedulable_s,
            extender_transport=extender_transport,
            recording=recording,
        )

    def may_write(self) -> bool:
        """Whether this replica leads, or runs without election. Thread-safe."""
        return self._election is None or (self._elector is not None and self._elector.is_leader())

    async def run(
        self,
        metrics: LeaderMetrics | None = None,
        control: ControlThread | None = None,
        on_stopped_leading: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch and schedule until cancelled, or until the lease is lost.

        With `control`, that thread keeps the lease and calls `on_stopped_leading`.
        """
        if self._election is None:
            await self.app.run()
            return
        self._elector = self._make_elector(self._election, metrics, control, on_stopped_leading)
        elect = self._elect if control is None else partial(control.run, self._elect)
        if self._config.delay_cache_until_active:
            await elect()
            return
        # Stand by with synced informers, so that taking over needs no listing.
        async with asyncio.TaskGroup() as group:
            await self.app.start_informers(group)
            try:
                await elect()
            finally:
                await self.app.informers.stop()

    async def _elect(self) -> None:
        assert self._elector is not None
        try:
            await self._elector.run()
        finally:
            await self._connections.close_lock()

    def _make_elector(
        self,
        election: LeaderElectionSettings,
        metrics: LeaderMetrics | None,
        control: ControlThread | None,
        on_stopped_leading: Callable[[], None],
    ) -> LeaderElector:
        lead: Callable[[], Coroutine[Any, Any, None]] = (
            self.app.run_cold if self._config.delay_cache_until_active else self.app.schedule
        )
        first_profile = self._config.profiles[0].scheduler_name
        record: Callable[..., object] = self._connections.events.legacy_recorder(
            first_profile
        ).event
        clock = self._clock
        if control is not None:
            scheduling_loop = asyncio.get_running_loop()
            lead = partial(run_on, scheduling_loop, lead)
            record = partial(scheduling_loop.call_soon_threadsafe, record)
            clock = BootClock()
        return make_elector(
            election,
            self._connections.lock_client(election.call_deadline_s),
            lead,
            record,
            on_stopped_leading,
            clock=clock,
            random=self._random,
            metrics=metrics,
        )
