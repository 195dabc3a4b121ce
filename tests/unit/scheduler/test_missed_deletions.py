"""A pod deleted while the watch was down, and a withdrawn nomination the watch never showed: the room is announced."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.snapshot.pods import PodInfo
from kubesched.testing.builders import make_node, make_pod
from kubesched.testing.harness import SchedulerHarness


async def test_a_tombstone_older_than_the_binding_frees_the_node() -> None:
    async with SchedulerHarness() as world:
        world.add_node(make_node("n").capacity(cpu="1", memory="4Gi").build())
        unbound = make_pod("first").cpu("1").build()
        world.add_pod(unbound)
        await world.settle()
        world.add_pod(make_pod("second").cpu("1").build())
        await world.settle()
        assert world.client.bindings == {"default/first": "n"}

        # The last state that the watch had shown is the one before the binding.
        del world.listers.of(type(unbound)).objects["default", "first"]
        world.assembly.handlers.pod_deleted(unbound, final_state_unknown=True)
        await world.advance(2.0)
        assert world.client.bindings["default/second"] == "n"


async def hold_a_place(world: SchedulerHarness) -> Pod:
    """The only node is held for a preemptor, in memory alone; another pod waits for it."""
    world.add_node(make_node("n").capacity(cpu="1", memory="4Gi").build())
    preemptor = make_pod("preemptor").cpu("1").priority(10).node_selector(nowhere="x").build()
    world.add_pod(preemptor)
    await world.settle()
    nominator = world.assembly.scheduler.queue.nominator
    nominator.add_nominated_pod(PodInfo(preemptor), NominatingInfo(True, "n"))
    world.add_pod(make_pod("other").cpu("1").build())
    await world.settle()
    assert world.client.bindings == {}, "the place is held"
    return preemptor


async def test_a_nomination_that_the_watch_never_showed_is_given_back_with_the_pod() -> None:
    async with SchedulerHarness() as world:
        await hold_a_place(world)

        world.delete_pod(world.pod("preemptor"))
        await world.advance(2.0)
        assert world.client.bindings == {"default/other": "n"}


async def test_a_nomination_that_the_api_server_never_had_is_given_back_when_it_is_withdrawn() -> (
    None
):
    async with SchedulerHarness() as world:
        preemptor = await hold_a_place(world)
        nominator = world.assembly.scheduler.queue.nominator

        world.add_node(make_node("too-small").label("nowhere", "x").capacity(cpu="0").build())
        await world.advance(2.0)
        assert nominator.node_of(preemptor.metadata.uid) == ""
        await world.advance(20.0)
        assert world.client.bindings == {"default/other": "n"}
