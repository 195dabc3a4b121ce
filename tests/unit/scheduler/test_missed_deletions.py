"""A pod deleted while the watch was down, and a withdrawn nomination the watch never showed: the
room is announced.
"""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.scheduler.failure import FailureHandler
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod


def test_a_tombstone_older_than_the_binding_frees_the_node() -> None:
    with Cluster() as world:
        world.add(make_node("n").capacity(cpu="1", memory="4Gi").build())
        unbound = make_pod("first").cpu("1").build()
        world.add(unbound)
        world.settle()
        world.add(make_pod("second").cpu("1").build())
        world.settle()
        assert world.client.bindings == {"default/first": "n"}

        # The last state that the watch had shown is the one before the binding.
        world.listers.of(type(unbound)).remove("default", "first")
        world.assembly.handlers.pod_deleted(unbound, final_state_unknown=True)
        world.advance(2.0)
        assert world.client.bindings["default/second"] == "n"


def hold_a_place(world: Cluster, priority: int = 10) -> Pod:
    """The only node is held for a preemptor, in memory alone; another pod waits for it."""
    world.add(make_node("n").capacity(cpu="1", memory="4Gi").build())
    preemptor = make_pod("preemptor").cpu("1").priority(priority).node_selector(nowhere="x").build()
    world.add(preemptor)
    world.settle()
    nominator = world.assembly.scheduler.queue.nominator
    nominator.add_nominated_pod(PodInfo(preemptor), NominatingInfo(True, "n"))
    world.add(make_pod("other").cpu("1").build())
    world.settle()
    assert world.client.bindings == {}, "the place is held"
    return preemptor


def test_a_nomination_that_the_watch_never_showed_is_given_back_with_the_pod() -> None:
    with Cluster() as world:
        hold_a_place(world)

        world.delete(world.pod("preemptor"))
        world.advance(2.0)
        assert world.client.bindings == {"default/other": "n"}


def test_a_nomination_that_the_api_server_never_had_is_given_back_when_it_is_withdrawn() -> None:
    with Cluster() as world:
        preemptor = hold_a_place(world)
        nominator = world.assembly.scheduler.queue.nominator

        world.add(make_node("too-small").label("nowhere", "x").capacity(cpu="0").build())
        world.advance(2.0)
        assert nominator.node_of(preemptor.metadata.uid) == ""
        world.advance(20.0)
        assert world.client.bindings == {"default/other": "n"}


def test_a_nomination_that_is_made_again_is_not_announced_as_withdrawn(monkeypatch) -> None:
    withdrawn: list[str] = []
    monkeypatch.setattr(
        FailureHandler, "_announce_withdrawal", lambda _self, _pod, node: withdrawn.append(node)
    )
    with Cluster() as world:
        preemptor = make_pod("preemptor").cpu("1").priority(10).build()
        world.add(preemptor)
        world.settle()
        nominator = world.assembly.scheduler.queue.nominator
        nominator.add_nominated_pod(PodInfo(preemptor), NominatingInfo(True, "n"))

        running = make_pod("running").cpu("1").on("n").build()
        world.add(make_node("n").capacity(cpu="1", memory="4Gi").build(), running)
        world.advance(5.0)
        assert world.client.deleted == ["default/running"]
        assert withdrawn == []


def test_a_withdrawn_nomination_is_told_to_no_pod_that_ranks_higher() -> None:
    """Room held for a less important pod was free to it all the time."""
    with Cluster() as world:
        hold_a_place(world, priority=0)
        world.add(make_pod("higher").cpu("2").priority(1).build())
        world.settle()
        before = len(world.events)
        world.add(make_node("too-small").label("nowhere", "x").capacity(cpu="0").build())
        world.settle()
        tried = [event[2] for event in world.events[before:]]
        assert "default/preemptor" in tried
        assert "default/higher" not in tried
