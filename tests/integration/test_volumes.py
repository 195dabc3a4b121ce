"""Storage-aware scheduling over HTTPS: kubectl applies manifests, the scheduler binds claims and pods.

The same stories run against the embedded cluster, whose own volume binder, provisioner and CSI objects take part, and
against a real API server where `$KUBEBUILDER_ASSETS` names one; there a few lines play the volume controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from random import Random

import pytest

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.storage_v1 import StorageClass
from kubesched.app.connecting import Connections
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.client.client_config import load_config
from kubesched.client.patch import merge_patch
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.embedded.cluster import ClusterSettings, EmbeddedCluster
from kubesched.embedded.controllers import ControllerOptions
from kubesched.embedded.controllers.volumes import StorageDriver
from kubesched.embedded.kubelet.node_templates import NodePool
from kubesched.embedded.kubelet.options import KubeletOptions
from kubesched.errors import ApiError, NotFound
from kubesched.testing.control_plane import ASSETS_VARIABLE, control_plane, find_assets

PATIENCE_S = 60.0
POLL_S = 0.05
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
NODES = {"node-0": "zone-a", "node-1": "zone-b", "node-2": "zone-c"}

DRIVERS = (
    StorageDriver(name="plain.example.com", storage_class="plain", is_default=False),
    StorageDriver(
        name="limited.example.com", storage_class="limited", is_default=False, volumes_per_node=1
    ),
    StorageDriver(
        name="tracked.example.com",
        storage_class="tracked",
        is_default=False,
        segment_capacity="5Gi",
    ),
)

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


# -- manifests ---------------------------------------------------------------------------------------------------------


def claim(name, storage_class, size="1Gi", mode="ReadWriteOnce"):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": [mode],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        },
    }


def pod(name, *claims, cpu="100m", **spec):
    volumes = [
        {"name": f"v{at}", "persistentVolumeClaim": {"claimName": each}}
        for at, each in enumerate(claims)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
            "volumes": volumes,
            **spec,
        },
    }


def storage_class(name, provisioner, mode="WaitForFirstConsumer", **more):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **more,
    }


def local_volume(name, node, storage_class="local", size="1Gi", **spec):
    expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            },
            **spec,
        },
    }


LOCAL = storage_class("local", "kubernetes.io/no-provisioner")


# -- clusters ----------------------------------------------------------------------------------------------------------


class World:
    """A cluster with three nodes, storage drivers, volume controllers, and our scheduler."""

    def __init__(self, kubectl, admin):
        self.kubectl = kubectl
        self.admin = admin

    async def apply(self, *objects):
        documents = "\n".join(json.dumps(each) for each in objects)
        await self.kubectl("apply", "-f", "-", stdin=documents)

    async def eventually(self, find, what):
        """The first true answer."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if found := await find():
                        return found
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"never happened: {what}") from None

    async def node_of(self, name):
        """Wait until the pod has a node; its name."""

        async def bound():
            return (await self.admin.get(Pod, name, "default")).spec.node_name

        return await self.eventually(bound, f"pod {name} is bound")

    async def message(self, name, *, other_than=""):
        """Wait until the scheduler says why the pod is not placed."""

        async def said():
            found = await self.admin.get(Pod, name, "default")
            for condition in found.status.conditions or ():
                if condition.type == "PodScheduled" and condition.message != other_than:
                    assert condition.status == "False"
                    return condition.message
            return None

        return await self.eventually(said, f"pod {name} is told why")

    async def bound_claim(self, name):
        async def bound():
            found = await self.admin.get(PersistentVolumeClaim, name, "default")
            return found if found.status.phase == "Bound" else None

        return await self.eventually(bound, f"claim {name} is bound")

    async def available(self, *names):
        """Wait until volumes can be had."""

        async def all_available():
            found = [await self.admin.get(PersistentVolume, name, "") for name in names]
            return all(each.status.phase == "Available" for each in found)

        await self.eventually(all_available, f"volumes {', '.join(names)} are available")

    async def volume_of(self, name):
        found = await self.bound_claim(name)
        return await self.admin.get(PersistentVolume, found.spec.volume_name, "")

    async def delete_pod(self, name):
        """Remove a pod at once, if it is there: a control plane without kubelets would keep it for ever."""
        force = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
        await self.kubectl("delete", "pod", name, *force)

        async def gone():
            try:
                await self.admin.get(Pod, name, "default")
            except NotFound:
                return True
            return False

        await self.eventually(gone, f"pod {name} is gone")


