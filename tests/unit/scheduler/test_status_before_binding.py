"""What is said about a pod is said before it is bound: no condition arrives after the binding and
contradicts it.
"""

import asyncio

import pytest

from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod


@pytest.fixture
def world():
    with Cluster() as running:
        yield running


def slow_patches(world, at_once=()):
    """Patches, except of some pods, take effect only when the gate opens; returns the gate and a
    log of what reached the server.
    """
    gate, log = asyncio.Event(), []
    patch, bind = world.client.patch_pod_status, world.client.bind_pod

    async def patch_pod_status(pod, change):
        if pod.metadata.name not in at_once:
            await gate.wait()
            log.append(("patch", pod.metadata.name))
        await patch(pod, change)

    async def bind_pod(pod, node_name):
        log.append(("bind", pod.metadata.name))
        await bind(pod, node_name)

    world.client.patch_pod_status, world.client.bind_pod = patch_pod_status, bind_pod
    return gate, log


def test_a_binding_waits_for_the_condition_that_is_on_its_way(world):
    gate, log = slow_patches(world)
    world.add(make_pod("a").build())
    world.settle()
    world.add(make_node("n1").build())
    world.advance(20)
    assert log == []
    gate.set()
    world.settle()
    assert log == [("patch", "a"), ("bind", "a")]
    assert world.pod("a").spec.node_name == "n1"


def test_a_pod_that_lost_its_room_while_its_binding_waited_is_not_bound(world):
    """A restored cluster: the pod is deleted and added again, and another one takes the place."""
    gate, log = slow_patches(world, at_once=("b",))
    pod = make_pod("a").cpu("1").build()
    world.add(pod)
    world.settle()
    world.add(make_node("n1").capacity(cpu="1", memory="4Gi").build())
    world.advance(20)
    world.assembly.handlers.pod_deleted(pod, final_state_unknown=True)
    world.add(make_pod("b").cpu("1").build())
    world.settle()
    world.assembly.handlers.pod_added(pod)
    gate.set()
    world.settle()
    assert ("bind", "b") in log
    assert ("bind", "a") not in log
    assert world.place_in_queue("a"), "it is tried again"


def test_a_binding_waits_for_the_condition_of_an_older_pod_of_its_name(world):
    """Patches name no UID: one for the pod that is gone would change the new one."""
    gate, log = slow_patches(world)
    old = make_pod("a").uid("old").node_selector(disk="ssd").build()
    world.add(old)
    world.settle()
    world.delete(old)
    world.add(make_node("n1").build())
    world.add(make_pod("a").uid("new").build())
    world.settle()
    assert log == []
    gate.set()
    world.settle()
    assert log == [("patch", "a"), ("bind", "a")]


def test_other_pods_do_not_wait_for_it(world):
    _gate, log = slow_patches(world)
    world.add(make_pod("a").node_selector(disk="ssd").build())
    world.settle()
    world.add(make_node("n1").build())
    world.add(make_pod("b").build())
    world.settle()
    assert log == [("bind", "b")]


def test_a_preemptor_is_nominated_before_it_is_bound(world):
    gate, log = slow_patches(world, at_once=("low",))  # victims are told why, then deleted
    world.add(make_node("n1").capacity(cpu="1").build())
    world.add(make_pod("low").cpu("1").priority(0).build())
    world.settle()
    world.add(make_pod("high").cpu("1").priority(10).build())
    world.advance(20)
    assert "default/low" in world.client.deleted
    assert log == [("bind", "low")]
    gate.set()
    world.settle()
    assert log == [("bind", "low"), ("patch", "high"), ("bind", "high")]
    assert world.client.patches[-1][1]["status"]["nominatedNodeName"] == "n1"


def test_a_nomination_holds_before_the_server_has_it(world):
    gate, _log = slow_patches(world, at_once=("low",))
    delete = world.client.delete_pod

    async def delete_pod(pod):
        # When the retry comes, the nomination is still on its way and another node looks better.
        world.add(make_node("n2").capacity(cpu="64").build())
        await delete(pod)

    world.client.delete_pod = delete_pod
    world.add(make_node("n1").capacity(cpu="1").build())
    world.add(make_pod("low").cpu("1").priority(0).build())
    world.settle()
    world.add(make_pod("high").cpu("1").priority(10).build())
    world.advance(20)
    gate.set()
    world.settle()
    assert world.client.deleted == ["default/low"]
    assert world.pod("high").spec.node_name == "n1"
