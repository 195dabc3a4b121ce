"""Starts and runs the controllers and kubelets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubesched.base.clock import Clock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.playground.client.controller import (
    Controller,
    ControllerContext,
    HeartbeatClock,
)
from kubesched.playground.client.events import EventRecorder
from kubesched.playground.client.informers import EveryResource, InformerFactory
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controllers.cronjob import CronJobController
from kubesched.playground.controllers.daemonset.controller import DaemonSetController
from kubesched.playground.controllers.deployment.controller import DeploymentController
from kubesched.playground.controllers.disruption import DisruptionController
from kubesched.playground.controllers.event_ttl import EventExpiry
from kubesched.playground.controllers.garbage_collector import GarbageCollector
from kubesched.playground.controllers.job.controller import JobController
from kubesched.playground.controllers.namespaces import NamespaceController
from kubesched.playground.controllers.node_lifecycle import NodeLifecycleController
from kubesched.playground.controllers.pod_gc import PodGcController
from kubesched.playground.controllers.pod_group_protection import POD_GROUPS, PodGroupProtection
from kubesched.playground.controllers.replicaset import (
    ReplicaSetController,
    ReplicationControllerController,
)
from kubesched.playground.controllers.resource_claims import ResourceClaimController
from kubesched.playground.controllers.resource_quota import ResourceQuotaController
from kubesched.playground.controllers.statefulset.controller import StatefulSetController
from kubesched.playground.controllers.taint_eviction import TaintEvictionController
from kubesched.playground.controllers.volumes import (
    CsiPublisher,
    EphemeralVolumes,
    StorageDriver,
    VolumeBinder,
    VolumeProtection,
)
from kubesched.playground.controllers.volumes.provisioner import Provisioner
from kubesched.playground.kubelet.devices import DevicePublisher, PoolDriver
from kubesched.playground.kubelet.heartbeats import NodeKeeper
from kubesched.playground.kubelet.node_templates import plan_nodes
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.kubelet.pods import PodPlayer

CONTROLLERS: tuple[type[Controller[Any]], ...] = (
    DeploymentController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    CronJobController,
    GarbageCollector,
    NamespaceController,
    ResourceQuotaController,
    DisruptionController,
    PodGcController,
    NodeLifecycleController,
    TaintEvictionController,
    VolumeBinder,
    VolumeProtection,
    EphemeralVolumes,
    PodGroupProtection,
    ResourceClaimController,
    CsiPublisher,
    Provisioner,
    EventExpiry,
    NodeKeeper,
    DevicePublisher,
    PodPlayer,
)
"""Every controller, in processing order."""
CONTROLLER_NAMES = tuple([controller.name for controller in CONTROLLERS])

KUBELETS = (NodeKeeper, DevicePublisher, PodPlayer)
_SETTLE_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Selects the controllers to run and their options."""

    disabled: frozenset[str] = frozenset()
    """Names of disabled controllers; see `CONTROLLER_NAMES`."""

    events: bool = True
    """Whether controllers and kubelets record events."""

    kubelet: KubeletOptions | None = None
    """Options of the simulated kubelets; None if nodes are run externally."""

    storage: tuple[StorageDriver, ...] = ()
    """Storage drivers to simulate."""

    finished_pod_limit: int = 12_500
    """Number of finished pods to keep; 0 keeps all."""

    def __post_init__(self) -> None:
        unknown = sorted(self.disabled - set(CONTROLLER_NAMES))
        if unknown:
            raise ValueError(
                f"no such controller: {', '.join(unknown)}; known: {', '.join(CONTROLLER_NAMES)}"
            )


