"""`explain podgroup`, and `explain pod` of a member: the group is tried as a whole, and nothing
changes.
"""

from __future__ import annotations

import json

import pytest
from group_scenarios import NV, Groups

from kubesched.api import codec
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.app.cli.explain import why_words
from kubesched.app.cli.main import main
from kubesched.config.features import DEFAULT_GATES, from_map
from kubesched.insight.explain import Explainer
from kubesched.insight.explain.explainer import ExplainError
from kubesched.insight.explain.model import Verdict
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.scheduler.groups.placing import Placing

TOPOLOGY = "TopologyAwareWorkloadScheduling"
RACK = {"topology": [{"key": "rack"}]}
KINDS = (Node, Pod, PodGroup, CompositePodGroup)
NO_CPU = "0/1 nodes are available: 1 Insufficient cpu."


def explainer(world: Groups, gates: str = "", *, off: bool = False) -> Explainer:
    wanted = {"GenericWorkload": True} | dict.fromkeys(gates.split(), True)
    state = ClusterState("memory")
    for kind in KINDS:
        for obj in world.objects(kind):
            state.put(obj)
    return explainer_of(state, gates=DEFAULT_GATES if off else from_map(wanted))


def explained(world: Groups, name: str = "g", gates: str = ""):
    made = explainer(world, gates)
    states = made.assembly.scheduler.groups.states
    told = made.explain_group("default", name)
    assert made.explain_group("default", name) == told, "explaining changes nothing"
    states.check_invariants()
    return told


def test_a_gang_that_fits():
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        told = explained(world)
    assert (told.verdict, told.summary) == (
        Verdict.FITS,
        "fits. 2 of 2 pending pods would find a node.",
    )
    assert [(one.pod, one.node) for one in told.members] == [
        ("default/a", "n1"),
        ("default/b", "n1"),
    ]
    assert (told.message, told.helps, told.domains, told.preemption) == ("", [], [], None)


def test_members_of_other_schedulers_are_told_apart():
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a")
        world.pods("g", "b", schedulerName="other")
        told = explained(world)
    assert told.summary == (
        "waiting: 1 of minCount 2 pods of PodGroup default/g exist beside 1 of other schedulers, "
        "which count with a node. Otherwise 1 of 1 pending pods would find a node."
    )
    assert told.helps[0] == "minCount 1: 1 pod would start"


def test_a_gang_that_does_not_fit():
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        told = explained(world)
        world.settle()
        assert world.group_says("g") == ("False", "Unschedulable", told.message)
    assert told.verdict is Verdict.NOT_NOW
    assert told.summary == "not now. 2 of 3 pending pods find a node; minCount is 3."
    assert told.message == "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining" + NV
    assert [(one.node, one.lacks) for one in told.members] == [
        ("n1", ""),
        ("n1", ""),
        ("", NO_CPU),
    ]
    assert told.helps == ["minCount 2: 2 pods would start"]


def test_what_is_said_to_help_does_help():
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        world.min_count("g", 2)
        world.run(3)
        assert world.nodes_of("a", "b", "c") == ["n1", "n1", ""]


@pytest.mark.parametrize(("cpu", "helps"), [(4, 1), (2, 0)])
def test_a_gang_that_lacks_pods(cpu, helps):
    with Groups(cpu) as world:
        world.group("g", 3)
        world.pods("g", "a", "b")
        told = explained(world)
    assert told.verdict is Verdict.WAITING
    assert told.summary == (
        "waiting: 2 of minCount 3 pods of PodGroup default/g exist. "
        "Otherwise 2 of 2 pending pods would find a node."
    )
    wanted = "1 more pod like default/a: all would start"
    assert (wanted in told.helps) == bool(helps)


def test_no_copies_are_made_for_a_gang_of_billions():
    with Groups(4) as world:
        world.group("g", 2**31 - 1)
        world.pods("g", "a")
        told = explained(world)
    assert told.helps == ["minCount 1: 1 pod would start"]


