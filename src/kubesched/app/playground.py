"""The playground: an embedded cluster with nodes, controllers and the scheduler in one process.

The scheduler is that of `kubesched run` and sends the same requests, but without a socket: TLS and
HTTP would be a third of the CPU cost per pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kubesched.app.connecting import Connections
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.clock import SystemClock
from kubesched.base.rate_limit import TokenBucket
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.insight.recording.recorded_dependencies import RING_BYTES, Recording, open_recording
from kubesched.insight.recording.writer import Limits
from kubesched.playground.auth.access import Authorization
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.controllers.volumes import StorageDriver
from kubesched.playground.kubelet.node_templates import DEFAULT_POOLS, NodePool
from kubesched.playground.kubelet.options import KubeletOptions

UNLIMITED_QPS = -1.0
DRAIN_S = 0.1
"""How long a scheduler that is replaced may finish bindings; others are undone and made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundSettings:
    """The settings of `kubesched up`."""

    kubeconfig: Path
    name: str = "kubesched"
    """Name of cluster, user and context in the kubeconfig."""
    address: str = "127.0.0.1"
    authorization: Authorization = "allow"
    nodes: int = 10
    pools: tuple[NodePool, ...] = DEFAULT_POOLS
    port: int = 0
    data_dir: Path | None = None
    storage: tuple[StorageDriver, ...] = (StorageDriver(),)
    """By default, claims without a class get a volume in the zone of their pod."""
    with_scheduler: bool = True
    config: KubeSchedulerConfiguration | None = None
    gates: FeatureGates = DEFAULT_GATES
    cluster_gates: FeatureGates | None = None
    """Gates of the cluster, which decide about its release; None for those of the scheduler."""
    record: str | None = None
    """Folder to record decisions in; None records in memory."""
    record_limit: int = RING_BYTES


@dataclass(slots=True)
class Playground:
    """A running playground."""

    cluster: EmbeddedCluster
    seat: SchedulerSeat | None = None
    """None without a scheduler."""

    @property
    def scheduler(self) -> SchedulerApp | None:
        return None if self.seat is None else self.seat.app

    @property
    def recording(self) -> Recording | None:
        return None if self.seat is None else self.seat.recording


@contextlib.asynccontextmanager
async def playground(settings: PlaygroundSettings) -> AsyncIterator[Playground]:
    """Start everything; when the body runs, kubectl works and pods are being scheduled."""
    kubelet = KubeletOptions(nodes=settings.nodes, pools=settings.pools)
    cluster_settings = ClusterSettings(
        name=settings.name,
        address=settings.address,
        authorization=settings.authorization,
        port=settings.port,
        kubeconfig=settings.kubeconfig,
        data_dir=settings.data_dir,
        gates=settings.cluster_gates or settings.gates,
        controllers=ControllerOptions(kubelet=kubelet, storage=settings.storage),
    )
    async with EmbeddedCluster(cluster_settings) as cluster:
        if not settings.with_scheduler:
            yield Playground(cluster)
            return
        async with _seat(settings, cluster) as seat:
            yield Playground(cluster, seat)


@contextlib.asynccontextmanager
async def _seat(
    settings: PlaygroundSettings, cluster: EmbeddedCluster
) -> AsyncIterator[SchedulerSeat]:
    transport = cluster.transport(omits_managed_fields=True)
    clock = SystemClock()
    async with (
        Connections(
            transport,
            transport,
            lambda: TokenBucket(UNLIMITED_QPS, 1, clock=clock),
            clock=clock,
            random=Random(),
            host_name=platform.node(),
        ) as connections,
        asyncio.TaskGroup() as group,
    ):
        events = group.create_task(connections.events.run())
        seat = SchedulerSeat(settings, connections, group)
        try:
            await seat.start(settings.config or default_config(settings.gates))
            yield seat
        finally:
            await seat.vacate()
            events.cancel()


class SchedulerSeat:
    """The place of the scheduler, which another one can take while the cluster goes on."""

    app: SchedulerApp
    config: KubeSchedulerConfiguration
    recording: Recording | None = None

    def __init__(
        self, settings: PlaygroundSettings, connections: Connections, group: asyncio.TaskGroup
    ) -> None:
        self._settings, self._connections, self._group = settings, connections, group
        self._running: asyncio.Task[None] | None = None

    async def start(
        self, config: KubeSchedulerConfiguration, registry: Registry | None = None
    ) -> None:
        """Start a scheduler in the empty seat; returns when it has read the cluster."""
        self.config, settings = config, self._settings
        self.recording = open_recording(
            settings.record,
            config,
            settings.gates,
            limits=Limits(settings.record_limit),
            clock=SystemClock(),
            random=Random(),
        )
        self.app = self._made(config, registry, self.recording)
        self._running = self._group.create_task(self.app.run())
        await self.app.synced.wait()

    async def replace(self, config: KubeSchedulerConfiguration, registry: Registry) -> None:
        """Let a scheduler with other plugins take the seat, as a restarted process would.

        It begins with what the API server knows, so that nothing decided by the old plugins is
        left: pods that Permit holds are released, and tried again.

        Raises:
            KubeschedError: it cannot be built, e.g. a constructor raised. The old one goes on.
        """
        trial = self._made(config, registry, None)  # a recording has one scheduler at a time
        for framework in trial.assembly.frameworks.values():
            framework.close()
        await self.app.drain(DRAIN_S)
        await self.vacate()
        await self.start(config, registry)

    async def vacate(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))  # if it failed, the group says so
        if self.recording is not None:
            self.recording.close()
            self.recording = None

    def _made(
        self,
        config: KubeSchedulerConfiguration,
        registry: Registry | None,
        recording: Recording | None,
    ) -> SchedulerApp:
        connections = self._connections
        return SchedulerApp(
            config,
            self._settings.gates,
            connections.main,
            connections.events.recorder,
            registry=registry,
            recording=recording,
        )
