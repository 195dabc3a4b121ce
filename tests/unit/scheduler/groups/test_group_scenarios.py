"""Scenarios of gangs and basic groups, as kube-scheduler 1.37 plays them; numbers as in its
spec.
"""

from __future__ import annotations

from group_scenarios import NV, PUS, Groups

from kubesched.api.scheduling_v1beta1 import PodGroup

ERROR = 'error in "DynamicResources" PodGroupPostFilter plugins: not found'


def test_a_complete_gang_is_bound():  # 1
    with Groups(4) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        assert world.nodes_of("a", "b", "c") == ["n1"] * 3
        assert world.group_says("g") == ("True", "Scheduled", "")


def test_a_gang_waits_for_its_last_pod():  # 2
    with Groups(4) as world:
        world.group("g", 3)
        world.pods("g", "a", "b")
        world.settle()
        assert world.condition("a") is None
        assert world.place_in_queue("a") == "gated"
        world.pods("g", "c")
        world.settle()
        assert world.nodes_of("a", "b", "c") == ["n1"] * 3


def test_pods_wait_for_their_group():  # 3
    with Groups(4) as world:
        world.pods("g", "a", "b")
        world.settle()
        assert world.place_in_queue("a") == "incomplete"
        assert world.condition("a") is None
        world.group("g")
        world.settle()
        assert world.nodes_of("a", "b") == ["n1", "n1"]


def test_all_or_none():  # 4
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        text = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining" + NV
        assert world.message("a") == world.message("b") == f"{PUS}, {text}"
        assert world.message("c") == "0/1 nodes are available: 1 Insufficient cpu."
        assert world.group_says("g") == ("False", "Unschedulable", text)
        world.node("n2", 2)
        world.settle()
        assert world.nodes_of("a", "b", "c") == [""] * 3, "it waits for its backoff, not for nodes"
        world.run(3)
        assert "" not in world.nodes_of("a", "b", "c")
        assert world.group_says("g") == ("True", "Scheduled", "")


def test_members_after_the_quorum_became_impossible_are_not_tried():  # 5
    with Groups(2) as world:
        world.group("g", 2)
        world.pods("g", "a", "b", "c", cpu=5)
        world.settle()
        own = "0/1 nodes are available: 1 Insufficient cpu."
        text = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
        assert [world.message(name) for name in "abc"] == [own, own, text]
        assert world.group_says("g") == ("False", "Unschedulable", text + NV)


def test_what_does_not_fit_beyond_the_quorum_is_left_over():  # 6
    with Groups(3) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c", "d")
        world.settle()
        assert world.nodes_of("a", "b", "c", "d") == ["n1", "n1", "n1", ""]
        assert world.message("d") == "0/1 nodes are available: 1 Insufficient cpu."
        assert world.group_says("g") == ("True", "Scheduled", "")


def test_a_basic_group_takes_what_fits():  # 7, 8
    with Groups(2) as world:
        world.group("g")
        world.pods("g", "a", "b", "c")
        world.settle()
        assert world.nodes_of("a", "b", "c") == ["n1", "n1", ""]
    with Groups(1) as world:
        world.group("g")
        world.pods("g", "a", "b", cpu=2)
        world.settle()
        text = "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"
        assert world.group_says("g") == ("False", "Unschedulable", text + NV)


def test_members_have_the_priority_of_their_group():  # 9
    with Groups(4) as world:
        world.group("g", 2, priority=100)
        world.pods("g", "a", "b")
        world.settle()
        text = (
            "all pods in a single pod group should have the same priority as the pod group's "
            "priority, got 0 and 100"
        )
        assert world.condition("a") == world.condition("b") == ("SchedulerError", text)
        assert world.group_says("g") == ("False", "SchedulerError", text)


def test_members_agree_about_preemption():  # 10
    with Groups(4) as world:
        world.group("g", 2, priority=100)
        world.pods("g", "a", priority=100)
        world.pods("g", "b", priority=100, preemptionPolicy="Never")
        world.settle()
        assert world.message("a") == (
            "all pods in a single pod group should have the same preemption policy, "
            "got Never and PreemptLowerPriority"
        )


def test_one_gated_member_keeps_all_out():  # 11, 12
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "c", schedulingGates=[{"name": "x"}])
        world.pods("g", "a", "b")
        world.settle()
        assert world.nodes_of("a", "b", "c") == ["", "", ""]
        world.delete(world.pod("c"))
        world.pods("g", "d")
        world.settle()
        assert world.nodes_of("a", "b", "d") == ["", "", ""], "no event evaluates the group again"
        world.advance(331)
        world.settle()
        assert world.nodes_of("a", "b", "d") == ["n1"] * 3, "the flush does"