def test_a_tree_with_too_many_levels_is_waited_for():
    gates = f"{TOPOLOGY} CompositePodGroup"
    with Groups(4, gates=gates) as world:
        world.composite("c0")
        for level in range(1, 40):
            world.composite(f"c{level}", parentCompositePodGroupName=f"c{level - 1}")
        world.group("g", parentCompositePodGroupName="c39")
        world.pods("g", "a")
        told = explained(world, gates=gates)
    what = "more than 32 levels of pod groups above podgroup/default/g"
    assert told.summary == f"waiting: {what}."


def test_a_gang_with_a_gated_member():
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.pods("g", "c", schedulingGates=[{"name": "x"}])
        told = explained(world)
        pod = explainer(world).explain(world.pod("a"))
    assert [wait.what for wait in told.waiting_for] == ["default/c: scheduling gates x are set"]
    assert told.verdict is pod.verdict is Verdict.WAITING
    assert "default/c: scheduling gates x are set" in pod.summary


def test_pods_without_their_group():
    with Groups(4) as world:
        world.pods("g", "a")
        told = explained(world)
        pod = explainer(world).explain(world.pod("a"))
    assert told.summary == "waiting: PodGroup default/g does not exist."
    assert pod.verdict is Verdict.WAITING
    assert "PodGroup default/g does not exist" in pod.summary


def test_a_group_without_its_parent():
    gates = f"{TOPOLOGY} CompositePodGroup"
    with Groups(4, gates=gates) as world:
        world.group("g", 1, parentCompositePodGroupName="c")
        world.pods("g", "a")
        told = explained(world, gates=gates)
    assert told.verdict is Verdict.WAITING
    assert "compositepodgroup/default/c" in told.summary


def test_racks_and_what_they_lack():
    with Groups(gates=TOPOLOGY) as world:
        world.node("a", 2, rack="r0")
        world.node("b", 1, rack="r1")
        world.group("g", 3, schedulingConstraints=RACK)
        world.pods("g", "p0", "p1", "p2")
        told = explained(world, gates=TOPOLOGY)
    assert told.verdict is Verdict.NOT_NOW
    assert [(one.name, one.nodes, one.placed, one.lacks) for one in told.domains] == [
        ("r0", 1, 2, NO_CPU),
        ("r1", 1, 1, NO_CPU),
    ]
    assert told.helps == [
        "minCount 2: 2 pods would start",
        "no topology constraint: it would start",
    ]


def test_the_rack_with_the_most_room_tells_the_smaller_quorum():
    """Without a quorum the fullest rack is preferred; the group could start in another one."""
    with Groups(gates=TOPOLOGY) as world:
        world.node("a", 8, rack="r0")
        world.node("b", 4, rack="r1")
        world.pods("", "x", "y", cpu=2, nodeName="a")
        world.pods("", "z", cpu=2, nodeName="b")
        world.group("g", 5, schedulingConstraints=RACK)
        world.pods("g", *(f"p{number}" for number in range(5)))
        told = explained(world, gates=TOPOLOGY)
        assert "minCount 4: 4 pods would start" in told.helps
        world.min_count("g", 4)
        world.settle()
        assert sum(bool(world.node_of(f"p{number}")) for number in range(5)) == 4


def test_a_label_that_no_node_has():
    with Groups(2, gates=TOPOLOGY) as world:
        world.group("g", 2, schedulingConstraints=RACK)
        world.pods("g", "a", "b")
        told = explained(world, gates=TOPOLOGY)
    assert told.summary == "not now. 0 of 2 pending pods find a node; minCount is 2."
    assert [one.lacks for one in told.members] == ["no feasible placements found"] * 2
    assert "no node has the label rack" in told.notes


def tree(world: Groups, cpu: float) -> None:
    """Two gangs of two pods, the second with larger ones."""
    world.composite("c", 2)
    for name in "xy":
        world.group(name, 2, parentCompositePodGroupName="c")
    world.pods("x", "x0", "x1")
    world.pods("y", "y0", "y1", cpu=cpu)


def test_a_tree_says_which_of_its_groups_lack_pods():
    gates = f"{TOPOLOGY} CompositePodGroup"
    with Groups(4, gates=gates) as world:
        tree(world, 2)
        told, leaf = explained(world, "c", gates), explained(world, "x", gates)
    assert (told.kind, leaf.kind) == ("CompositePodGroup", "PodGroup")
    assert (
        told.summary
        == leaf.summary
        == (
            "not now. 3 of 4 pending pods find a node; CompositePodGroup c needs 2 of its groups: "
            "x gets 2 of minCount 2, y gets 1 of minCount 2."
        )
    )
    assert (told.pods, told.min_count) == (4, 2)


