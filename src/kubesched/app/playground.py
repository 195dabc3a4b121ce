"""The playground: an embedded cluster with nodes, controllers and the scheduler in one process.

The scheduler is that of `kubesched run` and sends the same requests, but without a socket: TLS and
HTTP would be a third of the CPU cost per pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kubesched.app.connecting import Connections
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.clock import SystemClock
from kubesched.base.rate_limit import TokenBucket
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.recording.recorded_dependencies import RING_BYTES, Recording, open_recording
from kubesched.insight.recording.writer import Limits
from kubesched.playground.auth.access import Authorization
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.controllers.volumes import StorageDriver
from kubesched.playground.kubelet.node_templates import DEFAULT_POOLS, NodePool
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.kubelet.stages import Stage, default_stages

UNLIMITED_QPS = -1.0


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
    stages: tuple[Stage, ...] = field(default_factory=default_stages)
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


@dataclass(frozen=True, slots=True)
class Playground:
    """A running playground."""

    cluster: EmbeddedCluster
    scheduler: SchedulerApp | None
    recording: Recording | None = None


@contextlib.asynccontextmanager
async def playground(settings: PlaygroundSettings) -> AsyncIterator[Playground]:
    """Start everything; when the body runs, kubectl works and pods are being scheduled."""
    kubelet = KubeletOptions(nodes=settings.nodes, pools=settings.pools, stages=settings.stages)
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
            yield Playground(cluster, None)
            return
        config = settings.config or default_config(settings.gates)
        recording = open_recording(
            settings.record,
            config,
            settings.gates,
            limits=Limits(settings.record_limit),
            clock=SystemClock(),
            random=Random(),
        )
        try:
            async with _scheduler(settings, cluster, config, recording) as app:
                yield Playground(cluster, app, recording)
        finally:
            recording.close()


@contextlib.asynccontextmanager
async def _scheduler(
    settings: PlaygroundSettings,
    cluster: EmbeddedCluster,
    config: KubeSchedulerConfiguration,
    recording: Recording | None,
) -> AsyncIterator[SchedulerApp]:
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
        app = SchedulerApp(
            config, settings.gates, connections.main, connections.recorder, recording=recording
        )
        tasks = [group.create_task(app.run()), group.create_task(connections.events.run())]
        await app.synced.wait()
        try:
            yield app
        finally:
            for task in tasks:
                task.cancel()
