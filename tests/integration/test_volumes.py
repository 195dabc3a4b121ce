"""Storage-aware scheduling over HTTPS: kubectl applies manifests, the scheduler binds claims and
pods.

The same stories run against the embedded cluster, whose own volume binder, provisioner and CSI
objects take part, and against a real API server where `$KUBEBUILDER_ASSETS` names one; there a few
lines play the volume controller.
"""

from __future__ import annotations

import json
import shutil

import pytest
from worlds import HOSTNAME, SELECTED_NODE, ZONE, WorldSettings

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.base.errors import NotFound
from kubesched.playground.controllers.volumes import StorageDriver

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
NODES = {"node-0": "zone-a", "node-1": "zone-b", "node-2": "zone-c"}

DRIVERS = (
    StorageDriver(name="plain.example.com", storage_class="plain", is_default=False),
    StorageDriver(
        name="limited.example.com", storage_class="limited", is_default=False, volumes_per_node=1
    ),
    StorageDriver(name="tracked.example.com", storage_class="tracked", is_default=False),
)

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


# -- manifests -------------------------------------------------------------------------------------


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
        {"name": f"v{at}", "persistentVolumeClaim": {"claimName": item}}
        for at, item in enumerate(claims)
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


@pytest.fixture
def world_settings():
    return WorldSettings(nodes=NODES, drivers=DRIVERS, capacities={"tracked": "5Gi"})


# -- stories ---------------------------------------------------------------------------------------


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
        " preemption: 0/3 nodes are available:"
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
        " preemption: 0/3 nodes are available:"
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
        " preemption: 0/3 nodes are available:"
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


async def test_pods_that_wait_for_volumes_keep_no_other_pod_waiting(world) -> None:
    """A provisioner that never answers holds its own pods, and only those."""
    count = 40
    await world.apply(
        storage_class("never", "absent.invalid"),
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
    assert not any(item.spec.node_name for item in stuck)