class VolumeController:
    """Plays what a control plane without controllers lacks: binds what is reserved, provisions what is asked for."""

    def __init__(self, admin):
        self._admin = admin

    async def run(self):
        while True:
            with contextlib.suppress(ApiError):  # somebody was faster; the next look finds out
                await self._look()
            await asyncio.sleep(POLL_S)

    async def _look(self):
        admin = self._admin
        volumes = {each.metadata.name: each for each in (await admin.list(PersistentVolume)).items}
        classes = {each.metadata.name: each for each in (await admin.list(StorageClass)).items}
        for each in volumes.values():
            if each.spec.claim_ref is None and each.status.phase != "Available":
                await self._phase(PersistentVolume, each, "Available")
        for each in (await admin.list(PersistentVolumeClaim)).items:
            if BIND_COMPLETED not in (each.metadata.annotations or {}):
                await self._serve(each, volumes, classes)

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
        zone = (await self._admin.get(Node, node, "")).metadata.labels[ZONE]
        name = f"pvc-{meta.uid}"
        made = local_volume(name, node, storage_class.metadata.name)
        del made["spec"]["local"]
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        made["spec"] |= {
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
        }
        await self._admin.post_raw("/api/v1/persistentvolumes", json.dumps(made).encode())

    async def _reserve(self, claim, volume):
        meta = claim.metadata
        reference = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        patch = merge_patch({"spec": {"claimRef": reference}})
        await self._admin.patch(PersistentVolume, volume.metadata.name, "", patch)

    async def _bind(self, claim, volume):
        meta, name = claim.metadata, volume.metadata.name
        patch = merge_patch(
            {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
        )
        await self._admin.patch(PersistentVolumeClaim, meta.name, meta.namespace, patch)
        await self._phase(PersistentVolume, volume, "Bound")
        await self._phase(PersistentVolumeClaim, claim, "Bound")

    async def _phase(self, kind, obj, phase):
        meta, patch = obj.metadata, merge_patch({"status": {"phase": phase}})
        await self._admin.patch(kind, meta.name, meta.namespace, patch, subresource="status")


@contextlib.asynccontextmanager
async def admin_client(kubeconfig):
    transport = HttpTransport(load_config(str(kubeconfig)).connection)
    try:
        yield RestClient(transport, user_agent="test", random=Random(1))
    finally:
        await transport.aclose()


@contextlib.asynccontextmanager
async def scheduler(kubeconfig):
    connection = load_config(str(kubeconfig)).connection
    async with (
        Connections(connection, qps=-1.0, random=Random(2)) as connections,
        asyncio.TaskGroup() as group,
    ):
        app = SchedulerApp(
            default_config(DEFAULT_GATES), DEFAULT_GATES, connections.main, connections.recorder
        )
        tasks = [group.create_task(app.run()), group.create_task(connections.write_events())]
        await app.synced.wait()
        try:
            yield app
        finally:
            for task in tasks:
                task.cancel()


@contextlib.asynccontextmanager
async def embedded_world(tmp_path, kubectl):
    pool = NodePool(
        name="node",
        zones=tuple(NODES.values()),
        capacity={"cpu": "2", "memory": "8Gi", "pods": "20"},
    )
    settings = ClusterSettings(
        kubeconfig=tmp_path / "kubeconfig",
        controllers=ControllerOptions(
            kubelet=KubeletOptions(nodes=len(NODES), pools=(pool,)), storage=DRIVERS
        ),
    )
    async with (
        EmbeddedCluster(settings),
        admin_client(tmp_path / "kubeconfig") as admin,
    ):
        world = World(kubectl, admin)

        async def ready():
            nodes = (await admin.list(Node)).items
            return len(nodes) == len(NODES) and all(
                any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
                for node in nodes
            )

        await world.eventually(ready, "nodes are ready")
        found = {n.metadata.name: n.metadata.labels[ZONE] for n in (await admin.list(Node)).items}
        assert found == NODES
        async with scheduler(tmp_path / "kubeconfig"):
            yield world


@contextlib.asynccontextmanager
async def real_world(tmp_path, kubectl):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(
            f"needs etcd and kube-apiserver: set ${ASSETS_VARIABLE} to the folder that holds them"
        )
    async with control_plane(find_assets(), tmp_path / "plane") as plane:
        shutil.copy(plane.admin_kubeconfig, tmp_path / "kubeconfig")
        world = World(kubectl, plane.client)
        await world.apply(*drivers_by_hand())
        async with scheduler(plane.scheduler_kubeconfig):
            player = asyncio.create_task(VolumeController(plane.client).run())
            try:
                yield world
            finally:
                player.cancel()
                await asyncio.wait([player])


def drivers_by_hand():
    """Nodes and everything the drivers would publish."""
    room = {"cpu": "2", "memory": "8Gi", "pods": "20"}
    for name, zone in NODES.items():
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
            "status": {"allocatable": room, "capacity": room},
        }
        drivers = [
            {"name": each.name, "nodeID": name, "topologyKeys": [ZONE]}
            | ({"allocatable": {"count": each.volumes_per_node}} if each.volumes_per_node else {})
            for each in DRIVERS
        ]
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": drivers},
        }
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": f"tracked-{zone}", "namespace": "kube-system"},
            "storageClassName": "tracked",
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "capacity": "5Gi",
        }
    for each in DRIVERS:
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": each.name},
            "spec": {"attachRequired": False, "storageCapacity": bool(each.segment_capacity)},
        }
        yield storage_class(each.storage_class, each.name)


