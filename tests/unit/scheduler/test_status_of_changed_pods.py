"""A condition is about one pod that waits: not about a pod bound since, nor about another of the same name."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from kubesched.api.core_v1 import PodCondition
from kubesched.clock import ManualClock
from kubesched.scheduler.status_writer import StatusWriter
from kubesched.testing.builders import make_pod
from kubesched.testing.harness import DictLister

UNSCHEDULABLE = PodCondition(
    type="PodScheduled", status="False", reason="Unschedulable", message="no"
)
POD = make_pod("a").build()


class Client:
    """Notes the patches."""

    def __init__(self):
        self.patched = []

    async def patch_pod_status(self, pod, patch):
        self.patched.append(patch)


@pytest.fixture
def pods():
    return DictLister()


@pytest.fixture
def client():
    return Client()


async def written(client, pods, then):
    """Ask for the condition, let something happen, then have it written."""
    writer = StatusWriter(client, pods, ManualClock(), Random(1))
    pods.put(POD)
    writer.put(POD, UNSCHEDULABLE, None)
    assert len(writer) == 1
    then()
    await writer.drain()
    assert len(writer) == 0
    return client.patched


async def test_a_waiting_pod_is_told(client, pods):
    (patch,) = await written(client, pods, lambda: None)
    assert patch["status"]["conditions"][0]["reason"] == "Unschedulable"


async def test_a_pod_that_another_scheduler_bound_is_not_called_unschedulable(client, pods):
    bound = structs.replace(POD, spec=structs.replace(POD.spec, node_name="n1"))
    assert await written(client, pods, lambda: pods.put(bound)) == []


async def test_another_pod_of_the_same_name_is_left_alone(client, pods):
    other = structs.replace(POD, metadata=structs.replace(POD.metadata, uid="another"))
    assert await written(client, pods, lambda: pods.put(other)) == []


async def test_a_pod_the_informer_has_lost_is_told_and_the_server_knows_better(client, pods):
    gone = lambda: pods.remove("default", "a")  # noqa: E731 - one step of one case
    assert len(await written(client, pods, gone)) == 1
