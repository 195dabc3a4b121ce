"""Plans: where pods go, who is evicted and comes back where, what is left over and why."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest
from planning_worlds import deployment_manifest, nodes, owned, planned, random_state

from kubesched.api import codec
from kubesched.api.apps_v1 import ReplicaSet
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.insight.explain import Verdict
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.nodes import NewNodes
from kubesched.insight.state.planned_cluster import PlanError
from kubesched.testing import make_pod


def budget(name="web", **spec):
    value = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    return codec.convert(value, PodDisruptionBudget)


def manifest(kind, name="new", *, cpu="1", **spec):
    labels = {"app": name}
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    body = {"template": template, **spec}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        body["selector"] = {"matchLabels": labels}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    obj = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": body}
    return Manifest("new.yaml", 1, obj)


def places(plan):
    return Counter(each.node for each in plan.placed)


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(manifest("Deployment", replicas=3), 3, id="Deployment"),
        pytest.param(manifest("ReplicaSet", replicas=2), 2, id="ReplicaSet"),
        pytest.param(manifest("StatefulSet", replicas=3, serviceName="new"), 3, id="StatefulSet"),
        pytest.param(manifest("DaemonSet"), 3, id="DaemonSet"),
        pytest.param(manifest("Job", parallelism=2, completions=4), 2, id="Job"),
    ],
)
def test_controllers_make_the_pods_of_a_workload(workload, expected):
    plan = planned(nodes(), manifests=[workload])
    assert plan.is_complete
    assert sum(places(plan).values()) == expected
    assert all(each.zone for each in plan.placed)


def test_a_daemon_set_has_one_pod_per_node():
    assert places(planned(nodes(), manifests=[manifest("DaemonSet")])) == {
        "n0": 1,
        "n1": 1,
        "n2": 1,
    }


def test_stateful_pods_come_in_order_and_stop_at_the_first_that_waits():
    plan = planned(
        nodes(), manifests=[manifest("StatefulSet", replicas=6, cpu="3", serviceName="x")]
    )
    assert [each.pod for each in plan.placed] == [f"default/new-{i}" for i in range(3)]
    assert [each.pods for each in plan.unplaced] == [["default/new-3"]]


def test_replicas_can_be_overridden():
    plan = planned(nodes(), manifests=[manifest("Deployment", replicas=1)], replicas=5)
    assert len(plan.placed) == 5


def test_what_does_not_fit_is_told_once_per_workload_with_its_verdict():
    plan = planned(nodes(), manifests=[manifest("Deployment", replicas=20)])
    assert not plan.is_complete
    assert len(plan.placed) == 12
    [left] = plan.unplaced
    assert (len(left.pods), left.stop.verdict) == (8, Verdict.NOT_NOW)
    assert left.stop.message.startswith("0/3 nodes are available: 3 Insufficient cpu.")
    assert plan.tightest == "cpu"
    assert plan.after.resources["cpu"].requested == 12_000


def test_nothing_runs_out_first_where_nothing_is_requested():
    assert planned(nodes()).tightest == ""


@pytest.mark.parametrize(
    ("kind", "hint"), [("Job", ""), ("ReplicaSet", "; --replicas replicaset/new=N scales it")]
)
def test_a_workload_that_exists_is_noted(kind, hint):
    state = nodes()
    state.put(owned("new-0", "n0", kind=kind, owner="new"))
    note = f"{kind} default/new exists already: the pods of the file come in addition{hint}"
    assert planned(state, manifests=[manifest(kind)]).notes == [note]


def test_pending_pods_take_part_but_do_not_spoil_the_plan():
    state = nodes()
    state.put(make_pod("waits").cpu("2").build())
    state.put(make_pod("hopeless").cpu("20").build())
    plan = planned(state, manifests=[manifest("Deployment", replicas=1)])
    assert plan.is_complete
    assert (plan.placed[0].pod, plan.placed[0].was_pending) == ("default/waits", True)
    assert [(each.pods, each.was_pending) for each in plan.unplaced] == [
        (["default/hopeless"], True)
    ]


def test_preempted_pods_are_told_and_come_back():
    state = nodes(1)
    state.put(owned("web-1", "n0", cpu="4"))
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    workload = manifest("Deployment", replicas=1, cpu="3")
    workload.obj["spec"]["template"]["spec"]["priorityClassName"] = "high"
    plan = planned(state, manifests=[Manifest("c.yaml", 1, high), workload])
    assert places(plan) == {"n0": 1}
    [gone] = plan.evicted
    assert (gone.pod, gone.by) == ("default/web-1", "preemption")
    assert [each.pods for each in plan.unplaced] == [[gone.replacement]]
    assert not plan.is_complete


# -- nodes ---------------------------------------------------------------------------------------


def test_nodes_like_another_take_pods_and_run_its_daemons():
    state = nodes(1)
    state.put(make_pod("big").cpu("4").build())
    state.put(owned("agent-n0", "n0", kind="DaemonSet", owner="agent", cpu="500m"))
    assert not planned(state, remove_nodes=[], drain=[], manifests=[]).is_complete
    plan = planned(state, add_nodes=[NewNodes.parse("2:like=n0")])
    assert plan.nodes_added == ["n0-new-1", "n0-new-2"]
    assert not plan.is_complete  # the daemon takes half a cpu of each
    assert places(plan) == {"n0-new-1": 1, "n0-new-2": 1}


def test_nodes_from_a_template(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: large}\n"
        "status: {capacity: {cpu: '64', memory: 256Gi, pods: '110'}}\n"
    )
    state = nodes(1)
    state.put(make_pod("big").cpu("40").build())
    plan = planned(state, add_nodes=[NewNodes.parse(f"1:{path}")])
    assert (plan.is_complete, places(plan)) == (True, {"large-new-1": 1})


def test_a_pod_that_is_there_is_not_created_again():
    state = nodes(1)
    state.put(make_pod("a").on("n0").build())
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}
    with pytest.raises(PlanError, match="pod of that name in default already"):
        planned(state, manifests=[Manifest("a.yaml", 1, obj)])


def node_manifest(name, **fields):
    obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **fields}
    return Manifest("nodes.yaml", 1, obj)


def test_nodes_are_added_under_their_own_names_or_replaced():
    big = node_manifest("big", status={"allocatable": {"cpu": "64", "pods": "10"}})
    plan = planned(nodes(2), manifests=[manifest("Deployment", cpu="32", replicas=1)], nodes=[big])
    assert plan.nodes_added == ["big"]
    assert [each.node for each in plan.placed] == ["big"]
    taint = {"key": "gone", "effect": "NoSchedule"}
    tainted = node_manifest("n0", spec={"taints": [taint]})  # keeps the size it has
    plan = planned(nodes(2), manifests=[manifest("Deployment", replicas=1)], nodes=[tainted])
    assert plan.nodes_added == []
    assert [each.node for each in plan.placed] == ["n1"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "status.allocatable: missing"),
        ({"metadata": {}}, "metadata.name: missing"),
        ({"spec": 5}, "nodes.yaml:1"),
    ],
)
def test_nodes_that_are_none_are_refused(fields, message):
    with pytest.raises(PlanError, match=message):
        planned(nodes(1), nodes=[node_manifest("new", **fields)])


@pytest.mark.parametrize("text", ["3", "x:like=a", ":like=a", "0:like=a", "2:", "-1:like=a"])
def test_other_forms_of_new_nodes_are_refused(text):
    with pytest.raises(ValueError, match=r"expected (N:FILE or N:like=NODE|1 to )"):
        NewNodes.parse(text)


# -- drains --------------------------------------------------------------------------------------


def test_drained_pods_come_back_elsewhere_by_their_controllers():
    state = nodes()
    state.put(owned("web-1", "n0"))
    state.put(owned("db-0", "n0", kind="StatefulSet", owner="db"))
    state.put(owned("job-x", "n0", kind="Job", owner="job"))
    state.put(owned("agent-1", "n0", kind="DaemonSet", owner="agent"))
    plan = planned(state, drain=["n0"])
    assert plan.is_complete
    assert {each.pod for each in plan.moved} == {"default/web-1", "default/db-0", "default/job-x"}
    assert all(each.to_node != "n0" for each in plan.moved)
    assert next(e for e in plan.moved if e.pod == "default/db-0").replacement == "default/db-0"
    assert next(e for e in plan.moved if e.pod == "default/web-1").replacement.startswith(
        "default/web-"
    )


def test_nodes_can_be_drained_by_selector():
    state = nodes()
    state.put(owned("web-1", "n0"))
    plan = planned(state, drain=["topology.kubernetes.io/zone in (a, b)"])
    assert [each.to_node for each in plan.moved] == ["n2"]


def test_pods_without_a_controller_stay_unless_forced():
    state = nodes()
    state.put(make_pod("alone").on("n0").build())
    plan = planned(state, drain=["n0"])
    assert [(each.pod, each.node) for each in plan.kept] == [("default/alone", "n0")]
    assert not plan.is_complete
    forced = planned(state, drain=["n0"], force=True)
    assert forced.is_complete
    assert [(each.pod, each.replacement) for each in forced.evicted] == [("default/alone", "")]


def _budgeted(room_cpu, count=3, **spec):
    state = nodes(cpu=room_cpu)
    for i in range(count):
        state.put(owned(f"web-{i}", "n0"))
    state.put(budget(**spec))
    return state


def test_a_budget_lets_pods_go_as_their_replacements_come():
    plan = planned(_budgeted("4", minAvailable=2), drain=["n0"])
    assert plan.is_complete
    assert len(plan.moved) == 3


def test_a_budget_that_allows_nothing_keeps_its_pods():
    plan = planned(_budgeted("4", minAvailable=3), drain=["n0"])
    assert [each.reason for each in plan.kept] == [
        "The disruption budget web needs 3 healthy pods and has 3 currently"
    ] * 3
    assert (plan.evicted, plan.is_complete) == ([], False)


def test_a_budget_stops_the_drain_where_replacements_find_no_room():
    state = _budgeted("4", minAvailable=2)
    for node in ("n1", "n2"):
        state.put(owned(f"full-{node}", node, owner="full", cpu="4"))
    plan = planned(state, drain=["n0"])
    assert (len(plan.evicted), len(plan.kept)) == (1, 2)
    assert [len(each.pods) for each in plan.unplaced] == [1]


def test_max_unavailable_counts_what_the_controller_wants():
    state = _budgeted("4", maxUnavailable="34%")
    value = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}}
    state.put(codec.convert(value, ReplicaSet))
    assert len(planned(state, drain=["n0"]).moved) == 3


@pytest.mark.parametrize("seed", range(10))
def test_no_budget_is_ever_overdrawn(seed):
    """Whatever is drained, every eviction leaves as many healthy pods as the budget wants."""
    rng = Random(seed)
    state = nodes(4, cpu=rng.choice(["2", "4"]))
    for i in range(8):
        state.put(owned(f"web-{i}", f"n{rng.randrange(4)}", cpu=rng.choice(["500m", "1"])))
    wanted = rng.randrange(9)
    state.put(budget(minAvailable=wanted))
    drained = [f"n{i}" for i in range(rng.randint(1, 3))]
    plan = planned(state, drain=drained)
    lost = sum(len(each.pods) for each in plan.unplaced)
    assert 8 - lost >= min(wanted, 8)
    on_drained = sum(pod.spec.node_name in drained for pod in state.of(Pod))
    assert len(plan.evicted) + len(plan.kept) == on_drained


def test_removed_nodes_are_gone_when_they_come_empty():
    state = nodes()
    state.put(owned("web-1", "n0"))
    state.put(owned("agent-1", "n0", kind="DaemonSet", owner="agent"))
    state.put(make_pod("alone").on("n1").build())
    plan = planned(state, remove_nodes=["n0", "n1"])
    assert plan.nodes_removed == ["n0"]
    assert [each.pod for each in plan.kept] == ["default/alone"]
    assert ("default/agent-1", "removal", "") in [
        (e.pod, e.by, e.replacement) for e in plan.evicted
    ]


# -- deletions -----------------------------------------------------------------------------------


def test_a_deleted_pod_comes_back_and_a_deleted_workload_does_not():
    state = nodes()
    state.put(owned("web-1", "n0"))
    assert len(planned(state, delete=["pod/web-1"]).moved) == 1
    plan = planned(state, delete=["replicaset/web"])
    assert [(each.by, each.replacement) for each in plan.evicted] == [("delete", "")]
    assert plan.after.resources["cpu"].requested == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drain": ["n9"]}, '--drain: there is no node "n9"'),
        ({"drain": ["zone=x"]}, "--drain: no node matches 'zone=x'"),
        ({"remove_nodes": ["a in"]}, "--remove-nodes: 'a in' is neither a node nor a selector"),
        ({"delete": ["pod/x"]}, '--delete: there is no pod "default/x"'),
        ({"delete": ["thing/x"]}, "--delete: 'thing/x': expected KIND/NAME"),
        ({"delete": ["deploy/web"]}, '--delete: there is no pod of Deployment "default/web"'),
        ({"add_nodes": [NewNodes.parse("1:like=n9")]}, '--add-nodes: there is no node "n9"'),
        ({"add_nodes": [NewNodes.parse("1:nowhere.yaml")]}, "nowhere.yaml: No such file"),
        (
            {
                "manifests": [
                    Manifest(
                        "p.yaml",
                        1,
                        {
                            "apiVersion": "v1",
                            "kind": "Pod",
                            "metadata": {"name": "P"},
                            "spec": {"containers": []},
                        },
                    )
                ]
            },
            "p.yaml:1: Pod P: .*spec.containers: ",
        ),
    ],
)
def test_changes_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        planned(nodes(), **changes)


# -- the whole -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_same_seed_gives_the_same_bytes_and_the_state_stays(seed):
    state = random_state(Random(seed), nodes=8, pods=20)
    before = list(state)
    changes = {
        "manifests": [deployment_manifest(Random(seed), 6)],
        "drain": ["node-1"],
        "force": True,
        "add_nodes": [NewNodes.parse("1:like=node-0")],
    }
    first, second = (msgspec.json.encode(planned(state, seed=seed, **changes)) for _ in range(2))
    assert first == second
    assert list(state) == before
    assert state.count(Node) == 8


# -- other requests ------------------------------------------------------------------------------


def test_other_requests_replace_the_pods_of_a_workload_one_by_one():
    state = nodes(2, cpu="4")
    for i in range(2):
        state.put(owned(f"web-{i}", f"n{i}", cpu="1"))
    state.put(owned("web-2", cpu="9"))  # pending
    state.put(owned("other-0", "n0", owner="other", cpu="1"))
    plan = planned(state, requests={"replicaset/default/web": {"cpu": "3"}})
    # n0 has room for one beside the other pod, and n1 for one: the third finds none.
    assert {each.by for each in plan.evicted} == {"rollout"}
    assert sorted(each.pod for each in plan.evicted) == ["default/web-0", "default/web-1"]
    assert plan.after.resources["cpu"].requested == 7000
    assert sum(len(each.pods) for each in plan.unplaced) == 1
    assert not plan.is_complete


def test_a_pending_pod_that_fits_with_another_request_is_placed():
    state = nodes(1, cpu="4")
    state.put(owned("web-0", cpu="9"))
    plan = planned(state, requests={"replicaset/web": {"cpu": "2"}})
    assert [each.node for each in plan.placed] == ["n0"]
    assert plan.moved == plan.evicted == plan.unplaced == []


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ({"replicaset/absent": {"cpu": "1"}}, "no pod of replicaset/absent"),
        ({"web": {"cpu": "1"}}, "expected KIND/NAME"),
        ({"replicaset/web": {"cpu": "much"}}, "replicaset/web: cpu"),
    ],
)
def test_wrong_requests_are_refused(requests, said):
    state = nodes(1)
    state.put(owned("web-0", "n0"))
    with pytest.raises(PlanError, match=said):
        planned(state, requests=requests)
