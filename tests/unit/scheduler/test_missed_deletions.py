"""A pod that was bound and went while nobody watched: its room is announced all the same."""

from __future__ import annotations

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