def test_a_tree_that_starts():
    gates = f"{TOPOLOGY} CompositePodGroup"
    with Groups(4, gates=gates) as world:
        tree(world, 1)
        told = explained(world, "c", gates)
        world.settle()
        after = explained(world, "c", gates)
    assert told.summary == "fits. 4 of 4 pending pods would find a node."
    assert after.summary == "placed. 4 of its 4 pods have nodes."


def test_who_would_be_evicted():
    with Groups(2) as world:
        world.group("v", 0, priority=-10, disruptionMode={"all": {}})
        world.pods("v", "x", "y", priority=-10)
        world.settle()
        world.group("g", 1, priority=100)
        world.pods("g", "a", priority=100)
        told = explained(world)
        pod = explainer(world).explain(world.pod("a"))
    assert told.summary.endswith("minCount is 1. The scheduler would evict 2 pods.")
    assert [(one.pod, one.priority) for one in told.preemption.victims] == [
        ("default/x (PodGroup v)", -10),
        ("default/y (PodGroup v)", -10),
    ]
    assert len(pod.preemption.victims) == 2


def test_workloads_in_the_way_are_named_if_no_pod_can_be_evicted():
    with Groups(4) as world:
        world.group("v", 2)
        world.pods("v", "x", "y")
        world.pods("", "z")
        world.settle()
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        told = explained(world)
        world.delete(world.pod("x"))
        world.delete(world.pod("y"))
        world.run(3)
        assert world.nodes_of("a", "b", "c") == ["n1", "n1", "n1"]
    assert told.preemption is None
    assert told.helps == [
        "minCount 1: 1 pod would start",
        "without PodGroup default/v (2 pods): it would start",
    ]


def test_a_group_whose_pods_disagree():
    with Groups(4) as world:
        world.group("g", 1, priority=100)
        world.pods("g", "a")
        told = explained(world)
    assert told.summary.startswith("not now. The attempt fails with an error: all pods in a single")
    assert [(one.pod, one.lacks) for one in told.members] == [
        ("default/a", "priority 100 (it has 0)")
    ]


def test_placed_pods_that_disagree_are_named_with_their_nodes():
    with Groups(4) as world:
        world.group("g", 1)
        world.pods("g", "a", "b")
        world.pods("g", "c", schedulerName="other", nodeName="n1")
        told = explained(world)
    assert [(one.pod, one.node, one.lacks) for one in told.members] == [
        ("default/c", "n1", "schedulerName default-scheduler (it has other)")
    ]


def test_a_group_that_runs():
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        told = explained(world)
    assert told.summary == "placed. 2 of its 2 pods have nodes."


def test_a_member_says_what_its_group_lacks():
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        pods = {name: explainer(world).explain(world.pod(name)) for name in "abc"}
        world.settle()
        for name, pod in pods.items():
            assert pod.message == world.message(name)
            assert pod.verdict is Verdict.NOT_NOW
    assert pods["a"].summary == (
        "not now. 1 of 1 nodes would take it alone; PodGroup default/g does not start: "
        "2 of 3 pending pods find a node; minCount is 3."
    )


def test_a_group_is_tried_once_for_all_its_members(monkeypatch):
    """Else the pods of a gang of 200 took minutes, and those of larger ones hours."""
    placed, run = [], Placing.run

    def counted(placing, root):
        placed.append(root)
        return run(placing, root)

    monkeypatch.setattr(Placing, "run", counted)
    with Groups(2) as world:
        world.group("g", 4)
        world.pods("g", *"abcd")
        made = explainer(world)
        first = made.explain(world.pod("a"))
        once = len(placed)
        others = [made.explain(world.pod(name)) for name in "bcd"]
        assert len(placed) == once
        fresh = [explainer(world).explain(world.pod(name)) for name in "bcd"]
    assert others == fresh
    assert first.summary == others[0].summary


