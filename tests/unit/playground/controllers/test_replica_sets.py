"""ReplicaSets and ReplicationControllers keep the number of pods that their spec asks for."""

from __future__ import annotations

import pytest

from kubesched.playground.apimachinery.objects import timestamp
from kubesched.playground.controllers.pods import deletion_order

RS = "replicasets.apps"


def owner_uid(pod):
    owners = [each for each in pod["metadata"].get("ownerReferences", ()) if each.get("controller")]
    return owners[0]["uid"] if owners else None


def test_it_makes_the_missing_pods_and_reports_them_ready(world):
    world.workload(RS, replicas=3)
    world.run(10)
    status = world.get(RS, "web")["status"]
    assert len(world.active_pods()) == 3
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 3, 3)
    assert status["fullyLabeledReplicas"] == 3
    assert status["observedGeneration"] == 1
    assert world.reasons("web") == ["SuccessfulCreate"] * 3


@pytest.mark.parametrize("size", [0, 1, 7])
def test_it_follows_its_size_both_ways(world, size):
    world.workload(RS, replicas=4)
    world.run(10)
    world.patch(RS, "web", {"spec": {"replicas": size}})
    world.run(10)
    assert len(world.pods()) == size
    assert world.get(RS, "web")["status"]["replicas"] == size


def test_a_pod_that_ends_is_replaced(world):
    world.workload(RS, replicas=2)
    world.run(10)
    victim = world.pods()[0]["metadata"]["name"]
    world.patch("pods", victim, {"status": {"phase": "Failed"}}, subresource="status")
    world.run(10)
    assert len(world.active_pods()) == 2


def test_a_matching_orphan_is_adopted_instead_of_making_a_new_pod(world):
    orphan = world.pod("orphan")
    replica_set = world.workload(RS, replicas=1)
    world.run(10)
    pods = world.pods()
    assert [pod["metadata"]["uid"] for pod in pods] == [orphan["metadata"]["uid"]]
    assert owner_uid(pods[0]) == replica_set["metadata"]["uid"]


def test_a_pod_that_stops_matching_is_let_go_and_replaced(world):
    world.workload(RS, replicas=1)
    world.run(10)
    name = world.pods()[0]["metadata"]["name"]
    world.patch("pods", name, {"metadata": {"labels": {"app": "other"}}})
    world.run(10)
    assert owner_uid(world.get("pods", name)) is None
    assert len(world.pods("app=web")) == 1


def test_a_pod_of_another_owner_is_left_alone(world):
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "controller": True}
    world.create("configmaps", {"metadata": {"name": "x"}})
    uid = world.get("configmaps", "x")["metadata"]["uid"]
    world.pod("theirs", metadata={"ownerReferences": [{**owner, "uid": uid}]})
    world.workload(RS, replicas=1)
    world.run(10)
    assert len(world.pods()) == 2


def test_a_refused_pod_is_told_on_the_set_and_tried_again(world):
    world.workload(RS, replicas=2, pod={"priorityClassName": "missing"})
    world.run(2)
    conditions = world.get(RS, "web")["status"]["conditions"]
    assert conditions[0]["type"] == "ReplicaFailure"
    assert conditions[0]["reason"] == "FailedCreate"
    assert set(world.reasons("web")) == {"FailedCreate"}
    world.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "missing"}, "value": 5})
    world.run(70)
    assert len(world.active_pods()) == 2
    assert "conditions" not in world.get(RS, "web")["status"]


def test_availability_waits_for_min_ready_seconds(world):
    world.workload(RS, replicas=1, minReadySeconds=30)
    world.run(20)
    status = world.get(RS, "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (1, 0)
    world.run(20)
    assert world.get(RS, "web")["status"]["availableReplicas"] == 1


def test_a_very_large_set_is_made_in_bursts_without_waiting_for_anything(make_world):
    world = make_world(0)
    world.workload(RS, replicas=1201)
    world.settle()
    assert len(world.pods()) == 1201


def test_terminating_pods_are_counted_apart(world):
    world.workload(RS, replicas=2)
    world.run(10)
    world.patch(RS, "web", {"spec": {"replicas": 1}})
    world.settle()
    status = world.get(RS, "web")["status"]
    assert (status["replicas"], status["terminatingReplicas"]) == (1, 1)


def test_a_replication_controller_does_the_same_with_a_plain_selector(world):
    world.create(
        "replicationcontrollers",
        {
            "metadata": {"name": "old"},
            "spec": {"replicas": 2, "selector": {"app": "web"}, "template": world.template()},
        },
    )
    world.run(10)
    status = world.get("replicationcontrollers", "old")["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)


# -- which pod goes first -------------------------------------------------------------------------

NOW = 1_800_000_000.0


def pod(
    uid: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready_for: float | None = 100,
    age: float = 1000,
    cost: str | None = None,
    restarts: int = 0,
):
    conditions = []
    if ready_for is not None:
        since = timestamp(NOW - ready_for)
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost is not None else {}
    return {
        "metadata": {
            "uid": uid,
            "name": uid,
            "creationTimestamp": timestamp(NOW - age),
            "annotations": annotations,
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"node": ""}, {}, id="a pod without a node before one with"),
        pytest.param({"phase": "Pending"}, {}, id="a pending pod before a running one"),
        pytest.param({"ready_for": None}, {}, id="an unready pod before a ready one"),
        pytest.param({"cost": "-5"}, {}, id="a cheap pod before one of no stated cost"),
        pytest.param({"node": "crowded"}, {}, id="a pod on a crowded node before one alone"),
        pytest.param({"ready_for": 10}, {"ready_for": 500}, id="ready for the shorter time"),
        pytest.param({"restarts": 3}, {"restarts": 1}, id="the more often restarted"),
        pytest.param({"age": 10}, {"age": 5000}, id="the younger"),
        pytest.param(
            {"cost": "x", "age": 10}, {"age": 5000}, id="a cost that is no number counts as none"
        ),
    ],
)
def test_pods_are_given_up_in_kubernetes_order(first, second):
    one, two = pod("b", **first), pod("a", **second)
    related = [one, two, pod("c", node="crowded"), pod("d", node="crowded")]
    assert deletion_order([two, one], related, NOW)[0] is one
    assert deletion_order([one, two], related, NOW)[0] is one


def test_times_of_the_same_magnitude_are_decided_by_uid():
    near = [pod("a", ready_for=100), pod("b", ready_for=110)]
    assert [each["metadata"]["uid"] for each in deletion_order(near, near, NOW)] == ["a", "b"]
    near = [pod("b", ready_for=100), pod("a", ready_for=110)]
    assert [each["metadata"]["uid"] for each in deletion_order(near, near, NOW)] == ["a", "b"]


@pytest.mark.parametrize("resource", ["replicasets.apps", "replicationcontrollers"])
def test_a_status_that_another_client_wrote_is_repaired(world, resource):
    selector = {"app": "web"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": selector} if resource == "replicasets.apps" else selector,
        "template": world.template(labels=selector),
    }
    world.create(resource, {"metadata": {"name": "web"}, "spec": spec})
    world.run(10)
    before = world.get(resource, "web")["status"]
    assert before["readyReplicas"] == 2
    world.patch(resource, "web", {"status": {"readyReplicas": 0}}, subresource="status")
    world.run(1)
    assert world.get(resource, "web")["status"] == before