def test_a_gang_begins_when_the_gate_is_gone():  # 13
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a")
        world.pods("g", "b", schedulingGates=[{"name": "x"}])
        world.settle()
        assert world.nodes_of("a", "b") == ["", ""]
        world.change_pod("b", "spec", schedulingGates=[])
        world.settle()
        assert world.nodes_of("a", "b") == ["n1", "n1"]


def test_group_preemption_nominates_every_member():  # 14
    with Groups(3) as world:
        world.pods("", "x", "y", "z", priority=-10)
        world.settle()
        world.group("g", 3, priority=100)
        world.pods("g", "a", "b", "c", priority=100)
        world.settle()
        assert all(map(world.is_gone, "xyz"))
        found = "pod group preemption: found a placement for podgroup, preempting 3 victims"
        text = f"minCount (3) cannot be satisfied: 0 scheduled, 2 remaining, {found}"
        assert world.group_says("g") == ("False", "Unschedulable", text)
        assert [world.nominated(name) for name in "abc"] == ["n1"] * 3
        world.run(3)
        assert world.nodes_of("a", "b", "c") == ["n1"] * 3
        assert world.group_says("g") == ("True", "Scheduled", "")


def test_members_are_nominated_to_the_nodes_that_were_cleared_for_them():
    with Groups(1, 1) as world:
        world.pods("", "x", "y", priority=-10)
        world.settle()
        world.group("g", 2, priority=100)
        world.pods("g", "a", "b", priority=100)
        world.settle()
        assert {world.nominated("a"), world.nominated("b")} == {"n1", "n2"}


def test_victims_that_need_not_go_stay():  # 15
    with Groups(2, 2) as world:
        world.pods("", "low1", cpu=2, priority=-10, nodeSelector={"kubernetes.io/hostname": "n1"})
        world.pods("", "low2", priority=-10, nodeSelector={"kubernetes.io/hostname": "n2"})
        world.settle()
        world.group("g", 3, priority=100)
        world.pods("g", "a", "b", "c", priority=100)
        world.settle()
        assert world.is_gone("low1")
        assert not world.is_gone("low2")


def test_no_preemption_without_enough_room():  # 16, 17, 18
    with Groups(2) as world:
        world.pods("", "x", cpu=2, priority=100)
        world.settle()
        world.group("g", 2, priority=50)
        world.pods("g", "a", "b", priority=50)
        world.settle()
        assert world.group_says("g")[2].endswith(NV)
    with Groups(3) as world:
        world.pods("", "x", cpu=2, priority=100)
        world.pods("", "y", priority=-10)
        world.settle()
        world.group("g", 2, priority=50)
        world.pods("g", "a", "b", priority=50)
        world.settle()
        assert world.group_says("g")[2] == (
            "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, deallocation and deletion "
            "of ResourceClaims completed, pod group preemption: minCount (2) cannot be satisfied: "
            "1 scheduled, 0 remaining"
        )
        assert not world.is_gone("y")
    with Groups(2) as world:
        world.pods("", "x", "y", priority=-10)
        world.settle()
        world.group("g", 2, priority=50)
        world.pods("g", "a", "b", priority=50, preemptionPolicy="Never")
        world.settle()
        never = "pod group preemption: not eligible due to preemptionPolicy=Never."
        assert world.group_says("g")[2].endswith(never)


def test_disruption_mode_decides_what_is_a_unit():  # 19, 20
    for mode, gone in (("all", 3), ("single", 1)):
        with Groups(3) as world:
            world.group("v", 0, priority=-10, disruptionMode={mode: {}})
            world.pods("v", "x", "y", "z", priority=-10)
            world.settle()
            world.group("g", 1, priority=100)
            world.pods("g", "a", priority=100)
            world.settle()
            assert sum(map(world.is_gone, "xyz")) == gone


def test_a_single_pod_evicts_a_group_as_a_whole():  # 21
    with Groups(1, 2) as world:
        world.group("v", 0, priority=-10, disruptionMode={"all": {}})
        world.pods("v", "x", "y", "z", priority=-10)
        world.settle()
        world.pods("", "a", priority=100, nodeSelector={"kubernetes.io/hostname": "n1"})
        world.settle()
        assert all(map(world.is_gone, "xyz"))
        notes = [event.note for event in world.events if event.reason == "FailedScheduling"]
        assert notes[-1].endswith(
            "preemption: found a potential placement for pod on node n1, preempting 3 victims"
        )


