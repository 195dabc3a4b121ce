"""Pending pods, decisions and actions: from a queue, a ring, conditions, and a playground's API."""

import json
import shlex
from random import Random

import pytest
from planning_worlds import owned

from kubesched.api.times import format_time
from kubesched.base.clock import ManualClock
from kubesched.base.errors import NotFound
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.page import attempts, pending
from kubesched.insight.page.actions import ActionError, PlaygroundActions
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.insight.state.planned_cluster import PlanError
from kubesched.playground.client.local import LocalApi
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.testing import make_pod


def condition(status, reason="", message="", at="2026-01-01T00:00:00Z"):
    return {
        "type": "PodScheduled",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def test_the_queue_lists_pods_in_the_order_of_trial():
    state = ClusterState("test")
    state.put(make_pod("low").priority(1).build())
    state.put(make_pod("high").priority(9).build())
    state.put(make_pod("held").gate("example.com/wait").build())
    listed = pending.queued_pods(in_memory_scheduler(state).assembly, [])
    assert [(row["pod"], row["place"]) for row in listed["pods"]] == [
        ("default/high", "active"),
        ("default/low", "active"),
        ("default/held", "gated"),
    ]
    assert listed["counts"]["active"] == 2
    assert "example.com/wait" in listed["pods"][2]["why"]


def test_a_pod_waits_since_it_was_created_however_often_it_was_tried():
    """The queue renews its timestamp after every attempt: six minutes were shown as the 42 seconds
    since the last one.
    """
    clock = ManualClock()
    state = ClusterState("test")
    pod = make_pod("old")
    pod.json["metadata"]["creationTimestamp"] = format_time(clock.now() - 342)
    state.put(pod.build())
    assembly = in_memory_scheduler(state, clock=clock).assembly
    ((_, info, *_),) = assembly.scheduler.queue.entries()
    info.timestamp = clock.monotonic() - 42
    (row,) = pending.queued_pods(assembly, [])["pods"]
    assert clock.now() - row["since"] == pytest.approx(342, abs=1)


def test_the_queue_names_pods_of_other_schedulers_apart_and_workloads():
    state = ClusterState("test")
    state.put(make_pod("alien").scheduler("volcano").cpu("2").build())
    state.put(owned("web-a"))
    assembly = in_memory_scheduler(state).assembly
    listed = pending.queued_pods(assembly, pending.of_other_schedulers(assembly))
    assert [(row["pod"], row["place"], row["workload"]) for row in listed["pods"]] == [
        ("default/web-a", "active", "ReplicaSet/web"),
        ("default/alien", "other", ""),
    ]
    assert listed["counts"]["other"] == 1
    assert listed["pods"][1]["why"] == "for the scheduler volcano"
    assert listed["pods"][1]["cpu"] == 2000


def test_conditions_tell_where_pods_of_other_schedulers_wait():
    pods = [
        make_pod("full")
        .status(conditions=[condition("False", "Unschedulable", "no room")])
        .build(),
        make_pod("broken")
        .status(conditions=[condition("False", "SchedulerError", "oops")])
        .build(),
        make_pod("new").build(),
        make_pod("alien").scheduler("other").build(),
        make_pod("odd").status(conditions=[condition("False", "Unschedulable", at="soon")]).build(),
        make_pod("placed").on("n").build(),
    ]
    assembly = in_memory_scheduler(ClusterState("test")).assembly
    listed = pending.pending_pods(assembly, pods)
    assert {row["pod"]: row["place"] for row in listed["pods"]} == {
        "default/new": "active",
        "default/broken": "backoff",
        "default/full": "unschedulable",
        "default/odd": "unschedulable",
        "default/alien": "other",
    }


def test_decisions_of_a_ring_and_of_conditions():
    ring = DecisionRing()
    info = QueuedPodInfo(PodInfo(make_pod("p").build()), 0.0)
    ring.add(info, "default-scheduler", 5.0, 0.001, Outcome.SCHEDULED, "n", 2, 3)
    ring.add(
        info,
        "default-scheduler",
        6.0,
        0.002,
        Outcome.UNSCHEDULABLE,
        node="",
        evaluated=3,
        message="0/3 nodes are available",
        reasons=(),
        queue="backoff",
        backoff_s=1.0,
    )
    listed = attempts.from_ring(ring)
    assert [each.outcome for each in listed] == ["scheduled", "unschedulable"]
    assert [each.number for each in attempts.from_ring(ring, 1)] == [2]
    pods = [
        make_pod("b")
        .on("n")
        .status(conditions=[condition("True", at="2026-01-01T00:00:02Z")])
        .build(),
        make_pod("a").status(conditions=[condition("False", "Unschedulable", "no room")]).build(),
        make_pod("c").build(),
    ]
    listed = attempts.from_conditions(pods)
    assert [(each.pod, each.outcome, each.node) for each in listed] == [
        ("default/a", "unschedulable", ""),
        ("default/b", "scheduled", "n"),
    ]


@pytest.fixture
def api():
    return LocalApi.in_memory(clock=ManualClock(), rng=Random(0))


@pytest.fixture
def actions(api):
    api.create("nodes", {"metadata": {"name": "n"}})
    return PlaygroundActions(
        api, lambda count, _like: [{"metadata": {"name": f"new-{i}"}} for i in range(count)]
    )


@pytest.mark.parametrize(
    "manifest", ["[" * 3000, "[]", '{"kind": 3, "metadata": {"namespace": 4}}', '{"kind": "Pod"}']
)
def test_a_manifest_that_is_none_is_refused(actions, manifest):
    command = f"kubectl apply -f - <<< '{manifest}'"
    with pytest.raises(ActionError):
        actions.do({"action": "run", "commands": [command]}, preview=False)


def test_every_action_names_its_command_and_does_it(api, actions):
    def do(**request):
        shown = actions.do(request, preview=True)["command"]
        done = actions.do(request, preview=False)
        assert done == {"command": shown, "done": True}
        return shown

    def run(command):
        assert do(action="run", commands=[command]) == command
        return api.get("nodes", None, "n")["spec"]

    assert run("kubectl cordon n")["unschedulable"] is True
    assert not run("kubectl uncordon n").get("unschedulable")
    assert run("kubectl taint node n a=b:NoSchedule --overwrite")["taints"] == [
        {"key": "a", "value": "b", "effect": "NoSchedule"}
    ]
    assert not run("kubectl taint node n a=b:NoSchedule-").get("taints")
    assert do(action="add-nodes", count=2).endswith("# and 1 more")
    assert len(api.list("nodes")[0]) == 3
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b}]}"
    )
    assert do(action="apply", yaml=pod).startswith("kubectl create -f - <<'EOF'")
    misspelt = {"action": "apply", "yaml": pod.replace("containers", "contaners")}
    with pytest.raises(PlanError, match="did you mean containers"):
        actions.do(misspelt, preview=False)


