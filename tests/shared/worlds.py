"""Clusters for stories that are told to two control planes: kubectl applies manifests, our
scheduler decides.

The embedded cluster brings its own kubelets and controllers. A real API server comes alone: there a
few lines each play the kubelets, the keeper of disruption budgets, and the volume controller with
its provisioner. What they do is all that the stories need of them, and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.meta import DeleteOptions
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.storage_v1 import StorageClass
from kubesched.app.connecting import connections_to
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.errors import ApiError, NotFound
from kubesched.client.client_config import load_config
from kubesched.client.patch import merge_patch, strategic_merge_patch
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.controllers.volumes import StorageDriver
from kubesched.playground.kubelet.node_templates import NodePool
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.testing.control_plane import ASSETS_VARIABLE, control_plane, find_assets

PATIENCE_S = 300.0
POLL_S = 0.05
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
AT_ONCE = DeleteOptions(grace_period_seconds=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """What a module of stories needs; it says so with a fixture of the name `world_settings`."""

    nodes: Mapping[str, str] = field(default_factory=lambda: {"node-0": "zone-a"})
    """Name -> zone."""
    capacity: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "2", "memory": "8Gi", "pods": "20"}
    )
    drivers: tuple[StorageDriver, ...] = ()
    capacities: Mapping[str, str] = field(default_factory=dict)
    """Storage class -> free storage in each zone, of drivers that publish it."""
    gates: FeatureGates = DEFAULT_GATES


class World:
    """A cluster with nodes and our scheduler."""

    def __init__(self, kubectl, admin, *, is_real):
        self.kubectl = kubectl
        self.admin = admin
        self.is_real = is_real

    async def apply(self, *objects):
        documents = "\n".join(json.dumps(item) for item in objects)
        await self.kubectl("apply", "-f", "-", stdin=documents)

    async def eventually(self, find, what):
        """The first true answer."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if result := await find():
                        return result
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"never happened: {what}") from None

    # -- pods --------------------------------------------------------------------------------------

    async def pod(self, name):
        return await self.admin.get(Pod, name, "default")

    async def node_of(self, name):
        """Wait until the pod has a node; its name."""

        async def bound():
            return (await self.pod(name)).spec.node_name

        return await self.eventually(bound, f"pod {name} is bound")

    async def running(self, app=None):
        """Name -> node of the pods that run."""
        return {
            item.metadata.name: item.spec.node_name
            for item in (await self.admin.list(Pod, "default")).items
            if item.status.phase == "Running"
            and item.metadata.deletion_timestamp is None
            and (app is None or (item.metadata.labels or {}).get("app") == app)
        }

    async def until_running(self, *names, count=None):
        """Wait until these pods run, or that many of any name."""

        async def all_run():
            result = await self.running()
            return set(names) <= result.keys() and (count is None or len(result) == count)

        await self.eventually(all_run, f"pods {', '.join(names) or count} run")

    async def message(self, name, *, other_than=""):
        """Wait until the scheduler says why the pod is not placed."""

        async def said():
            for condition in (await self.pod(name)).status.conditions or ():
                if condition.type == "PodScheduled" and condition.message != other_than:
                    assert condition.status == "False"
                    return condition.message
            return None

        return await self.eventually(said, f"pod {name} is told why")

    async def delete_pod(self, name):
        """Remove a pod at once, if it is there."""
        force = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
        await self.kubectl("delete", "pod", name, *force)

        async def gone():
            try:
                await self.pod(name)
            except NotFound:
                return True
            return False

        await self.eventually(gone, f"pod {name} is gone")

    async def events(self, reason, count=1):
        """Wait until there are at least so many events of a reason."""

        async def find():
            listed = json.loads(await self.admin.get_raw("/apis/events.k8s.io/v1/events"))["items"]
            matching = [event for event in listed if event["reason"] == reason]
            return matching if len(matching) >= count else None

        return await self.eventually(find, f"{count} events {reason}")

    # -- volumes -----------------------------------------------------------------------------------

    async def bound_claim(self, name):
        async def bound():
            result = await self.admin.get(PersistentVolumeClaim, name, "default")
            return result if result.status.phase == "Bound" else None

        return await self.eventually(bound, f"claim {name} is bound")

    async def available(self, *names):
        """Wait until volumes can be had."""

        async def all_available():
            result = [await self.admin.get(PersistentVolume, name, "") for name in names]
            return all(item.status.phase == "Available" for item in result)

        await self.eventually(all_available, f"volumes {', '.join(names)} are available")

    async def volume_of(self, name):
        result = await self.bound_claim(name)
        return await self.admin.get(PersistentVolume, result.spec.volume_name, "")


