"""Pods that wait for volumes block neither other bindings nor the scheduling loop."""

import asyncio

import msgspec

from kubesched.api.core_v1 import PersistentVolumeClaim
from kubesched.api.storage_v1 import StorageClass
from kubesched.scheduler.scheduler import MAX_BINDINGS
from kubesched.testing import make_node, make_pod
from kubesched.testing.harness import SchedulerHarness

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


async def test_a_plain_pod_is_bound_while_more_pods_wait_than_bindings_are_allowed():
    count = MAX_BINDINGS + 10
    async with SchedulerHarness() as world:
        world.add_node(
            make_node("n1").capacity(cpu="64", memory="64Gi", pods=str(2 * count)).build()
        )
        world.listers.of(StorageClass).put(storage_class())
        claims = world.listers.of(PersistentVolumeClaim)
        for number in range(count):
            claims.put(claim(f"c{number}"))
            world.add_pod(make_pod(f"slow{number}").claim(f"c{number}").build())

        async def until(condition):
            async with asyncio.timeout(60):
                while not condition():
                    await world.settle()

        await until(
            lambda: all(SELECTED_NODE in (c.metadata.annotations or {}) for c in claims.list())
        )
        assert world.assembly.scheduler.binding.waiting_count == count
        world.add_pod(make_pod("plain").build())
        await until(lambda: "default/plain" in world.client.bindings)
        assert world.client.bindings == {"default/plain": "n1"}
    assert world.assembly.scheduler.binding.waiting_count == 0
