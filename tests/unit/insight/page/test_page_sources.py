"""Pending pods, decisions and actions: from a queue, a ring, conditions, and a playground's API."""

from random import Random

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import NotFound
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.page import attempts, pending
from kubesched.insight.page.actions import ActionError, PlaygroundActions
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
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
    listed = pending.queued_pods(in_memory_scheduler(state).assembly)
    assert [(row["pod"], row["place"]) for row in listed["pods"]] == [
        ("default/high", "active"),
        ("default/low", "active"),
        ("default/held", "gated"),
    ]
    assert listed["counts"]["active"] == 2
    assert "example.com/wait" in listed["pods"][2]["why"]


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
        api, lambda count: [{"metadata": {"name": f"new-{i}"}} for i in range(count)]
    )


def test_every_action_names_its_command_and_does_it(api, actions):
    def do(**request):
        shown = actions.do(request, preview=True)["command"]
        done = actions.do(request, preview=False)
        assert done == {"command": shown, "done": True}
        return shown

    assert do(action="cordon", node="n") == "kubectl cordon n"
    assert api.get("nodes", None, "n")["spec"]["unschedulable"] is True
    assert do(action="uncordon", node="n") == "kubectl uncordon n"
    assert not api.get("nodes", None, "n")["spec"].get("unschedulable")
    command = do(action="taint", node="n", key="a", value="b", effect="NoSchedule")
    assert command == "kubectl taint nodes n a=b:NoSchedule --overwrite"
    assert api.get("nodes", None, "n")["spec"]["taints"] == [
        {"key": "a", "value": "b", "effect": "NoSchedule"}
    ]
    assert do(action="untaint", node="n", key="a", effect="NoSchedule").endswith("a:NoSchedule-")
    assert not api.get("nodes", None, "n")["spec"].get("taints")
    assert do(action="add-nodes", count=2).endswith("# and 1 more")
    assert len(api.list("nodes")[0]) == 3
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b}]}"
    )
    assert do(action="apply", yaml=pod).startswith("kubectl create -f - <<'EOF'")
    assert do(action="delete-pod", namespace="default", name="p").startswith("kubectl delete pod p")


def test_a_deployment_is_scaled(api, actions):
    labels = {"app": "a"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.create("deployments.apps", {"metadata": {"name": "web"}, "spec": spec}, "default")
    request = {"action": "scale", "namespace": "default", "name": "web", "replicas": 3}
    command = actions.do(request, preview=False)["command"]
    assert command == "kubectl scale deployment/web --namespace default --replicas=3"
    assert actions.workloads() == [
        {"namespace": "default", "name": "web", "replicas": 3, "ready": 0}
    ]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"action": "explode"},
        {"action": "cordon"},
        {"action": "cordon", "node": 5},
        {"action": "scale", "namespace": "a", "name": "b", "replicas": -1},
        {"action": "scale", "namespace": "a", "name": "b", "replicas": True},
        {"action": "add-nodes", "count": 10**6},
        {"action": "taint", "node": "n", "key": "a", "effect": "Nothing"},
    ],
)
def test_nonsense_is_refused_with_the_field(actions, request_):
    with pytest.raises(ActionError):
        actions.do(request_, preview=False)


def test_what_is_not_there_is_not_found(actions):
    with pytest.raises(NotFound):
        actions.do({"action": "cordon", "node": "absent"}, preview=False)


def test_a_command_quotes_what_a_shell_would_read_otherwise(actions):
    shown = actions.do({"action": "cordon", "node": "a; rm -rf /"}, preview=True)
    assert shown["command"] == "kubectl cordon 'a; rm -rf /'"