def test_commands_of_fixes_are_run(api, actions):
    def run(*commands):
        actions.do({"action": "run", "commands": list(commands)}, preview=False)

    taints = [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    ]
    api.patch("nodes", None, "n", {"spec": {"unschedulable": True, "taints": taints}})
    run(
        "kubectl uncordon n",
        "kubectl label node n --overwrite disk=ssd",
        "kubectl taint node n a=b:NoSchedule-",
    )
    node = api.get("nodes", None, "n")
    assert not node["spec"].get("unschedulable")
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert node["spec"]["taints"] == taints[1:]
    for name in ("p", "q"):
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        api.create("pods", pod, "default")
    first = api.get("pods", "default", "p")["metadata"]["uid"]
    run(
        "kubectl get pod p -n default -o json | kubectl patch --local -f - --type=json -p "
        """'[{"op":"add","path":"/spec/nodeSelector","value":{"a":"b"}}]' -o json """
        "| kubectl replace --force -f -",
        "kubectl delete pod -n default q",
    )
    (left,) = api.list("pods", "default")[0]
    assert left["spec"]["nodeSelector"] == {"a": "b"}
    assert left["metadata"]["uid"] != first
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    run(f"kubectl apply -f - <<< {shlex.quote(json.dumps(claim))}")
    run(
        """kubectl get pvc data -n default -o json | kubectl patch --local -f - --type=json -p
        '[{"op":"add","path":"/spec/storageClassName","value":"fast"}]' -o json | kubectl replace
        --force -f -
        """
    )
    assert (
        api.get("persistentvolumeclaims", "default", "data")["spec"]["storageClassName"] == "fast"
    )
    run(
        """kubectl patch pod p -n default --type=json -p
        '[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]'
        """
    )
    assert api.get("pods", "default", "p")["metadata"]["labels"] == {"x": "y"}


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "kubectl",
        "kubectl delete",
        "kubectl delete pod -n",
        "kubectl exec p -- sh",
        "kubectl patch pod p -n default -p '{'",
        "kubectl apply -f - <<< '{}'",
        "kubectl get secrets x -n default -o json",
        "kubectl uncordon 'n",
    ],
)
def test_other_commands_are_refused(actions, command):
    with pytest.raises(ActionError):
        actions.do({"action": "run", "commands": [command]}, preview=False)


def test_a_deployment_is_scaled(api, actions):
    labels = {"app": "a"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.create("deployments.apps", {"metadata": {"name": "web"}, "spec": spec}, "default")
    command = "kubectl scale deployment/web -n default --replicas=3"
    actions.do({"action": "run", "commands": [command]}, preview=False)
    assert actions.workloads() == [
        {"namespace": "default", "name": "web", "replicas": 3, "ready": 0}
    ]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"action": "explode"},
        {"action": "run"},
        {"action": "run", "commands": ["kubectl cordon"]},
        {"action": "run", "commands": [5]},
        {"action": "run", "commands": ["kubectl scale deployment/web -n a --replicas=x"]},
        {"action": "apply", "yaml": 5},
        {"action": "add-nodes", "count": True},
        {"action": "add-nodes", "count": 10**6},
        {"action": "run", "commands": "kubectl uncordon n"},
    ],
)
def test_nonsense_is_refused_with_the_field(actions, request_):
    with pytest.raises(ActionError):
        actions.do(request_, preview=False)


def test_what_is_not_there_is_not_found(actions):
    with pytest.raises(NotFound):
        actions.do({"action": "run", "commands": ["kubectl cordon absent"]}, preview=False)
