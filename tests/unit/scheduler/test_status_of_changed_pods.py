"""A condition is about one pod that waits: not about a pod bound since, nor about another of the
same name. The last one stays.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from msgspec import structs

from kubesched.api.core_v1 import PodCondition
from kubesched.base.clock import ManualClock
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.insight.state.memory import MemoryLister
from kubesched.scheduler.status_writer import WORKERS, StatusWriter
from kubesched.testing.builders import make_pod

UNSCHEDULABLE = PodCondition(
    type="PodScheduled", status="False", reason="Unschedulable", message="no"
)
POD = make_pod("a").build()


class Client:
    """Notes the patches."""

    def __init__(self):
        self.patched = []
        self.on_patch = lambda: None

    async def patch_pod_status(self, pod, patch):
        self.patched.append(patch)
        then, self.on_patch = self.on_patch, lambda: None
        then()


@pytest.fixture
def pods():
    return MemoryLister()


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


def saying(message):
    return structs.replace(UNSCHEDULABLE, message=message)


@pytest.mark.parametrize("shown", [None, "first", "second"])
async def test_the_last_word_is_what_was_said_last(client, pods, shown):
    """The second is said while the first is written, and the watch shows none of it: the pod has
    kept what it had.
    """
    status = (
        POD.status if shown is None else structs.replace(POD.status, conditions=[saying(shown)])
    )
    pods.put(pod := structs.replace(POD, status=status))
    writer = StatusWriter(client, pods, ManualClock(), Random(1))
    client.on_patch = lambda: writer.put(pod, saying("second"), None)
    writer.put(pod, saying("first"), None)
    writer.put(pod, saying("first"), NominatingInfo(True, "n1"))
    await writer.drain()
    *_, last = client.patched
    assert last["status"]["conditions"] == [{"type": "PodScheduled", "message": "second"}]
    assert len(client.patched) == 2


async def test_a_nomination_is_withdrawn_before_the_watch_has_shown_it(client, pods):
    pods.put(POD)
    writer = StatusWriter(client, pods, ManualClock(), Random(1))
    client.on_patch = lambda: writer.put(POD, None, NominatingInfo(True, ""))
    writer.put(POD, None, NominatingInfo(True, "n1"))
    await writer.drain()
    nominations = [patch["status"]["nominatedNodeName"] for patch in client.patched]
    assert nominations == ["n1", None]


async def test_updates_are_merged_only_while_all_workers_are_busy(pods):
    class Held(Client):
        async def patch_pod_status(self, pod, patch):
            self.patched.append((pod.metadata.name, patch["status"]["conditions"][0]["message"]))
            await gate.wait()

    gate, held = asyncio.Event(), Held()
    writer = StatusWriter(held, pods, ManualClock(), Random(1))
    told = [make_pod(f"p{number}").build() for number in range(WORKERS + 1)]
    for pod in told:
        pods.put(pod)
    running = asyncio.create_task(writer.run())
    await turns()
    for message in ("first", "second", "third"):
        for pod in told:
            writer.put(pod, saying(message), None)
    gate.set()
    await turns()
    running.cancel()
    await asyncio.wait([running])
    *served, merged = [
        [said for name, said in held.patched if name == pod.metadata.name] for pod in told
    ]
    assert served == [["first", "third"]] * WORKERS
    assert merged == ["third"]
    assert len(writer) == 0


async def turns():
    for _ in range(50):
        await asyncio.sleep(0)