class ControllerSet:
    """All controllers of a cluster, connected and ready to run."""

    def __init__(
        self,
        controllers: Sequence[Controller[Any]],
        informers: InformerFactory,
        everything: EveryResource,
    ) -> None:
        self._controllers = tuple(controllers)
        self._informers = informers
        self._everything = everything
        self._stopped = asyncio.Event()
        informers.start()
        everything.start()

    def __getitem__(self, name: str) -> Controller[Any]:
        for controller in self._controllers:
            if controller.name == name:
                return controller
        raise KeyError(name)

    async def run(self) -> None:
        """Run all controllers until `stop` or cancellation."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(controller.run(), name=f"controller/{controller.name}")
                    for controller in self._controllers
                ]
                await self._stopped.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self.disconnect()

    def stop(self) -> None:
        """End `run`. Queued keys are not lost: the next start finds them again."""
        self._stopped.set()

    def disconnect(self) -> None:
        """Unsubscribe every controller from the server."""
        self._informers.stop()
        self._everything.stop()

    def step(self) -> int:
        """Let every controller process its due keys once; returns the number of synced keys."""
        return sum(controller.process() for controller in self._controllers)

    def settle(self) -> int:
        """Process keys until none is due now; returns the number of synced keys."""
        total = 0
        while done := self.step():
            total += done
            assert total < _SETTLE_LIMIT, "controllers keep each other busy without end"
        return total

    def next_due_s(self) -> float | None:
        """Seconds until the first key is due; None if nothing is scheduled."""
        waits = [
            wait
            for controller in self._controllers
            if (wait := controller.queue.next_due_s()) is not None
        ]
        return min(waits, default=None)


def start_all(
    api: LocalApi,
    clock: Clock,
    rng: random.Random,
    options: ControllerOptions | None = None,
    gates: FeatureGates = DEFAULT_GATES,
) -> ControllerSet:
    """Connect all enabled controllers; `ControllerSet.run` starts them."""
    options = options if options is not None else ControllerOptions()
    manager_api = api.as_manager("kube-controller-manager")
    kubelet_api = api.as_manager("kubelet")
    informers = InformerFactory(manager_api)
    everything = EveryResource(manager_api)
    seed = rng.getrandbits(64)
    recorder = EventRecorder(manager_api, clock, enabled=options.events)
    kubelet_recorder = EventRecorder(kubelet_api, clock, enabled=options.events)
    heartbeats = HeartbeatClock(clock)
    context = ControllerContext(manager_api, clock, seed, informers, recorder, heartbeats)
    kubelet_context = ControllerContext(
        kubelet_api, clock, seed, informers, kubelet_recorder, heartbeats
    )
    given: dict[type[Controller[Any]], tuple[Any, ...]] = {
        GarbageCollector: (everything,),
        NamespaceController: (everything,),
        ResourceQuotaController: (everything,),
        PodGcController: (options.finished_pod_limit,),
        JobController: (gates.enabled("WorkloadWithJob"),),
        ResourceClaimController: (gates.enabled("DRAWorkloadResourceClaims"),),
    }
    left_out = {controller for controller in CONTROLLERS if controller.name in options.disabled}
    if not any(resource.key == POD_GROUPS for resource in api.catalog):
        left_out.add(PodGroupProtection)
    if options.storage:
        given |= {CsiPublisher: (options.storage,), Provisioner: (options.storage,)}
    else:
        left_out |= {CsiPublisher, Provisioner}
    kubelet = options.kubelet
    drivers: dict[str, tuple[PoolDriver, ...]] = {}
    if kubelet is not None:
        planned = plan_nodes(kubelet.pools, kubelet.nodes)
        drivers = {node.name: node.pool.drivers for node in planned if node.pool.drivers}
        given |= {NodeKeeper: (kubelet,), PodPlayer: (kubelet,), DevicePublisher: (drivers,)}
    else:
        left_out |= {NodeKeeper, PodPlayer}
    if not drivers:
        left_out.add(DevicePublisher)
    controllers = [
        controller(
            kubelet_context if controller in KUBELETS else context, *given.get(controller, ())
        )
        for controller in CONTROLLERS
        if controller not in left_out
    ]
    return ControllerSet(controllers, informers, everything)
