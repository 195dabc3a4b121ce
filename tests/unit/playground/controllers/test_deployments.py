"""Deployments roll, scale, pause, go back, and report what `kubectl rollout` reads."""

from __future__ import annotations

import pytest

D = "deployments.apps"
RS = "replicasets.apps"
REVISION = "deployment.kubernetes.io/revision"


def condition(obj, kind):
    for each in obj.get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            return each
    return None


def set_image(world, image, name="web"):
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    world.patch(D, name, {"spec": {"template": template}})


def images(world):
    return sorted(pod["spec"]["containers"][0]["image"] for pod in world.active_pods())


def replica_sets(world):
    return sorted(world.list(RS), key=lambda each: int(each["metadata"]["annotations"][REVISION]))


def test_a_new_deployment_runs_and_says_so(world):
    world.deployment(replicas=3)
    world.run(10)
    deployment = world.get(D, "web")
    status = deployment["status"]
    for field in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"):
        assert status[field] == 3
    assert status["observedGeneration"] == deployment["metadata"]["generation"]
    assert "unavailableReplicas" not in status
    assert condition(deployment, "Available")["reason"] == "MinimumReplicasAvailable"
    progressing = condition(deployment, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "NewReplicaSetAvailable")
    assert deployment["metadata"]["annotations"][REVISION] == "1"
    assert world.reasons("web") == ["ScalingReplicaSet"]


def test_its_replica_set_and_pods_carry_the_template_hash(world):
    world.deployment(replicas=1)
    world.run(10)
    [replica_set] = world.list(RS)
    template_hash = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{template_hash}"
    assert replica_set["spec"]["selector"]["matchLabels"]["pod-template-hash"] == template_hash
    [pod] = world.pods()
    assert pod["metadata"]["labels"]["pod-template-hash"] == template_hash
    assert pod["metadata"]["name"].startswith(f"web-{template_hash}-")


def test_a_changed_template_replaces_every_pod(world):
    world.deployment(replicas=4)
    world.run(10)
    set_image(world, "web:2")
    world.run(30)
    assert images(world) == ["web:2"] * 4
    old, new = replica_sets(world)
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 4)
    assert world.get(D, "web")["metadata"]["annotations"][REVISION] == "2"
    progressing = condition(world.get(D, "web"), "Progressing")
    assert progressing["reason"] == "NewReplicaSetAvailable"


def test_a_change_of_size_alone_makes_no_new_version(world):
    world.deployment(replicas=2)
    world.run(10)
    world.patch(D, "web", {"spec": {"replicas": 5}})
    world.run(10)
    assert len(world.list(RS)) == 1
    assert len(world.active_pods()) == 5
    assert world.get(D, "web")["metadata"]["annotations"][REVISION] == "1"


