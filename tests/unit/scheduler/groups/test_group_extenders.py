"""Extenders beside pod groups: asked for every member, while the trial stays in the tables."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from extended_groups import Accepting, cluster
from group_scenarios import Groups

from kubesched.base.errors import KubeschedError
from kubesched.framework.extenders import ExtenderFilterResult
from kubesched.testing import make_pod


class Refusing(Accepting):
    """Refuses one node."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node

    def answer(self, pod: Any, names: list[str]) -> ExtenderFilterResult:
        kept = tuple(name for name in names if name != self.node)
        return ExtenderFilterResult(kept, {self.node: "no licence"} if self.node in names else {})


def assumed(world: Groups) -> int:
    return world.assembly.scheduler.cache.assumed_count


def test_every_member_goes_where_the_extender_lets_it():
    extender = Refusing("n2")
    with cluster(extender, 2, 2, 2) as world:
        world.group("g", gang=4)
        world.pods("g", "a", "b", "c", "d")
        world.settle()
        assert sorted(world.nodes_of("a", "b", "c", "d")) == ["n1", "n1", "n3", "n3"]
    assert [name for name, _ in extender.asked] == ["a", "b", "c", "d"]
    # Members see those before them: n1 is full for the third.
    assert [len(names) for _, names in extender.asked] == [3, 3, 3, 2]


def test_a_gang_that_the_extender_leaves_too_few_nodes_is_not_bound():
    with cluster(Refusing("n2"), 1, 1) as world:
        world.group("g", gang=2)
        world.pods("g", "a", "b")
        world.settle()
        assert world.nodes_of("a", "b") == ["", ""]
        assert assumed(world) == 0
        assert "no licence" in world.message("b")
        world.node("n3", 1)
        world.advance(2)
        world.settle()
        assert sorted(world.nodes_of("a", "b")) == ["n1", "n3"]


def test_an_extender_that_fails_fails_the_group():
    class Broken(Accepting):
        def answer(self, pod: Any, names: list[str]) -> ExtenderFilterResult:
            if pod.metadata.name == "b":
                raise KubeschedError("connection refused")
            return super().answer(pod, names)

    with cluster(Broken(), 4) as world:
        world.group("g", gang=2)
        world.pods("g", "a", "b")
        world.settle()
        assert world.nodes_of("a", "b") == ["", ""]
        assert assumed(world) == 0
        assert "connection refused" in world.message("a")


def test_an_extender_that_fails_for_the_nominated_node_is_asked_about_all(caplog):
    class OnceBroken(Accepting):
        def answer(self, pod: Any, names: list[str]) -> ExtenderFilterResult:
            if len(self.asked) == 1:
                raise KubeschedError("connection refused")
            return super().answer(pod, names)

    extender = OnceBroken()
    with cluster(extender, 4, 4) as world:
        world.add(make_pod("p").nominated("n2").build())
        world.settle()
        assert world.node_of("p")
    assert [names for _, names in extender.asked] == [["n2"], ["n1", "n2"]]
    assert "Evaluation failed on nominated node" in caplog.messages


def test_events_wait_until_the_group_is_decided():
    extender = Accepting()
    with cluster(extender, 1) as world:
        world.group("g", gang=2)

        def add_node() -> None:
            extender.meanwhile = lambda: None
            world.node("n2", 1)
            assert world.assembly.table.node_count == 1, "the trial goes on with what it began with"

        extender.meanwhile = add_node
        world.pods("g", "a", "b")
        world.settle()
        world.advance(2)
        world.settle()
        # The first attempt failed on one node; the event that was held back let the next succeed.
        assert sorted(world.nodes_of("a", "b")) == ["n1", "n2"]


def test_members_no_extender_wants_are_decided_at_once():
    extender = Accepting()
    with cluster(extender, 4) as world:
        world.group("g", gang=2)
        world.pods("g", "plain-a", "plain-b")
        world.settle()
        assert world.nodes_of("plain-a", "plain-b") == ["n1", "n1"]
    assert not extender.asked


def test_shutdown_while_an_extender_is_awaited_leaves_nothing_assumed():
    class Silent(Accepting):
        async def filter(self, pod: Any, nodes: Any) -> ExtenderFilterResult:
            if pod.metadata.name == "b":
                self.meanwhile()
                await asyncio.Event().wait()
            return await super().filter(pod, nodes)

    extender = Silent()
    seen: list[int] = []
    world = cluster(extender, 4)
    extender.meanwhile = lambda: seen.append(assumed(world))
    world.group("g", gang=2)
    world.pods("g", "a", "b")
    world.settle()
    world.close()
    assert seen == [0, 1], "the first member is assumed while the second is asked about"
    assert assumed(world) == 0
    world.assembly.scheduler.check_invariants()


def test_preemption_asks_again_with_the_victims_gone():
    extender = Refusing("n1")
    with cluster(extender, 1, 1, 1) as world:
        world.pods("", "plain-x", "plain-y", "plain-z")
        world.settle()
        world.group("g", gang=2, priority=10)
        world.pods("g", "a", "b", priority=10)
        world.settle()
        assert {"plain-x", "plain-y", "plain-z"} - {
            name for name in ("plain-x", "plain-y", "plain-z") if world.is_gone(name)
        } == {world_pod_on(world, "n1")}
        world.advance(2)
        world.settle()
        assert sorted(world.nodes_of("a", "b")) == ["n2", "n3"]


def world_pod_on(world: Groups, node: str) -> str:
    names = ("plain-x", "plain-y", "plain-z")
    return next(name for name in names if not world.is_gone(name) and world.node_of(name) == node)


@pytest.mark.parametrize("seed", range(12))
def test_an_extender_that_accepts_everything_changes_nothing(seed):
    def play(world: Groups) -> list[object]:
        random = Random(seed)
        told: list[object] = []
        with world:
            for number in range(random.randint(2, 5)):
                world.node(f"n{number}", random.randint(1, 4), rack=f"r{random.randint(0, 1)}")
            for number in range(6):
                gang, priority = random.randint(1, 4), random.choice((0, 0, 10))
                count = random.randint(1, 5)
                names = [f"g{number}-{member}" for member in range(count)]
                extra = (
                    {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
                    if random.random() < 0.4
                    else {}
                )
                world.group(f"g{number}", gang=gang, priority=priority, **extra)
                world.pods(f"g{number}", *names, priority=priority, cpu=random.choice((0.5, 1)))
                world.settle()
                world.advance(3)
                world.settle()
                pods = [name for name in names if not world.is_gone(name)]
                told.append([(name, world.node_of(name), world.message(name)) for name in pods])
                told.append(world.group_says(f"g{number}"))
            world.assembly.scheduler.check_invariants()
        return told

    gates = "TopologyAwareWorkloadScheduling"
    assert play(cluster(Accepting(), gates=gates)) == play(Groups(gates=gates))