# -- what a control plane without controllers lacks ------------------------------------------------


class Player:
    """Looks at the cluster over and over, and does what is to be done."""

    def __init__(self, admin):
        self.admin = admin

    async def run(self):
        while True:
            with contextlib.suppress(ApiError):  # another writer was faster; the next read shows it
                await self.look()
            await asyncio.sleep(POLL_S)

    async def set_status(self, kind, obj, **status):
        meta, patch = obj.metadata, strategic_merge_patch({"status": status})
        await self.admin.patch(kind, meta.name, meta.namespace, patch, subresource="status")


class Kubelets(Player):
    """Run what is bound, and let go of what is deleted."""

    async def look(self):
        for pod in (await self.admin.list(Pod)).items:
            if not pod.spec.node_name:
                continue
            if pod.metadata.deletion_timestamp is not None:
                meta = pod.metadata
                await self.admin.delete(Pod, meta.name, meta.namespace, AT_ONCE)
            elif pod.status.phase == "Pending":
                ready = [{"type": "Ready", "status": "True"}]
                await self.set_status(Pod, pod, phase="Running", conditions=ready)


class BudgetKeeper(Player):
    """Says how many pods a budget can spare; budgets name a number of pods here."""

    async def look(self):
        pods = (await self.admin.list(Pod)).items
        for budget in (await self.admin.list(PodDisruptionBudget)).items:
            wanted = budget.spec.selector.match_labels.items()
            chosen = [
                pod
                for pod in pods
                if pod.metadata.namespace == budget.metadata.namespace
                and wanted <= (pod.metadata.labels or {}).items()
            ]
            healthy = sum(
                pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
                for pod in chosen
            )
            desired = int(budget.spec.min_available)
            if budget.status.current_healthy != healthy:
                await self.set_status(
                    PodDisruptionBudget,
                    budget,
                    disruptionsAllowed=max(0, healthy - desired),
                    currentHealthy=healthy,
                    desiredHealthy=desired,
                    expectedPods=len(chosen),
                    observedGeneration=budget.metadata.generation,
                )


class VolumeController(Player):
    """Binds what is reserved, provisions what is asked for."""

    async def look(self):
        admin = self.admin
        volumes = {item.metadata.name: item for item in (await admin.list(PersistentVolume)).items}
        classes = {item.metadata.name: item for item in (await admin.list(StorageClass)).items}
        for volume in volumes.values():
            if volume.spec.claim_ref is None and volume.status.phase != "Available":
                await self.set_status(PersistentVolume, volume, phase="Available")
        for item in (await admin.list(PersistentVolumeClaim)).items:
            if BIND_COMPLETED not in (item.metadata.annotations or {}):
                await self._serve(item, volumes, classes)

    async def _serve(self, claim, volumes, classes):
        meta = claim.metadata
        reserved = [
            volume
            for volume in volumes.values()
            if (ref := volume.spec.claim_ref) is not None and ref.uid == meta.uid
        ]
        if reserved:
            await self._bind(claim, reserved[0])
            return
        storage_class = classes.get(claim.spec.storage_class_name or "")
        if storage_class is None:
            return
        node = (meta.annotations or {}).get(SELECTED_NODE)
        waits = storage_class.volume_binding_mode == "WaitForFirstConsumer"
        if node is not None and storage_class.provisioner.endswith(".example.com"):
            await self._provision(claim, storage_class, node)
        elif not waits:
            for volume in volumes.values():
                if (
                    volume.spec.claim_ref is None
                    and volume.spec.storage_class_name == storage_class.metadata.name
                ):
                    await self._reserve(claim, volume)
                    return

    async def _provision(self, claim, storage_class, node):
        meta = claim.metadata
        zone = (await self.admin.get(Node, node, "")).metadata.labels[ZONE]
        name = f"pvc-{meta.uid}"
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        made = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": list(claim.spec.access_modes),
                "storageClassName": storage_class.metadata.name,
                "csi": {"driver": storage_class.provisioner, "volumeHandle": name},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
                },
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": meta.namespace,
                    "name": meta.name,
                    "uid": meta.uid,
                },
            },
        }
        await self.admin.post_raw("/api/v1/persistentvolumes", json.dumps(made).encode())

    async def _reserve(self, claim, volume):
        meta = claim.metadata
        reference = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        patch = merge_patch({"spec": {"claimRef": reference}})
        await self.admin.patch(PersistentVolume, volume.metadata.name, "", patch)

    async def _bind(self, claim, volume):
        meta, name = claim.metadata, volume.metadata.name
        patch = merge_patch(
            {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
        )
        await self.admin.patch(PersistentVolumeClaim, meta.name, meta.namespace, patch)
        await self.set_status(PersistentVolume, volume, phase="Bound")
        await self.set_status(PersistentVolumeClaim, claim, phase="Bound")


def surroundings_by_hand(settings):
    """Nodes and everything the drivers would publish."""
    room = dict(settings.capacity)
    for name, zone in settings.nodes.items():
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
            "status": {"allocatable": room, "capacity": room},
        }
        drivers = [
            {"name": driver.name, "nodeID": name, "topologyKeys": [ZONE]}
            | (
                {"allocatable": {"count": driver.volumes_per_node}}
                if driver.volumes_per_node
                else {}
            )
            for driver in settings.drivers
        ]
        yield _storage("CSINode", name, spec={"drivers": drivers})
    for driver in settings.drivers:
        yield _storage(
            "StorageClass",
            driver.storage_class,
            provisioner=driver.name,
            volumeBindingMode="WaitForFirstConsumer",
        )
    yield from capacities_by_hand(settings)


