"""Pods that wait for volumes block neither other bindings nor the scheduling loop."""

import asyncio

import msgspec

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.storage_v1 import StorageClass
from kubesched.base.errors import Conflict
from kubesched.scheduler.scheduler import MAX_BINDINGS
from kubesched.testing import Cluster, make_node, make_pod

SELECTED_NODE = "volume.kubernetes.io/selected-node"


def storage_class():
    return msgspec.convert(
        {
            "metadata": {"name": "slow"},
            "provisioner": "slow.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        StorageClass,
    )


def claim(name):
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "resourceVersion": "1"},
            "spec": {
                "storageClassName": "slow",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        },
        PersistentVolumeClaim,
    )


def volume(name):
    return msgspec.convert(
        {
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": {
                "storageClassName": "slow",
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
            },
            "status": {"phase": "Available"},
        },
        PersistentVolume,
    )


def test_a_plain_pod_is_bound_while_more_pods_wait_than_bindings_are_allowed():
    count = MAX_BINDINGS + 10
    with Cluster() as world:
        world.add(make_node("n1").capacity(cpu="64", memory="64Gi", pods=str(2 * count)).build())
        world.listers.of(StorageClass).put(storage_class())
        claims = world.listers.of(PersistentVolumeClaim)
        for number in range(count):
            claims.put(claim(f"c{number}"))
            world.add(make_pod(f"slow{number}").claim(f"c{number}").build())

        world.settle()
        assert all(SELECTED_NODE in (c.metadata.annotations or {}) for c in claims.list())
        assert world.assembly.scheduler.binding.waiting_count == count
        world.add(make_pod("plain").build())
        world.settle()
        assert world.client.bindings == {"default/plain": "n1"}
    assert world.assembly.scheduler.binding.waiting_count == 0


def test_a_pod_is_not_told_of_a_volume_that_is_given_back():
    """Upstream: that a volume is no longer assumed is no event; the pod waits for the five-minute
    flush.
    """
    with Cluster() as world:
        world.add(make_node("n1").capacity(cpu="64", memory="64Gi", pods="110").build())
        world.listers.of(StorageClass).put(
            msgspec.structs.replace(storage_class(), provisioner="kubernetes.io/no-provisioner")
        )
        disks = world.listers.of(PersistentVolume)
        disks.put(volume("disk"))
        for name in ("a", "b"):
            world.listers.of(PersistentVolumeClaim).put(claim(name))
        update, is_answered = world.client.update, asyncio.Event()

        async def refuse(obj):
            await is_answered.wait()
            raise Conflict(obj.metadata.name)

        world.client.update = refuse
        world.add(make_pod("first").claim("a").build())
        world.settle()
        world.add(make_pod("second").claim("b").build())
        world.settle()
        assert world.condition("second")[1].startswith(
            "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
        )
        world.delete(world.pod("first"))
        is_answered.set()
        world.settle()
        world.client.update = update
        world.advance(200)
        assert disks.get("", "disk").spec.claim_ref is None, "not tried yet"
        world.advance(200)
        assert disks.get("", "disk").spec.claim_ref.name == "b"