def test_a_size_change_in_mid_rollout_spreads_over_both_versions(world):
    world.deployment(replicas=10, strategy={"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}})
    world.run(10)
    set_image(world, "web:2")
    world.settle()
    world.patch(D, "web", {"spec": {"replicas": 20}})
    world.settle()
    old, new = replica_sets(world)
    assert old["spec"]["replicas"] > 8
    assert new["spec"]["replicas"] > 3
    assert old["spec"]["replicas"] + new["spec"]["replicas"] == 23
    world.run(60)
    assert images(world) == ["web:2"] * 20


def test_recreate_ends_every_old_pod_before_the_first_new_one(world):
    world.deployment(replicas=3, strategy={"type": "Recreate"})
    world.run(10)
    set_image(world, "web:2")
    world.settle()
    assert images(world) == []
    assert len(world.pods()) == 3
    world.run(20)
    assert images(world) == ["web:2"] * 3


def test_a_paused_deployment_scales_but_does_not_roll(world):
    world.deployment(replicas=2)
    world.run(10)
    world.patch(D, "web", {"spec": {"paused": True}})
    world.settle()
    assert condition(world.get(D, "web"), "Progressing")["reason"] == "DeploymentPaused"
    set_image(world, "web:2")
    world.patch(D, "web", {"spec": {"replicas": 3}})
    world.run(10)
    assert images(world) == ["web:1"] * 3
    world.patch(D, "web", {"spec": {"paused": False}})
    world.run(30)
    assert images(world) == ["web:2"] * 3


def test_going_back_to_an_old_template_reuses_its_replica_set(world):
    world.deployment(replicas=2)
    world.run(10)
    first = world.list(RS)[0]["metadata"]["name"]
    set_image(world, "web:2")
    world.run(30)
    set_image(world, "web:1")
    world.run(30)
    assert images(world) == ["web:1"] * 2
    assert len(world.list(RS)) == 2
    annotations = world.get(RS, first)["metadata"]["annotations"]
    assert annotations[REVISION] == "3"
    assert annotations["deployment.kubernetes.io/revision-history"] == "1"
    assert world.get(D, "web")["metadata"]["annotations"][REVISION] == "3"


def test_old_versions_beyond_the_limit_are_deleted(world):
    world.deployment(replicas=1, revisionHistoryLimit=2)
    for version in range(2, 7):
        world.run(20)
        set_image(world, f"web:{version}")
    world.run(30)
    assert [each["metadata"]["annotations"][REVISION] for each in replica_sets(world)] == [
        "4",
        "5",
        "6",
    ]


def test_a_rollout_that_stands_still_is_called_stuck(make_world):
    world = make_world(0)
    world.deployment(replicas=1, progressDeadlineSeconds=60)
    world.run(55)
    assert condition(world.get(D, "web"), "Progressing")["status"] == "True"
    world.run(10)
    progressing = condition(world.get(D, "web"), "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert "has timed out progressing" in progressing["message"]


def test_a_finished_rollout_is_not_called_stuck_when_pods_fail_later(world):
    world.deployment(replicas=1, progressDeadlineSeconds=60)
    world.run(10)
    world.is_scheduling = False
    world.delete("pods", world.pods()[0]["metadata"]["name"])
    world.run(200)
    deployment = world.get(D, "web")
    assert condition(deployment, "Available")["status"] == "False"
    assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_a_deployment_takes_over_a_replica_set_of_its_own_kind(world):
    world.workload(RS, "loose", replicas=2)
    world.patch(RS, "loose", {"metadata": {"labels": {"app": "web"}}})
    world.run(10)
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    world.deployment(replicas=2)
    world.run(30)
    assert world.get(RS, "loose")["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    assert {pod["metadata"]["uid"] for pod in world.pods()} == before


def test_annotations_reach_the_replica_set_but_not_kubectls_own(world):
    world.create(
        D,
        {
            "metadata": {
                "name": "web",
                "annotations": {
                    "team": "blue",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": world.template(),
            },
        },
    )
    world.run(10)
    annotations = world.list(RS)[0]["metadata"]["annotations"]
    assert annotations["team"] == "blue"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations
    world.patch(D, "web", {"metadata": {"annotations": {"team": "red"}}})
    world.settle()
    assert world.list(RS)[0]["metadata"]["annotations"]["team"] == "red"


def test_pods_that_cannot_be_made_show_as_a_failure_of_the_deployment(world):
    world.deployment(replicas=1, pod={"priorityClassName": "missing"})
    world.run(5)
    assert condition(world.get(D, "web"), "ReplicaFailure")["reason"] == "FailedCreate"


def test_a_name_taken_by_another_replica_set_is_stepped_around(world):
    world.deployment(replicas=1)
    world.settle()
    name = world.list(RS)[0]["metadata"]["name"]
    world.delete(D, "web", propagation="Orphan")
    world.settle()
    # The stranger keeps the name that the next Deployment's hash would give.
    world.patch(RS, name, {"metadata": {"labels": {"app": "stranger"}}})
    world.patch(
        RS,
        name,
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "stranger"}]}}}},
    )
    world.deployment(replicas=1)
    world.run(10)
    deployment = world.get(D, "web")
    assert deployment["status"]["collisionCount"] == 1
    assert deployment["status"]["availableReplicas"] == 1


@pytest.mark.parametrize("surge", [0, 1, "50%"])
@pytest.mark.parametrize("unavailable", [0, 1, "50%"])
def test_every_strategy_gets_there(world, surge, unavailable):
    if surge == 0 and unavailable == 0:
        unavailable = 2
    world.deployment(
        replicas=5, strategy={"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    )
    world.run(10)
    set_image(world, "web:2")
    world.run(60)
    assert images(world) == ["web:2"] * 5


def test_an_idle_deployment_causes_no_writes(world):
    world.deployment(replicas=3)
    world.run(30)
    before = world.get(D, "web")["metadata"]["resourceVersion"]
    sets = [each["metadata"]["resourceVersion"] for each in world.list(RS)]
    world.run(600)
    assert world.get(D, "web")["metadata"]["resourceVersion"] == before
    assert [each["metadata"]["resourceVersion"] for each in world.list(RS)] == sets