@pytest.fixture(
    params=[
        pytest.param(embedded_world, id="embedded"),
        pytest.param(real_world, id="real", marks=pytest.mark.real),
    ]
)
async def world(request, tmp_path, kubectl):
    async with request.param(tmp_path, kubectl) as found:
        yield found


# -- stories -----------------------------------------------------------------------------------------------------------


async def test_a_pod_goes_where_its_local_volume_is(world) -> None:
    await world.apply(
        LOCAL,
        local_volume("big", "node-2", size="9Gi"),
        local_volume("small", "node-2", size="2Gi"),
    )
    await world.available("big", "small")
    await world.apply(claim("data", "local", "2Gi"), pod("p", "data"))
    assert await world.node_of("p") == "node-2"
    volume = await world.volume_of("data")
    assert volume.metadata.name == "small"
    assert volume.metadata.annotations[BOUND_BY_CONTROLLER] == "yes"
    reference, bound = volume.spec.claim_ref, await world.bound_claim("data")
    assert (reference.kind, reference.api_version) == ("PersistentVolumeClaim", "v1")
    assert (reference.namespace, reference.name) == ("default", "data")
    assert reference.uid == bound.metadata.uid
    untouched = await world.admin.get(PersistentVolume, "big", "")
    assert untouched.spec.claim_ref is None


async def test_what_the_scheduler_does_not_know_of_a_volume_survives_its_write(world) -> None:
    volume = local_volume("v", "node-1", mountOptions=["noatime"])
    del volume["spec"]["local"]
    volume["spec"]["csi"] = {
        "driver": "plain.example.com",
        "volumeHandle": "h",
        "nodeStageSecretRef": {"name": "secret", "namespace": "default"},
        "volumeAttributes": {"a": "b"},
    }
    volume["metadata"]["annotations"] = {"note": "mine"}
    await world.apply(LOCAL, volume, claim("data", "local"), pod("p", "data"))
    assert await world.node_of("p") == "node-1"
    after = json.loads(await world.admin.get_raw("/api/v1/persistentvolumes/v"))
    assert after["spec"]["csi"] == volume["spec"]["csi"]
    assert after["spec"]["mountOptions"] == ["noatime"]
    assert after["metadata"]["annotations"]["note"] == "mine"


async def test_a_volume_is_provisioned_where_the_class_allows_and_the_pod_goes_there(world) -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-b"]}]}]
    await world.apply(
        storage_class("only-b", "plain.example.com", allowedTopologies=allowed),
        claim("data", "only-b"),
        pod("p", "data"),
    )
    node = await world.node_of("p")
    assert NODES[node] == "zone-b"
    bound = await world.bound_claim("data")
    assert bound.metadata.annotations[SELECTED_NODE] == node
    terms = (await world.volume_of("data")).spec.node_affinity.required.node_selector_terms
    assert terms[0].match_expressions[0].values == ["zone-b"]


async def test_pods_follow_a_bound_claim_to_its_zone(world) -> None:
    await world.apply(claim("data", "plain"), pod("first", "data"))
    zone = NODES[await world.node_of("first")]
    await world.bound_claim("data")
    await world.apply(*(pod(f"next{number}", "data") for number in range(3)))
    for number in range(3):
        assert NODES[await world.node_of(f"next{number}")] == zone


async def test_static_and_provisioned_claims_of_one_pod(world) -> None:
    await world.apply(
        LOCAL,
        local_volume("v", "node-0"),
        claim("static", "local"),
        claim("dynamic", "plain"),
        pod("p", "dynamic", "static"),
    )
    assert await world.node_of("p") == "node-0"
    assert (await world.volume_of("static")).metadata.name == "v"
    assert (await world.volume_of("dynamic")).spec.csi.driver == "plain.example.com"