def capacities_by_hand(settings):
    """Drivers, and the storage that they say is free."""
    for driver in settings.drivers:
        capacity = settings.capacities.get(driver.storage_class)
        spec = {"attachRequired": False, "storageCapacity": capacity is not None}
        yield _storage("CSIDriver", driver.name, spec=spec)
        for zone in sorted(set(settings.nodes.values())) if capacity else ():
            made = _storage(
                "CSIStorageCapacity",
                f"{driver.storage_class}-{zone}",
                storageClassName=driver.storage_class,
                nodeTopology={"matchLabels": {ZONE: zone}},
                capacity=capacity,
            )
            made["metadata"]["namespace"] = "kube-system"
            yield made


def _storage(kind, name, **fields):
    made = {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    return made | fields


# -- the two control planes ------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def admin_client(kubeconfig):
    transport = HttpTransport(load_config(str(kubeconfig)).connection)
    try:
        yield RestClient(transport, user_agent="test", random=Random(1))
    finally:
        await transport.aclose()


@contextlib.asynccontextmanager
async def scheduler(kubeconfig, gates):
    connection = load_config(str(kubeconfig)).connection
    async with (
        connections_to(connection, qps=-1.0, random=Random(2)) as connections,
        asyncio.TaskGroup() as group,
    ):
        app = SchedulerApp(
            default_config(gates), gates, connections.main, connections.events.recorder
        )
        tasks = [group.create_task(app.run()), group.create_task(connections.events.run())]
        await app.synced.wait()
        try:
            yield app
        finally:
            for task in tasks:
                task.cancel()


@contextlib.asynccontextmanager
async def embedded_world(settings, tmp_path, kubectl):
    pool = NodePool(name="node", zones=tuple(settings.nodes.values()), capacity=settings.capacity)
    cluster = ClusterSettings(
        kubeconfig=tmp_path / "kubeconfig",
        controllers=ControllerOptions(
            kubelet=KubeletOptions(nodes=len(settings.nodes), pools=(pool,)),
            storage=settings.drivers,
        ),
    )
    async with EmbeddedCluster(cluster), admin_client(cluster.kubeconfig) as admin:
        world = World(kubectl, admin, is_real=False)

        async def ready():
            nodes = (await admin.list(Node)).items
            return len(nodes) == len(settings.nodes) and all(
                any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
                for node in nodes
            )

        await world.eventually(ready, "nodes are ready")
        result = {n.metadata.name: n.metadata.labels[ZONE] for n in (await admin.list(Node)).items}
        assert result == settings.nodes
        if settings.capacities:
            await world.apply(*capacities_by_hand(settings))
        async with scheduler(cluster.kubeconfig, settings.gates):
            yield world


@contextlib.asynccontextmanager
async def real_world(settings, tmp_path, kubectl):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(
            f"needs etcd and kube-apiserver: set ${ASSETS_VARIABLE} to the folder that holds them"
        )
    async with control_plane(find_assets(), tmp_path / "plane") as plane:
        shutil.copy(plane.admin_kubeconfig, tmp_path / "kubeconfig")
        world = World(kubectl, plane.client, is_real=True)
        await world.apply(*surroundings_by_hand(settings))
        async with scheduler(plane.scheduler_kubeconfig, settings.gates):
            players = [
                asyncio.create_task(player(plane.client).run())
                for player in (Kubelets, BudgetKeeper, VolumeController)
            ]
            try:
                yield world
            finally:
                for task in players:
                    task.cancel()
                await asyncio.wait(players)
                for task in players:
                    if not task.cancelled():
                        task.result()
