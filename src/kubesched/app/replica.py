"""One scheduler replica: the scheduler, its leader election and its right to write, over given connections.

`run` starts it in a process of its own, the simulation several in one, under virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from kubesched.app.connecting import Connections
from kubesched.app.dry_run import DryRunCalls, DryRunRecorder
from kubesched.app.election import make_elector
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.app.scheduling_calls import CarefulCalls
from kubesched.client.leader_election import LeaderElectionSettings, LeaderElector, LeaderMetrics
from kubesched.client.transport import Transport
from kubesched.clock import Clock
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.handle import EventRecorder, SchedulerClient
from kubesched.framework.registry import Registry
from kubesched.metrics.registry import MetricsRegistry


class Replica:
    """Must be built inside a running event loop; `run` once."""

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
        dry_run: bool = False,
        max_in_unschedulable_s: float = 300.0,
        extender_transport: Transport | None = None,
    ) -> None:
        """Without `election` the replica schedules at once, whether or not there are others."""
        self._config = config
        self._connections = connections
        self._election = election
        self._clock, self._random = clock, random
        self._elector: LeaderElector | None = None
        calls: SchedulerClient = CarefulCalls(connections.main, may_write=self.may_write)
        recorder: Callable[[str], EventRecorder] = connections.recorder
        if dry_run:
            calls, recorder = DryRunCalls(), lambda _scheduler_name: DryRunRecorder()
        self.app = SchedulerApp(
            config,
            gates,
            connections.main,
            recorder,
            calls=calls,
            registry=registry,
            metrics_registry=metrics_registry,
            clock=clock,
            random=random,
            max_in_unschedulable_s=max_in_unschedulable_s,
            extender_transport=extender_transport,
        )

    def may_write(self) -> bool:
        """Whether this replica leads, or runs without election."""
        return self._election is None or (self._elector is not None and self._elector.is_leader())

    async def run(self, metrics: LeaderMetrics | None = None) -> None:
        """Watch and schedule until cancelled, or until the lease is lost."""
        if self._election is None:
            await self.app.run()
            return
        delayed = self._config.delay_cache_until_active
        self._elector = make_elector(
            self._election,
            self._connections.lock_client(self._election.call_deadline_s),
            self.app.run_cold if delayed else self.app.schedule,
            self._connections.legacy_recorder(self._config.profiles[0].scheduler_name),
            clock=self._clock,
            random=self._random,
            metrics=metrics,
        )
        if delayed:
            await self._elector.run()
        else:
            await self._run_warm(self._elector)

    async def _run_warm(self, elector: LeaderElector) -> None:
        """Stand by with synced informers, so that taking over needs no listing."""
        async with asyncio.TaskGroup() as group:
            await self.app.start_informers(group)
            try:
                await elector.run()
            finally:
                await self.app.informers.stop()