def test_what_helps_the_group_is_told_where_nothing_helps_the_pod():
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        told = explainer(world).explain(world.pod("a"), fix=True)
        without = explainer(world).explain(world.pod("a"))
    assert told.fixes is None
    note = "would help its group: minCount 2: 2 pods would start"
    assert note in told.notes
    assert note not in without.notes


def test_a_member_is_tried_again_with_its_group_and_not_after_an_event():
    with Groups(2) as world:
        world.group("g", 2)
        world.pods("g", "a", "b", cpu="3")
        told = explainer(world).explain(world.pod("a"))
    assert (told.verdict, told.woken_by) == (Verdict.NEVER, [])
    assert any(note.startswith("failed groups back off") for note in told.notes)


def test_a_group_without_pods_may_have_finished():
    with Groups(2) as world:
        world.group("g", 1)
        told = explained(world)
    assert told.summary == "waiting: no pod of it waits or runs."


def test_groups_that_are_not_looked_at():
    with Groups(2) as world:
        world.group("g", 3)
        world.pods("g", "a")
        made = explainer(world, off=True)
        with pytest.raises(ExplainError, match="GenericWorkload=true turns them on"):
            made.explain_group("default", "g")
        note = "PodGroup default/g is not looked at: the feature gate GenericWorkload is off"
        told = made.explain(world.pod("a"))
        assert note in told.notes
        assert told.summary.startswith("alone, without its PodGroup: fits. 1 of 1 nodes")
        with pytest.raises(ExplainError, match="PodGroup default/other not found"):
            explainer(world).explain_group("default", "other")


def test_a_dump_without_pod_groups_says_so():
    with Groups(2) as world:
        world.pods("g", "a")
        made = explainer(world)
        made.state.missing["podgroups.scheduling.k8s.io"] = ""
        told = made.explain_group("default", "g")
    assert told.summary == (
        "memory holds no podgroups; if the cluster has some, this may be wrong. "
        "Without them: waiting: PodGroup default/g does not exist."
    )
    assert told.notes[-1].startswith("kubectl get podgroups.scheduling.k8s.io -A -o json")


def dumped(world: Groups, tmp_path):
    items = []
    for kind in KINDS:
        for obj in world.objects(kind):
            known = kind_of(kind)
            items.append(
                {**codec.to_json(obj), "apiVersion": known.api_version, "kind": kind.__name__}
            )
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


@pytest.mark.parametrize("words", [["podgroup/g"], ["podgroup", "g"], ["podgroups", "default/g"]])
def test_the_command(tmp_path, capsys, words):
    with Groups(gates=TOPOLOGY) as world:
        world.node("a", 1, rack="r0")
        world.pods("", "x", priority=-10)
        world.settle()
        world.group("g", 1, priority=100, schedulingConstraints=RACK)
        world.pods("g", "p0", priority=100)
        file = dumped(world, tmp_path)
    gates = ["--feature-gates", f"GenericWorkload=true,{TOPOLOGY}=true"]
    assert main(["explain", *words, "--from", file, *gates]) == 0
    printed = capsys.readouterr().out
    for part in ("PodGroup default/g: not now.", "MEMBER", "DOMAIN", "WOULD BE EVICTED"):
        assert part in printed
    assert main(["explain", *words, "--from", file, *gates, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["preemption"]["victims"] == [{"pod": "default/x", "priority": -10}]
    assert main(["explain", *words, "--from", file]) == 1
    assert "GenericWorkload=true" in capsys.readouterr().err


def test_members_with_the_same_story_are_told_together(tmp_path, capsys):
    """Only one of them is told why by the scheduler; the others why their group is not."""
    with Groups(1, 1) as world:
        world.group("g", 4)
        world.pods("g", *"abcd")
        world.settle()
        file = dumped(world, tmp_path)
    gates = ["--feature-gates", "GenericWorkload=true"]
    assert main(["explain", "pods", "--from", file, *gates]) == 0
    printed = capsys.readouterr().out
    assert "default/a, default/b, default/c, default/d: not now. 2 of 2 nodes" in printed
    assert printed.count("does not start") == 1


def test_kubectl_why_takes_groups():
    assert why_words(["compositepodgroup/c"]) == ["podgroup", "c"]
    assert why_words(["podgroup/g", "-n", "x"]) == ["podgroup", "g", "-n", "x"]
