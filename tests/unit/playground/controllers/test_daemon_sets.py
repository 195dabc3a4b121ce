"""DaemonSets have one pod on every node that qualifies."""

from __future__ import annotations

import pytest

DS = "daemonsets.apps"


def hosts(world):
    return sorted(pod["spec"].get("nodeName", "") for pod in world.active_pods())


def set_image(world, image):
    world.patch(
        DS,
        "web",
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}},
    )


def test_every_node_gets_one_pod_pinned_to_it(world):
    world.workload(DS)
    world.run(10)
    assert hosts(world) == ["node-0", "node-1", "node-2"]
    status = world.get(DS, "web")["status"]
    assert status["desiredNumberScheduled"] == status["currentNumberScheduled"] == 3
    assert status["numberReady"] == status["numberAvailable"] == 3
    assert status["updatedNumberScheduled"] == 3
    assert status["numberMisscheduled"] == 0
    affinity = world.pods()[0]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [each["key"] for each in terms[0]["matchFields"]] == ["metadata.name"]


def test_daemons_bear_what_other_pods_do_not(world):
    world.workload(DS, pod={"hostNetwork": True})
    world.settle()
    tolerated = {
        (each["key"], each["effect"])
        for each in world.pods()[0]["spec"]["tolerations"]
        if "tolerationSeconds" not in each
    }
    short = {key.removeprefix("node.kubernetes.io/") + "/" + effect for key, effect in tolerated}
    assert short == {
        "not-ready/NoExecute",
        "unreachable/NoExecute",
        "disk-pressure/NoSchedule",
        "memory-pressure/NoSchedule",
        "pid-pressure/NoSchedule",
        "unschedulable/NoSchedule",
        "network-unavailable/NoSchedule",
    }


def test_a_node_that_joins_gets_its_pod_and_one_that_leaves_loses_it(world):
    world.workload(DS)
    world.run(10)
    world.create(
        "nodes",
        {
            "metadata": {"name": "late", "labels": {"kubernetes.io/hostname": "late"}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        },
    )
    world.run(10)
    assert hosts(world) == ["late", "node-0", "node-1", "node-2"]
    world.delete("nodes", "late")
    world.run(120)
    assert hosts(world) == ["node-0", "node-1", "node-2"]
    assert world.get(DS, "web")["status"]["desiredNumberScheduled"] == 3


def test_only_matching_nodes_qualify_and_pods_follow_the_labels(world):
    world.patch("nodes", "node-1", {"metadata": {"labels": {"disk": "ssd"}}})
    world.workload(DS, pod={"nodeSelector": {"disk": "ssd"}})
    world.run(10)
    assert hosts(world) == ["node-1"]
    world.patch("nodes", "node-1", {"metadata": {"labels": {"disk": None}}})
    world.patch("nodes", "node-2", {"metadata": {"labels": {"disk": "ssd"}}})
    world.run(20)
    assert hosts(world) == ["node-2"]


@pytest.mark.parametrize(
    ("effect", "stays"),
    [
        pytest.param("NoSchedule", True, id="no new pods, but the one there may stay"),
        pytest.param("NoExecute", False, id="the pod has to go"),
    ],
)
def test_a_new_taint(world, effect, stays):
    world.workload(DS)
    world.run(10)
    taint = {"key": "maintenance", "value": "now", "effect": effect}
    world.patch("nodes", "node-0", {"spec": {"taints": [taint]}})
    world.run(20)
    assert ("node-0" in hosts(world)) is stays
    status = world.get(DS, "web")["status"]
    assert status["desiredNumberScheduled"] == 2
    assert status["numberMisscheduled"] == (1 if stays else 0)


def test_cordoned_nodes_keep_their_daemons(world):
    world.workload(DS)
    world.run(10)
    world.patch("nodes", "node-0", {"spec": {"unschedulable": True}})
    world.delete(
        "pods",
        next(p["metadata"]["name"] for p in world.pods() if p["spec"]["nodeName"] == "node-0"),
    )
    world.run(20)
    assert hosts(world) == ["node-0", "node-1", "node-2"]


def test_a_rolling_update_replaces_no_more_than_allowed(world):
    world.workload(DS)
    world.run(10)
    set_image(world, "web:2")
    for _ in range(100):
        world.run(0.25)
        ready = [
            pod
            for pod in world.active_pods()
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in pod["status"].get("conditions", ())
            )
        ]
        assert len(ready) >= 2
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"web:2"}
    assert world.get(DS, "web")["status"]["updatedNumberScheduled"] == 3


def test_with_surge_the_new_pod_comes_before_the_old_one_goes(world):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    world.workload(DS, updateStrategy=strategy)
    world.run(10)
    set_image(world, "web:2")
    most = 0
    for _ in range(200):
        world.run(0.25)
        most = max(most, len(world.active_pods()))
        ready = {
            pod["spec"]["nodeName"]
            for pod in world.active_pods()
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in pod["status"].get("conditions", ())
            )
        }
        assert ready == {"node-0", "node-1", "node-2"}
    assert most == 4
    assert [pod["spec"]["containers"][0]["image"] for pod in world.pods()] == ["web:2"] * 3


def test_on_delete_waits_for_the_user(world):
    world.workload(DS, updateStrategy={"type": "OnDelete"})
    world.run(10)
    set_image(world, "web:2")
    world.run(20)
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"web:1"}


def test_a_failing_daemon_is_replaced_more_and_more_slowly(make_world):
    world = make_world(1)
    world.workload(DS)
    world.run(5)
    replacements = 0
    last = ""
    for _ in range(400):
        for pod in world.active_pods():
            if pod["metadata"]["uid"] != last:
                replacements += 1
                last = pod["metadata"]["uid"]
                name = pod["metadata"]["name"]
                world.patch("pods", name, {"status": {"phase": "Failed"}}, subresource="status")
        world.run(0.5)
    # 1, 2, 4, 8, … seconds apart: seven or eight in 200 seconds, not hundreds.
    assert 5 <= replacements <= 10
    assert "FailedDaemonPod" in world.reasons("web")


def test_pods_meant_for_a_node_that_is_gone_are_removed(world):
    world.is_scheduling = False
    world.workload(DS)
    world.settle()
    world.delete("nodes", "node-2")
    world.settle()
    assert len(world.pods()) == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_rollout_takes_no_longer_than_its_pods(make_world, seed):
    """One node after the other: the old pod ends, the new one starts, and nothing waits for a
    wake-up that never comes.
    """
    world = make_world(3, seed=seed)
    world.workload(DS)
    world.run(5)
    set_image(world, "image:2")
    end_s, start_s = 1.5, 1.0  # the longest the built-in stages take
    world.run(3 * (end_s + start_s))
    status = world.get(DS, "web")["status"]
    assert (status["updatedNumberScheduled"], status["numberAvailable"]) == (3, 3)
