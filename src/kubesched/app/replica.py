"""One scheduler replica: the scheduler, its leader election and its write permission.

`run` starts one per process; the simulation starts several in one process, under virtual time.
"""

from __future__ import annotations

import asyncio
import platform
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from kubesched.api.core_v1 import ObjectReference
from kubesched.app.connecting import Connections
from kubesched.app.control_thread import ControlThread, run_on
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.app.scheduling_calls import CarefulCalls
from kubesched.base.clock import BootClock, Clock
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.base.logs import get_logger
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.client.leader_election import (
    LeaderCallbacks,
    LeaderElectionSettings,
    LeaderElector,
    LeaseClient,
)
from kubesched.client.metrics import LeaderMetrics
from kubesched.client.transport import Transport
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration, LeaderElectionConfiguration
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
            connections.events.recorder,
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
        record_event: Callable[..., object] = self._connections.events.legacy_recorder(
            first_profile
        ).event
        clock = self._clock
        if control is not None:
            scheduling_loop = asyncio.get_running_loop()
            lead = partial(run_on, scheduling_loop, lead)
            record_event = partial(scheduling_loop.call_soon_threadsafe, record_event)
            clock = BootClock()

        def record(lease: ObjectReference, message: str) -> None:
            record_event(lease, None, "Normal", "LeaderElection", "", message)

        def new_leader(identity: str) -> None:
            if identity and identity != election.identity:
                log.info("New leader elected", identity=identity)

        client = self._connections.lock_client(election.call_deadline_s)
        return LeaderElector(
            election,
            LeaseClient(client, namespace=election.namespace, name=election.name),
            LeaderCallbacks(
                on_started_leading=lead,
                on_stopped_leading=on_stopped_leading,
                on_new_leader=new_leader,
                record_event=record,
            ),
            clock=clock,
            rng=self._random,
            metrics=metrics,
        )


log = get_logger(__name__)

SUPPORTED_LOCK = "leases"


def new_identity(random: Random) -> str:
    """`<host name>_<uuid>`, as kube-scheduler names itself."""
    return f"{platform.node()}_{uuid.UUID(int=random.getrandbits(128), version=4)}"


def election_settings(config: LeaderElectionConfiguration, identity: str) -> LeaderElectionSettings:
    """Checked settings.

    Raises:
        ConfigError: no elector can work with these.
    """
    if config.resource_lock != SUPPORTED_LOCK:
        message = (
            f'couldn\'t create resource lock: "{config.resource_lock}" is not supported, use leases'
        )
        raise ConfigError([FieldProblem("", message)])
    settings = LeaderElectionSettings(
        identity=identity,
        namespace=config.resource_namespace,
        name=config.resource_name,
        lease_duration_s=config.lease_duration_s,
        renew_deadline_s=config.renew_deadline_s,
        retry_period_s=config.retry_period_s,
    )
    try:
        settings.check()
    except ConfigError as error:
        message = f"couldn't create leader elector: {error}"
        raise ConfigError([FieldProblem("", message)]) from error
    return settings
