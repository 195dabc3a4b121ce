"""Plugins that place groups: GangScheduling, TopologyPlacementGenerator, PodGroupPodsCount."""

from __future__ import annotations

import pytest
from group_scenarios import NV, PUS, Groups

from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.config.features import from_map
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.groups.tree import GroupNode
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.status import Code
from kubesched.plugins.gang_scheduling import GangScheduling
from kubesched.plugins.pod_group_pods_count import PodGroupPodsCount
from kubesched.plugins.topology_placement_generator import TopologyPlacementGenerator

TOPOLOGY = "TopologyAwareWorkloadScheduling"
RACK = {"topology": [{"key": "rack"}]}


def handle() -> Handle:
    gates = from_map({"GenericWorkload": True})
    return Handle(table=NodeTable(), feature_gates=gates, groups=GroupStates())


@pytest.mark.parametrize(
    ("remaining", "scheduled", "code", "text"),
    [
        (0, 3, Code.SUCCESS, ""),
        (1, 2, Code.WAIT, "minCount (3) is not yet satisfied: 2 scheduled, 1 remaining"),
        (0, 2, Code.UNSCHEDULABLE, "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"),
    ],
)
def test_feasibility_of_a_gang(remaining, scheduled, code, text):
    with Groups() as world:
        world.group("g", 3)
        node = GroupNode(world.find(PodGroup, "default", "g"))
    status = GangScheduling(None, handle()).placement_feasible(node, remaining, scheduled)
    assert (Code.SUCCESS if status is None else status.code) is code
    assert ("" if status is None else status.message) == text


def test_counts_are_scaled_to_the_fullest_placement():  # 74
    plugin = PodGroupPodsCount(None, handle())
    assert plugin.normalize_placement_scores([10, 50, 110]) == [9, 45, 100]
    assert plugin.normalize_placement_scores([0, 0]).code is Code.ERROR


def test_a_gang_stays_within_one_rack():  # 63
    assert TopologyPlacementGenerator.name == "TopologyPlacementGenerator"
    with Groups(gates=TOPOLOGY) as world:
        for name, rack in zip("abcde", ("r0", "r0", "r0", "r1", "r1"), strict=True):
            world.node(name, 2, rack=rack)
        world.group("g", 3, schedulingConstraints=RACK)
        world.pods("g", "p0", "p1", "p2")
        world.settle()
        assert set(world.nodes_of("p0", "p1", "p2")) <= {"d", "e"}, "the rack that is fuller then"
        world.pods("g", "p3")
        world.settle()
        assert world.node_of("p3") in {"d", "e"}
        world.pods("g", "p4")
        world.settle()
        assert world.message("p4") == "0/2 nodes are available: 2 Insufficient cpu."


def test_no_rack_is_large_enough():  # 64, 65
    with Groups(gates=TOPOLOGY) as world:
        for name, rack in zip("abcd", ("r0", "r0", "r1", "r1"), strict=True):
            world.node(name, 1, rack=rack)
        world.group("g", 3, schedulingConstraints=RACK)
        world.pods("g", "p0", "p1", "p2")
        world.settle()
        first = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        text = f"{PUS}, 0/2 placements are available, first placement status: {first}{NV}"
        assert world.group_says("g") == ("False", "Unschedulable", text)
        assert world.message("p0") == f"{PUS}, {text}"
        assert world.message("p2") == "0/2 nodes are available: 2 Insufficient cpu."
    with Groups(4, gates=TOPOLOGY) as world:
        world.group("g", 2, schedulingConstraints=RACK)
        world.pods("g", "p0", "p1")
        world.settle()
        assert world.message("p0") == "no feasible placements found"
        assert world.group_says("g")[2] == "no feasible placements found" + NV


def test_trees_of_groups():  # 75, 76, 78
    gates = f"{TOPOLOGY} CompositePodGroup"
    with Groups(4, gates=gates) as world:
        world.composite("c", 2)
        for name in ("a", "b"):
            world.group(name, 2, parentCompositePodGroupName="c")
        world.pods("a", "a0", "a1")
        world.pods("b", "b0")
        world.settle()
        assert world.nodes_of("a0", "a1", "b0") == [""] * 3
        world.pods("b", "b1")
        world.settle()
        assert world.nodes_of("a0", "a1", "b0", "b1") == ["n1"] * 4
    with Groups(3, gates=gates) as world:
        world.composite("c", 1)
        for name in ("a", "b"):
            world.group(name, 2, parentCompositePodGroupName="c")
            world.pods(name, f"{name}0", f"{name}1")
        world.settle()
        assert world.nodes_of("a0", "a1", "b0", "b1") == ["n1", "n1", "", ""]
        assert world.group_says("a")[0] == "True"
        assert world.group_says("b")[0] == "False"
