"""The plugin in a whole scheduler, without a cluster."""

from __future__ import annotations

from pathlib import Path

from rack_plugin import Racks

from kubesched.testing import Cluster, make_node, make_pod

CONFIG = (Path(__file__).parents[1] / "scheduler.yaml").read_text()


def racked(name, rack):
    return make_node(name).label("example.com/rack", rack).build()


def test_pods_go_to_the_preferred_rack():
    with Cluster(config=CONFIG, plugins=[Racks]) as world:
        world.add(make_node("bare").build())
        world.add(racked("second", "r2"))
        world.add(racked("first", "r1"))
        world.add(make_pod("p").build())
        world.settle()
        assert world.client.bindings == {"default/p": "first"}


def test_pods_wait_for_a_node_in_a_rack():
    with Cluster(config=CONFIG, plugins=[Racks]) as world:
        world.add(make_node("bare").build())
        world.add(make_pod("p").build())
        world.settle()
        _reason, message = world.condition("p")
        assert "1 node(s) stood in no rack" in message
        world.add(racked("first", "r1"))
        world.advance(60)
        assert world.client.bindings == {"default/p": "first"}
