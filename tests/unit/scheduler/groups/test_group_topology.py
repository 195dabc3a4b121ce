"""Groups in racks and trees of groups, as kube-scheduler 1.37 plays them; numbers as in its
spec.
"""

from __future__ import annotations

from random import Random

import pytest
from group_scenarios import NV, PUS, Groups

from kubesched.api.scheduling_v1alpha3 import CompositePodGroup

TOPOLOGY = "TopologyAwareWorkloadScheduling"
TREES = f"{TOPOLOGY} CompositePodGroup"
RACK = {"topology": [{"key": "rack"}]}
ZONE = {"topology": [{"key": "zone"}]}
PLACEMENTS = "placements are available, first placement status:"


def racks(world: Groups, *cpus: float, **labels: str) -> None:
    """One node per rack."""
    for number, cpu in enumerate(cpus):
        world.node(f"r{number}", cpu, rack=f"rack{number}", **labels)


def children(world: Groups, parent: str, *names: str, count: int = 2, **spec: object) -> None:
    for name in names:
        world.group(name, count, parentCompositePodGroupName=parent, **spec)


def test_a_basic_group_stays_within_its_rack():  # 66
    with Groups(gates=TOPOLOGY) as world:
        racks(world, 2, 2)
        world.group("g", 0, schedulingConstraints=RACK)
        world.pods("g", "a", "b", "c")
        world.settle()
        assert world.node_of("a") == world.node_of("b") != ""
        assert world.message("c") == "0/1 nodes are available: 1 Insufficient cpu."


def test_one_rack_is_emptied():  # 67
    with Groups(gates=TOPOLOGY) as world:
        racks(world, 2, 2)
        world.pods("", *"wxyz", priority=-10)
        world.settle()
        world.group("g", 2, priority=100, schedulingConstraints=RACK)
        world.pods("g", "a", "b", priority=100)
        homes = {name: world.node_of(name) for name in "wxyz"}
        world.settle()
        gone = [name for name in "wxyz" if world.is_gone(name)]
        assert len(gone) == 2
        assert len({homes[name] for name in gone}) == 1
        first = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
        assert world.message("b") == f"{PUS}, 0/2 {PLACEMENTS} {first}"
        world.run(3)
        assert world.nodes_of("a", "b") == [homes[gone[0]]] * 2


def test_members_in_two_racks_are_an_error():  # 68
    with Groups(gates=TOPOLOGY) as world:
        racks(world, 2, 2)
        world.node("bare", 2)
        world.group("g", 0, schedulingConstraints=RACK)
        world.pods("g", "a", nodeName="r0")
        world.pods("g", "b", nodeName="r1")
        world.pods("g", "c")
        world.settle()
        prefix = "cannot determine domain for already scheduled pods: "
        text = prefix + "more than 1 domain found for pod group: rack0, rack1"
        assert world.condition("c") == ("SchedulerError", text)
    with Groups(gates=TOPOLOGY) as world:
        racks(world, 2, 2)
        world.node("bare", 2)
        world.group("g", 0, schedulingConstraints=RACK)
        world.pods("g", "a", nodeName="bare")
        world.pods("g", "c")
        world.settle()
        text = prefix + "no topology domain found for pod default/a"
        assert world.condition("c") == ("SchedulerError", text)


def test_without_a_constraint_there_is_one_placement():  # 69
    with Groups(2, gates=TOPOLOGY) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        first = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        text = f"{PUS}, 0/1 {PLACEMENTS} {first}{NV}"
        assert world.group_says("g") == ("False", "Unschedulable", text)
        assert world.message("a") == world.message("b") == f"{PUS}, {text}"
        assert world.message("c") == "0/1 nodes are available: 1 Insufficient cpu."


def test_the_rack_that_is_fuller_afterwards_wins():  # 70
    with Groups(gates=TOPOLOGY) as world:
        racks(world, 8, 4, 2)
        world.group("g", 0, schedulingConstraints=RACK)
        world.pods("g", "a")
        world.settle()
        assert world.node_of("a") == "r2"


