"""Groups that change under a cycle or a binding: nothing is bound that should not be, nothing is
lost.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from extended_groups import Accepting, cluster
from group_scenarios import Groups

from kubesched.api.core_v1 import Pod
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.interfaces import PreBindPlugin, ReservePlugin
from kubesched.framework.status import Code, Status


class SlowBinding(PreBindPlugin):
    """PreBind waits until a test lets it go on."""

    name = "SlowBinding"
    door: ClassVar[asyncio.Event]

    async def pre_bind(self, state: Any, pod: Pod, node_name: str) -> Status | None:
        await self.door.wait()
        return None


class Refusing(ReservePlugin):
    """Reserve accepts `b` only once, while its group is being placed for the first time."""

    name = "Refusing"
    calls: ClassVar[list[str]] = []

    def reserve(self, state: Any, pod: Pod, node_name: str) -> Status | None:
        self.calls.append(pod.metadata.name)
        is_refused = pod.metadata.name == "b" and self.calls.count("b") > 1
        return Status(Code.UNSCHEDULABLE, ("not now",)) if is_refused else None

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None: ...


@pytest.fixture
def binding(monkeypatch):
    """A gang of two that is being bound."""
    config = "profiles: [{plugins: {multiPoint: {enabled: [{name: SlowBinding}]}}}]"
    monkeypatch.setattr(SlowBinding, "door", asyncio.Event(), raising=False)
    with Groups(8, config=config, plugins=[SlowBinding]) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        assert world.assembly.scheduler.cache.assumed_count == 2
        assert world.nodes_of("a", "b") == ["", ""]
        yield world


def finish(world: Groups) -> None:
    """Let the bindings go on; nothing stays assumed or in flight."""
    SlowBinding.door.set()
    world.settle()
    assert world.assembly.scheduler.cache.assumed_count == 0
    assert not world.assembly.scheduler.queue.in_flight_uids()
    world.assembly.scheduler.queue.check_invariants()


def test_a_group_that_is_deleted_while_its_members_are_bound(binding):
    binding.delete(binding.find(PodGroup, "default", "g"))
    finish(binding)
    assert binding.nodes_of("a", "b") == ["n1", "n1"], "the gang was complete"
    binding.pods("g", "c")
    binding.run(400)
    assert binding.place_in_queue("c") == "incomplete"


def test_a_minimum_that_rises_while_members_are_bound(binding):
    binding.min_count("g", 4)
    finish(binding)
    assert binding.nodes_of("a", "b") == ["n1", "n1"], "the gang was complete"
    binding.pods("g", "c")
    binding.run(10)
    assert (binding.node_of("c"), binding.place_in_queue("c")) == ("", "gated")
    binding.pods("g", "d")
    binding.settle()
    assert binding.nodes_of("c", "d") == ["n1", "n1"], "those that run count"


def test_a_minimum_that_falls_while_members_are_bound(binding):
    binding.pods("g", "c", cpu=100)
    binding.min_count("g", 1)
    finish(binding)
    assert binding.nodes_of("a", "b", "c") == ["n1", "n1", ""]


def test_a_group_that_is_deleted_while_it_is_placed():
    extender = Accepting()
    with cluster(extender, 4) as world:
        world.group("g", gang=2)

        def delete_group() -> None:
            extender.meanwhile = lambda: None
            world.delete(world.find(PodGroup, "default", "g"))

        extender.meanwhile = delete_group
        world.pods("g", "a", "b")
        world.settle()
        # The cycle goes on with the group that it began with, as on kube-scheduler's snapshot.
        assert world.nodes_of("a", "b") == ["n1", "n1"]
        assert world.assembly.scheduler.cache.assumed_count == 0
        world.pods("g", "c")
        world.run(400)
        assert world.place_in_queue("c") == "incomplete"


def test_a_minimum_that_rises_while_the_group_is_placed():
    extender = Accepting()
    with cluster(extender, 4) as world:
        world.group("g", gang=2)

        def raise_minimum() -> None:
            extender.meanwhile = lambda: None
            world.min_count("g", 3)

        extender.meanwhile = raise_minimum
        world.pods("g", "a", "b")
        world.settle()
        assert world.nodes_of("a", "b") == ["n1", "n1"], "decided with the minimum of before"
        world.pods("g", "c")
        world.settle()
        assert world.node_of("c") == "n1"


def test_a_group_that_is_deleted_while_a_member_waits_for_the_others(monkeypatch):
    monkeypatch.setattr(Refusing, "calls", [])
    config = "profiles: [{plugins: {reserve: {enabled: [{name: Refusing}]}}}]"
    with Groups(4, config=config, plugins=[Refusing]) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.run(1)
        assert [str(pod.pod.metadata.name) for pod in world.assembly.waiting_pods] == ["a"]
        world.delete(world.find(PodGroup, "default", "g"))
        world.run(400)
        assert world.nodes_of("a", "b") == ["", ""], "never one without the other"
        assert not world.assembly.waiting_pods
        assert world.assembly.scheduler.cache.assumed_count == 0, "Permit's five minutes are over"
        assert world.place_in_queue("a") == world.place_in_queue("b") == "incomplete"


def test_a_minimum_that_is_never_reached():
    with Groups(4) as world:
        world.group("g", 2**31 - 1)
        world.pods("g", "a", "b")
        world.run(400)
        assert world.nodes_of("a", "b") == ["", ""]
        assert world.place_in_queue("a") == world.place_in_queue("b") == "gated"
        assert world.condition("a") is None, "as in kube-scheduler, which says nothing either"


@pytest.mark.parametrize("levels", [31, 33, 400])
def test_other_pods_are_placed_beside_a_chain_of_composite_groups(levels):
    """The chain's pod starts if the chain has at most 32 levels; one beside the chain does."""
    gates = "TopologyAwareWorkloadScheduling CompositePodGroup"
    with Groups(8, gates=gates) as world:
        world.composite("c0")
        for level in range(1, levels):
            world.composite(f"c{level}", parentCompositePodGroupName=f"c{level - 1}")
        world.group("deep", 1, parentCompositePodGroupName=f"c{levels - 1}")
        world.group("near", 1, parentCompositePodGroupName="c0")
        world.pods("deep", "a")
        world.pods("near", "b")
        world.pods("", "x")
        world.settle()
        assert [bool(node) for node in world.nodes_of("a", "b", "x")] == [levels < 32, True, True]
        if levels >= 32:
            assert world.place_in_queue("a") == "incomplete"
