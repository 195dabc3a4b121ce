"""`plan` and `capacity` with pod groups: gangs are placed and counted as a whole."""

from __future__ import annotations

import json

import pytest
from group_scenarios import Groups

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.app.cli.main import main
from kubesched.config.features import FeatureGates, from_map
from kubesched.insight.planning.capacity import count_capacity
from kubesched.insight.planning.manifests import parse_manifests
from kubesched.insight.planning.plan import Changes, make_plan
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlanError

TOPOLOGY = "TopologyAwareWorkloadScheduling"
GROUP = """
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {schedulingPolicy: {gang: {minCount: 3}}%s}
---"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: added}
status: {allocatable: {cpu: "1", memory: 64Gi, pods: "110"}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  parallelism: %d
  template:
    spec:
      restartPolicy: Never
      schedulingGroup: {podGroupName: gang}
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
---"""


def gates(*more: str) -> FeatureGates:
    return from_map(dict.fromkeys(("GenericWorkload", *more), True))


def state_of(world: Groups) -> ClusterState:
    state = ClusterState("memory")
    for kind in (Node, Pod, PodGroup):
        for obj in world.objects(kind):
            state.put(obj)
    return state


def nodes(*cpus: float, **racks: float) -> ClusterState:
    with Groups(*cpus) as world:
        for name, cpu in racks.items():
            world.node(name, cpu, rack=name[0])
        return state_of(world)


def files(*texts: str):
    return parse_manifests("files", "\n".join(texts).encode())


@pytest.mark.parametrize(("cpu", "gangs"), [(8, 2), (9, 3), (2, 0)])
def test_gangs_are_counted_as_a_whole(cpu, gangs):
    counted = count_capacity(nodes(cpu), files(GROUP % "", JOB % ("gang", 3)), gates=gates())
    assert (counted.replicas, counted.gang, counted.pods) == (gangs, 3, 3 * gangs)
    assert counted.next.summary == (
        f"{cpu - 3 * gangs} of 3 pods find a node. 0/1 nodes are available: 1 Insufficient cpu."
    )


def test_files_with_fewer_pods_than_a_gang_needs_cannot_be_counted():
    with pytest.raises(PlanError, match=r"minCount is 3, and the files have 2 pods"):
        count_capacity(nodes(8), files(GROUP % "", JOB % ("a", 1), JOB % ("b", 1)), gates=gates())


def test_a_gang_of_billions_is_not_counted():
    group = (GROUP % "").replace("minCount: 3", "minCount: 2147483647")
    with pytest.raises(PlanError, match=r"minCount is 2147483647; at most 100000 are counted"):
        count_capacity(nodes(8), files(group, JOB % ("a", 1)), gates=gates())


def test_as_many_gangs_start_in_a_plan():
    """The count is what the scheduler does with so many groups."""
    gangs = [
        text.replace("gang}", f"gang-{number}}}")
        for number in range(4)
        for text in (GROUP % "", JOB % ("gang", 3))
    ]
    plan = make_plan(nodes(8), Changes(manifests=files(*gangs)), gates=gates())
    assert len(plan.placed) == 6
    assert {pod.pod.rpartition("-")[0] for pod in plan.placed} == {
        "default/gang-0",
        "default/gang-1",
    }


def test_a_gang_that_waits_is_part_of_a_plan():
    with Groups(2) as world:
        world.group("gang", 3)
        world.pods("gang", "a", "b", "c")
        state = state_of(world)
    plan = make_plan(state, Changes(), gates=gates())
    assert [pod for each in plan.unplaced for pod in each.pods] == [
        "default/a",
        "default/b",
        "default/c",
    ]
    assert all(each.was_pending for each in plan.unplaced)
    more = Changes(nodes=parse_manifests("files", NODE.encode()))
    placed = make_plan(state, more, gates=gates()).placed
    assert sorted((pod.pod, pod.was_pending) for pod in placed) == [
        (f"default/{name}", True) for name in "abc"
    ]


def test_gangs_are_counted_within_racks():
    state = nodes(a1=2, a2=2, b1=3, b2=2)
    rack = ", schedulingConstraints: {topology: [{key: rack}]}"
    wanted = files(GROUP % rack, JOB % ("gang", 3))
    counted = count_capacity(state, wanted, gates=gates(TOPOLOGY))
    assert counted.replicas == 2, "without racks, 9 cpus are three gangs"
    anywhere = count_capacity(state, files(GROUP % "", JOB % ("gang", 3)), gates=gates(TOPOLOGY))
    assert anywhere.replicas == 3


def test_a_gang_of_two_workloads():
    wanted = files(GROUP % "", JOB % ("driver", 1), JOB % ("worker", 4))
    counted = count_capacity(nodes(11), wanted, gates=gates())
    assert (counted.replicas, counted.gang, counted.pods) == (2, 5, 10)


def test_the_group_may_be_in_the_cluster():
    with Groups(8) as world:
        world.group("gang", 4)
        state = state_of(world)
    counted = count_capacity(state, files(JOB % ("gang", 3)), gates=gates())
    assert (counted.replicas, counted.gang) == (2, 4)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([JOB % ("gang", 3)], "PodGroup default/gang: it is neither in the cluster nor in"),
        (
            [GROUP % "", JOB % ("a", 1), (JOB % ("b", 1)).replace("gang", "other")],
            "not all of one PodGroup",
        ),
    ],
)
def test_what_cannot_be_counted(texts, message):
    with pytest.raises(PlanError, match=message):
        count_capacity(nodes(8), files(*texts), gates=gates())


def test_pods_of_another_priority_than_their_group():
    with Groups(8) as world:
        world.group("gang", 3, priority=100)
        state = state_of(world)
    text = "PodGroup default/gang: all pods in a single pod group should have the same priority"
    with pytest.raises(PlanError, match=text):
        count_capacity(state, files(JOB % ("gang", 3)), gates=gates())


def test_the_commands(tmp_path, capsys):
    node = {"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "110"}}
    dump = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": node}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    (tmp_path / "gang.yaml").write_text(GROUP % "" + JOB % ("gang", 3))
    words = ["--from", str(tmp_path / "dump.json"), "-f", str(tmp_path / "gang.yaml")]
    on = ["--feature-gates", "GenericWorkload=true"]
    assert main(["capacity", *words, *on]) == 0
    printed = capsys.readouterr().out
    assert "default/gang: 2 gangs of 3 fit." in printed
    assert "The next gang: 2 of 3 pods find a node." in printed
    assert main(["plan", *words, *on]) == 0
    assert capsys.readouterr().out.startswith("3 placed.")
    assert main(["capacity", *words]) == 1
    assert "PodGroup of scheduling.k8s.io/v1beta1 needs feature gates" in capsys.readouterr().err