async def test_a_pod_waits_for_its_claim_and_is_told_so(world) -> None:
    await world.apply(pod("p", "data"))
    assert await world.message("p") == (
        '0/3 nodes are available: persistentvolumeclaim "data" not found. not found'
    )
    await world.apply(claim("data", "plain"))
    await world.node_of("p")


async def test_a_pod_waits_for_immediate_binding_and_is_told_so(world) -> None:
    await world.apply(
        storage_class("now", "kubernetes.io/no-provisioner", "Immediate"),
        claim("data", "now"),
        pod("p", "data"),
    )
    assert await world.message("p") == (
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    )
    await world.apply(local_volume("v", "node-0", "now"))
    assert await world.node_of("p") == "node-0"


async def test_a_claim_nothing_can_serve_says_so_until_a_volume_comes(world) -> None:
    await world.apply(LOCAL, claim("data", "local"), pod("p", "data"))
    assert await world.message("p") == (
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."
        " no new claims to deallocate, preemption: 0/3 nodes are available:"
        " 3 Preemption is not helpful for scheduling."
    )
    await world.apply(local_volume("v", "node-1"))
    assert await world.node_of("p") == "node-1"


async def test_nodes_take_no_more_volumes_than_their_driver_allows(world) -> None:
    names = [f"c{number}" for number in range(4)]
    await world.apply(*(claim(name, "limited") for name in names))
    await world.apply(*(pod(f"p-{name}", name) for name in names[:3]))
    nodes = [await world.node_of(f"p-{name}") for name in names[:3]]
    assert sorted(nodes) == sorted(NODES)
    await world.apply(pod("late", names[3]))
    assert await world.message("late") == (
        "0/3 nodes are available: 3 node(s) exceed max volume count."
        " no new claims to deallocate, preemption: 0/3 nodes are available:"
        " 3 No preemption victims found for incoming pod."
    )
    await world.delete_pod("p-c1")
    assert await world.node_of("late") == nodes[1]


async def test_storage_capacity_limits_what_is_provisioned(world) -> None:
    await world.apply(claim("huge", "tracked", "6Gi"), claim("fits", "tracked", "4Gi"))
    await world.apply(pod("big", "huge"), pod("small", "fits"))
    assert (await world.message("big")).startswith(
        "0/3 nodes are available: 3 node(s) did not have enough free storage."
    )
    await world.node_of("small")


async def test_an_exclusive_claim_has_one_pod_at_a_time(world) -> None:
    await world.apply(claim("data", "plain", mode="ReadWriteOncePod"), pod("first", "data"))
    node = await world.node_of("first")
    await world.apply(pod("second", "data"))
    assert await world.message("second") == (
        "0/3 nodes are available: 3 node(s) unavailable due to PersistentVolumeClaim with"
        " ReadWriteOncePod access mode already in-use by another pod."
        " no new claims to deallocate, preemption: 0/3 nodes are available:"
        " 3 No preemption victims found for incoming pod."
    )
    await world.delete_pod("first")
    assert NODES[await world.node_of("second")] == NODES[node]


async def test_an_important_pod_takes_an_exclusive_claim_from_another(world) -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    await world.apply(
        urgent, claim("data", "plain", mode="ReadWriteOncePod"), pod("holder", "data")
    )
    node = await world.node_of("holder")
    await world.apply(pod("important", "data", priorityClassName="urgent"))

    async def evicted():
        try:
            return (await world.admin.get(Pod, "holder", "default")).metadata.deletion_timestamp
        except NotFound:
            return True

    await world.eventually(evicted, "the holder is evicted")
    await world.delete_pod("holder")
    assert NODES[await world.node_of("important")] == NODES[node]


async def test_pods_that_wait_for_volumes_keep_nobody_else_waiting(world) -> None:
    """A provisioner that never answers holds its own pods, and only those."""
    count = 40
    await world.apply(
        storage_class("never", "nobody.invalid"),
        *(claim(f"c{number}", "never") for number in range(count)),
        *(pod(f"stuck{number}", f"c{number}", cpu="1m") for number in range(count)),
    )

    async def all_selected():
        claims = (await world.admin.list(PersistentVolumeClaim)).items
        return sum(SELECTED_NODE in (c.metadata.annotations or {}) for c in claims) == count

    await world.eventually(all_selected, "every claim has its node")
    await world.apply(pod("plain"))
    await world.node_of("plain")
    stuck = [await world.admin.get(Pod, f"stuck{number}", "default") for number in range(count)]
    assert not any(each.spec.node_name for each in stuck)
