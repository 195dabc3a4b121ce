"""The plugin in a whole scheduler, without a cluster."""

from __future__ import annotations

from pathlib import Path

from rack_plugin import Racks

from kubesched.testing import make_node, make_pod
from kubesched.testing.harness import SchedulerHarness

CONFIG = (Path(__file__).parents[1] / "scheduler.yaml").read_text()


def racked(name, rack):
    return make_node(name).label("example.com/rack", rack).build()


async def test_pods_go_to_the_preferred_rack():
    async with SchedulerHarness(CONFIG, plugins=[Racks]) as world:
        world.add_node(make_node("bare").build())
        world.add_node(racked("second", "r2"))
        world.add_node(racked("first", "r1"))
        world.add_pod(make_pod("p").build())
        await world.settle()
        assert world.client.bindings == {"default/p": "first"}


async def test_pods_wait_for_a_node_in_a_rack():
    async with SchedulerHarness(CONFIG, plugins=[Racks]) as world:
        world.add_node(make_node("bare").build())
        world.add_pod(make_pod("p").build())
        await world.settle()
        _reason, message = world.condition("p")
        assert "1 node(s) stood in no rack" in message
        world.add_node(racked("first", "r1"))
        world.clock.advance(60)
        await world.settle()
        assert world.client.bindings == {"default/p": "first"}