def test_what_is_left_over_stays_in_the_rack():  # 71
    with Groups(gates=TOPOLOGY) as world:
        racks(world, 2, 2)
        world.group("g", 2, schedulingConstraints=RACK)
        world.pods("g", "a", "b", "c")
        world.settle()
        assert world.node_of("a") == world.node_of("b") != ""
        assert world.message("c") == "0/1 nodes are available: 1 Insufficient cpu."
        assert world.group_says("g")[0] == "True"
        world.run(60)
        assert world.node_of("c") == "", "the other rack is free"


def test_the_group_says_whether_its_members_preempt():  # 73
    with Groups(4, gates="PodGroupPreemptionPolicy") as world:
        world.group("g", 1, priority=100, preemptionPolicy="PreemptLowerPriority")
        world.pods("g", "a", priority=100, preemptionPolicy="Never")
        world.settle()
        text = (
            "all pods in a single pod group should have the same preemption policy as the pod "
            "group's preemption policy, got Never and PreemptLowerPriority"
        )
        assert world.condition("a") == ("SchedulerError", text)


def test_a_polite_group_evicts_nobody():  # 72
    gates = "PodGroupPreemptionPolicy TopologyAwareWorkloadScheduling"
    with Groups(2, gates=gates) as world:
        world.pods("", "x", "y", priority=-10)
        world.settle()
        world.group("g", 2, priority=50, preemptionPolicy="Never")
        world.pods("g", "a", "b", priority=50, preemptionPolicy="Never")
        world.settle()
        assert world.group_says("g")[2] == (
            f"{PUS}, 0/1 placements are available, first placement status: minCount (2) cannot be "
            "satisfied: 0 scheduled, 1 remaining, deallocation and deletion of ResourceClaims "
            "completed, pod group preemption: not eligible due to preemptionPolicy=Never."
        )
        assert not world.is_gone("x")


def test_a_tree_fails_as_a_whole():  # 76, 77
    with Groups(3, gates=TREES) as world:
        world.composite("c", 2)
        children(world, "c", "a", "b")
        world.pods("a", "a0", "a1")
        world.pods("b", "b0", "b1")
        world.settle()
        assert world.nodes_of("a0", "a1", "b0", "b1") == [""] * 4
        root = f"{PUS}, 0/1 {PLACEMENTS} minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert world.message("a0") == root
        assert world.group_says("a") == ("False", "Unschedulable", root + NV + NV)
        own = f"{PUS}, 0/1 {PLACEMENTS} minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert world.group_says("b") == ("False", "Unschedulable", own + NV)
        assert world.message("b1") == "0/1 nodes are available: 1 Insufficient cpu."
    with Groups(5, gates=TREES) as world:
        world.composite("root", 3)
        children(world, "root", "a", "b", "c")
        for name in "abc":
            world.pods(name, f"{name}0", f"{name}1")
        world.settle()
        root = f"{PUS}, 0/1 {PLACEMENTS} minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        for name in "ab":
            assert world.group_says(name) == ("False", "Unschedulable", root + NV * 3)
        own = f"{PUS}, 0/1 {PLACEMENTS} minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert world.group_says("c") == ("False", "Unschedulable", own + NV)


def test_pods_wait_for_the_whole_chain_of_groups():  # 79
    with Groups(4, gates=TREES) as world:
        children(world, "c", "g", count=1)
        world.pods("g", "a")
        world.settle()
        assert world.place_in_queue("a") == "incomplete"
        world.composite("c")
        world.settle()
        assert world.node_of("a") == "n1"


def test_the_root_sets_the_priority():  # 80
    with Groups(4, gates=TREES) as world:
        world.composite("c", 1, priority=100)
        children(world, "c", "g", count=1)
        world.pods("g", "a")
        world.settle()
        text = (
            "all pods in a single pod group should have the same priority as the pod group's "
            "priority, got 0 and 100"
        )
        assert world.condition("a") == ("SchedulerError", text)