def test_a_lone_pod_goes_before_a_member():  # 22
    for first, second in (("v", ""), ("", "v")):
        with Groups(2) as world:
            world.group("v", 0, priority=-10)
            world.pods(first, "x", priority=-10)
            world.settle()
            world.pods(second, "y", priority=-10)
            world.settle()
            world.pods("", "a", priority=100)
            world.settle()
            assert world.is_gone("x" if first == "" else "y")


def test_min_count_may_change():  # 23, 24, 25
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        world.min_count("g", 2)
        world.run(3)
        assert world.nodes_of("a", "b", "c") == ["n1", "n1", ""]
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b")
        world.settle()
        world.min_count("g", 2)
        world.settle()
        assert world.nodes_of("a", "b") == ["n1", "n1"]
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        world.min_count("g", 4)
        world.pods("g", "c")
        world.settle()
        assert world.condition("c") is None
        world.pods("g", "d")
        world.settle()
        assert world.nodes_of("c", "d") == ["n1", "n1"]


def test_members_keep_apart_from_each_other():  # 31
    with Groups(4, 4) as world:
        world.group("g", 2)
        apart = {
            "labelSelector": {"matchLabels": {"app": "g"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        world.pods("g", "a", "b", "c", labels={"app": "g"}, affinity=affinity)
        world.settle()
        assert sorted(world.nodes_of("a", "b", "c")) == ["", "n1", "n2"]
        left = next(name for name in "abc" if not world.node_of(name))
        text = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
        assert world.message(left) == text


def test_an_attempt_that_reaches_no_pre_filter_is_an_error():  # 32, 44
    with Groups(1) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        world.delete(world.pod("b"))
        world.run(3)
        assert world.condition("a") == ("SchedulerError", ERROR)
        assert world.group_says("g") == ("False", "SchedulerError", ERROR)
        assert world.place_in_queue("a") == "gated"
    with Groups() as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        assert world.condition("a") == ("SchedulerError", ERROR)


def test_gangs_do_not_share_what_only_one_can_have():  # 37
    with Groups(3) as world:
        for name in ("a", "b"):
            world.group(name, 3)
        for name in ("a0", "b0", "b1", "b2", "a1", "a2"):
            world.pods(name[0], name)
        world.settle()
        assert world.nodes_of("b0", "b1", "b2") == ["n1"] * 3
        assert world.nodes_of("a0", "a1", "a2") == [""] * 3


def test_a_gang_that_runs_takes_a_replacement():  # 41
    with Groups(3) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        world.delete(world.pod("c"))
        world.pods("g", "d", cpu=2)
        world.settle()
        assert world.group_says("g")[0] == "True"
        assert world.message("d") == "0/1 nodes are available: 1 Insufficient cpu."
        world.delete(world.pod("d"))
        world.pods("g", "e")
        world.settle()
        assert world.node_of("e") == "n1"


def test_equal_priority_is_no_victim():  # 58
    with Groups(1) as world:
        world.pods("", "x", priority=5)
        world.settle()
        world.group("g", 1, priority=5)
        world.pods("g", "a", priority=5)
        world.settle()
        assert world.group_says("g")[2].endswith(NV)


def test_the_smaller_of_two_groups_is_evicted():  # 56
    with Groups(4) as world:
        for group, names in (("big", "xyz"), ("small", "w")):
            world.group(group, 0, priority=-10, disruptionMode={"all": {}})
            world.pods(group, *names, priority=-10)
        world.settle()
        world.group("g", 1, priority=100)
        world.pods("g", "a", priority=100)
        world.settle()
        assert world.is_gone("w")
        assert not any(map(world.is_gone, "xyz"))


def test_a_pod_is_evicted_by_the_priority_of_its_group():
    with Groups(2, 2) as world:
        world.group("old", priority=-10)
        world.pods("old", "a", nodeName="n1")
        world.pods("", "b", nodeName="n1")
        world.pods("", "c", cpu=2, nodeName="n2")
        world.pods("", "large", cpu=2)
        world.settle()
        assert world.message("large").endswith(
            "preemption: 0/2 nodes are available: 1 Insufficient cpu, "
            "1 No preemption victims found for incoming pod."
        )
        world.delete(world.pod("large"))
        world.pods("", "new")
        world.settle()
        assert world.is_gone("a"), "though it has the same priority as the new pod"


def test_a_group_of_a_deleted_object_counts_pod_by_pod():  # 57
    with Groups(2) as world:
        world.group("v", 0, priority=50, disruptionMode={"all": {}})
        world.pods("v", "x", "y", priority=50)
        world.settle()
        world.delete(world.find(PodGroup, "default", "v"))
        world.group("g", 1, priority=100)
        world.pods("g", "a", priority=100)
        world.settle()
        assert sum(map(world.is_gone, "xy")) == 1