def test_a_zone_with_a_rack_for_each_child():  # 81
    with Groups(gates=TREES) as world:
        for name, zone, rack, cpu in (
            ("n0", "z0", "k0", 2),
            ("n1", "z0", "k1", 1),
            ("n2", "z1", "k2", 2),
            ("n3", "z1", "k3", 2),
        ):
            world.node(name, cpu, zone=zone, rack=rack)
        world.composite("c", 2, schedulingConstraints=ZONE)
        children(world, "c", "a", "b", schedulingConstraints=RACK)
        world.pods("a", "a0", "a1")
        world.pods("b", "b0", "b1")
        world.settle()
        homes = [set(world.nodes_of(f"{name}0", f"{name}1")) for name in "ab"]
        assert sorted(map(sorted, homes)) == [["n2"], ["n3"]]


def test_a_tree_is_evicted_by_a_tree():  # 82
    with Groups(2, gates=TREES) as world:
        world.composite("v", 0, priority=-10, disruptionMode={"all": {}})
        children(world, "v", "x", "y", count=1, priority=-10)
        world.pods("x", "x0", priority=-10)
        world.pods("y", "y0", priority=-10)
        world.settle()
        assert world.nodes_of("x0", "y0") == ["n1", "n1"]
        world.composite("c", 1, priority=100)
        children(world, "c", "g", count=1, priority=100)
        world.pods("g", "a", priority=100)
        world.settle()
        assert world.is_gone("x0")
        assert world.is_gone("y0")
        notes = {event.note for event in world.events if event.reason == "Preempted"}
        assert notes == {"Preempted by compositepodgroup uid-c on node cluster"}
        world.run(3)
        assert world.node_of("a") == "n1"


def test_a_child_without_pods():  # 83
    with Groups(4, gates=TREES) as world:
        world.composite("c", 1)
        children(world, "c", "a", "b", count=1)
        world.pods("a", "a0")
        world.settle()
        assert world.node_of("a0") == "n1"
        text = f"{PUS}, 0/1 {PLACEMENTS} {PUS}"
        assert world.group_says("b") == ("False", "Unschedulable", text)
        world.pods("b", "b0")
        world.settle()
        assert world.node_of("b0") == "n1"
        assert world.group_says("b") == ("True", "Scheduled", "")


def test_a_tree_of_three_levels():  # 84
    with Groups(4, gates=TREES) as world:
        world.composite("root", 1)
        world.composite("mid", 2, parentCompositePodGroupName="root")
        children(world, "mid", "a", "b", count=1)
        world.pods("a", "a0")
        world.settle()
        assert world.place_in_queue("a0") == "gated"
        world.pods("b", "b0")
        world.settle()
        assert world.nodes_of("a0", "b0") == ["n1", "n1"]
        world.delete(world.find(CompositePodGroup, "default", "mid"))
        world.pods("a", "a1")
        world.settle()
        assert world.place_in_queue("a1") == "incomplete"


def test_a_child_may_have_the_name_of_its_parent():  # 85
    """kube-scheduler takes one for the other and never places the child's pods."""
    with Groups(4, gates=TREES) as world:
        world.composite("same", 1)
        children(world, "same", "same", count=1)
        world.pods("same", "a")
        world.settle()
        assert world.node_of("a") == "n1"


@pytest.mark.parametrize("seed", range(10))
def test_placements_by_class_equal_full_evaluations(seed):
    """Members that are tried in a part of the nodes share what is kept for their class."""

    def play(classes: bool) -> list[object]:
        random = Random(seed)
        config = random.choice(("", "percentageOfNodesToScore: 40\n"))
        told: list[object] = []
        with Groups(gates=TOPOLOGY, config=config, classes=classes) as world:
            for number in range(random.choice((8, 150))):
                rack = random.choice((None, "a", "b", "c"))
                labels = {"rack": rack} if rack else {}
                world.node(f"n{number}", random.randint(1, 4), **labels)
            for number in range(8):
                count = random.randint(1, 6)
                names = [f"g{number}-{member}" for member in range(count)]
                wanted = {"topology": [{"key": "rack"}]} if random.random() < 0.8 else {}
                world.group(
                    f"g{number}", gang=random.randint(1, count), schedulingConstraints=wanted
                )
                cpu = random.choice((0.5, 1, 2))
                world.pods(f"g{number}", *names, cpu=cpu, labels={"app": random.choice("xy")})
                world.settle()
                told += [(name, world.node_of(name), world.message(name)) for name in names]
                told.append(world.group_says(f"g{number}"))
        return told

    assert play(classes=True) == play(classes=False)
