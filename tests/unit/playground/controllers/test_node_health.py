"""Silent nodes are found out, tainted and emptied; healthy ones are left in peace."""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import Taint, Toleration
from kubesched.playground.controllers.taint_eviction import may_stay_s
from kubesched.playground.kubelet.options import KubeletOptions

STOPPED = "kubelet.kubesched.io/stopped"


def ready(world, name):
    conditions = world.get("nodes", name)["status"]["conditions"]
    return next((c["status"], c["reason"]) for c in conditions if c["type"] == "Ready")


def taints(world, name):
    return sorted(
        (each["key"].removeprefix("node.kubernetes.io/"), each["effect"])
        for each in world.get("nodes", name)["spec"].get("taints", ())
    )


def stop(world, name, value="true"):
    world.patch("nodes", name, {"metadata": {"annotations": {STOPPED: value}}})


def test_a_node_that_heartbeats_stays_ready(world):
    world.run(600)
    assert ready(world, "node-0") == ("True", "KubeletReady")
    assert taints(world, "node-0") == []


def test_a_silent_node_becomes_unreachable_and_recovers(world):
    stop(world, "node-0")
    world.run(45)
    assert ready(world, "node-0")[0] == "True"
    world.run(30)
    assert ready(world, "node-0") == ("Unknown", "NodeStatusUnknown")
    assert taints(world, "node-0") == [("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]
    assert ready(world, "node-1")[0] == "True"
    stop(world, "node-0", None)
    world.run(1)
    assert ready(world, "node-0") == ("True", "KubeletReady")
    assert taints(world, "node-0") == []


def test_a_host_that_stands_still_makes_no_node_silent(world):
    world.run(20)
    world.clock.advance(600)
    world.cast["nodelifecycle"].process()  # before any kubelet gets its turn
    world.settle()
    world.run(30)
    assert {ready(world, f"node-{index}")[0] for index in range(3)} == {"True"}
    assert "NodeNotReady" not in world.reasons("node-0")


def test_kubelets_that_fall_behind_are_not_silent_but_stopped_ones_are(world):
    """The host is too slow for every heartbeat; the judge gets all the turns it wants."""
    world.run(20)
    stop(world, "node-0")
    keeper, judge = world.cast["kubelet-nodes"], world.cast["nodelifecycle"]
    for _ in range(60):
        world.clock.advance(5)
        judge.process()
        if keeper.queue.lag_s() > 40:
            keeper.process(limit=1)
        judge.process()
        assert {ready(world, f"node-{index}")[0] for index in (1, 2)} == {"True"}
    assert ready(world, "node-0") == ("Unknown", "NodeStatusUnknown")


def test_pods_of_a_silent_node_turn_unready_then_leave_after_their_toleration(world):
    world.deployment(replicas=3)
    world.run(10)
    stop(world, "node-0")
    world.run(80)
    [lost] = [pod for pod in world.pods() if pod["spec"]["nodeName"] == "node-0"]
    assert (
        next(c["status"] for c in lost["status"]["conditions"] if c["type"] == "Ready") == "False"
    )
    assert "deletionTimestamp" not in lost["metadata"]
    world.run(300)
    lost = world.get("pods", lost["metadata"]["name"])
    assert lost["metadata"]["deletionTimestamp"]
    target = next(c for c in lost["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert target["reason"] == "DeletionByTaintManager"
    assert "TaintManagerEviction" in world.reasons(lost["metadata"]["name"])
    assert {pod["spec"]["nodeName"] for pod in world.active_pods()} == {"node-1", "node-2"}
    assert world.get("deployments.apps", "web")["status"]["availableReplicas"] == 3


def test_a_node_that_comes_back_in_time_keeps_its_pods(world):
    world.deployment(replicas=3)
    world.run(10)
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    stop(world, "node-0")
    world.run(200)
    stop(world, "node-0", None)
    world.run(400)
    assert {pod["metadata"]["uid"] for pod in world.pods()} == before
    assert world.get("deployments.apps", "web")["status"]["readyReplicas"] == 3


def test_a_node_without_heartbeats_keeps_what_it_says_of_itself(make_world):
    world = make_world(kubelet=None)
    status = {"conditions": [{"type": "Ready", "status": "True", "reason": "ByHand"}]}
    world.create("nodes", {"metadata": {"name": "paper"}, "status": status}, "")
    world.run(3600)
    assert ready(world, "paper") == ("True", "ByHand")
    assert taints(world, "paper") == []


@pytest.mark.parametrize(
    ("condition", "status", "taint"),
    [
        pytest.param("MemoryPressure", "True", "memory-pressure", id="memory"),
        pytest.param("DiskPressure", "True", "disk-pressure", id="disk"),
        pytest.param("PIDPressure", "True", "pid-pressure", id="pids"),
        pytest.param("NetworkUnavailable", "True", "network-unavailable", id="network"),
    ],
)
def test_conditions_become_taints_and_back(world, condition, status, taint):
    conditions = world.get("nodes", "node-0")["status"]["conditions"]
    others = [each for each in conditions if each["type"] != condition]
    pressed = [*others, {"type": condition, "status": status}]
    world.patch("nodes", "node-0", {"status": {"conditions": pressed}}, subresource="status")
    world.settle()
    assert taints(world, "node-0") == [(taint, "NoSchedule")]
    world.patch("nodes", "node-0", {"status": {"conditions": others}}, subresource="status")
    world.settle()
    assert taints(world, "node-0") == []


def test_cordoning_taints_and_uncordoning_untaints(world):
    world.patch("nodes", "node-0", {"spec": {"unschedulable": True}})
    world.settle()
    assert taints(world, "node-0") == [("unschedulable", "NoSchedule")]
    world.patch("nodes", "node-0", {"spec": {"unschedulable": None}})
    world.settle()
    assert taints(world, "node-0") == []


def test_taints_of_others_are_not_touched(world):
    mine = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    world.patch("nodes", "node-0", {"spec": {"taints": [mine], "unschedulable": True}})
    world.settle()
    world.patch("nodes", "node-0", {"spec": {"unschedulable": None}})
    world.settle()
    assert world.get("nodes", "node-0")["spec"]["taints"] == [mine]


def test_pods_of_a_deleted_node_are_swept_up_after_a_quarantine(world):
    world.pod("solo")
    world.run(10)
    node = world.get("pods", "solo")["spec"]["nodeName"]
    world.delete("nodes", node)
    world.run(30)
    assert world.exists("pods", "solo")
    world.run(60)
    assert not world.exists("pods", "solo")


def test_a_node_that_is_registered_again_keeps_its_pods(world):
    world.pod("solo")
    world.run(10)
    node = world.get("nodes", world.get("pods", "solo")["spec"]["nodeName"])
    world.delete("nodes", node["metadata"]["name"])
    world.run(20)
    metadata = {key: node["metadata"][key] for key in ("name", "labels")}
    world.create("nodes", {"metadata": metadata, "status": node["status"]}, "")
    world.run(200)
    assert world.get("pods", "solo")["status"]["phase"] == "Running"


def test_finished_pods_beyond_the_limit_go_oldest_first(make_world):
    world = make_world(1, finished_pod_limit=2)
    for index in range(4):
        world.pod(f"done-{index}")
        world.run(2)
        world.patch(
            "pods", f"done-{index}", {"status": {"phase": "Succeeded"}}, subresource="status"
        )
    world.run(30)
    assert [pod["metadata"]["name"] for pod in world.pods()] == ["done-2", "done-3"]


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        pytest.param([], 0.0, id="untolerated means at once"),
        pytest.param([{"operator": "Exists"}], None, id="tolerated for ever"),
        pytest.param([{"operator": "Exists", "seconds": 30}], 30.0, id="for a while"),
        pytest.param(
            [{"operator": "Exists", "seconds": 30}, {"operator": "Exists", "seconds": 7}],
            7.0,
            id="the shortest counts",
        ),
        pytest.param([{"operator": "Exists", "seconds": -5}], 0.0, id="negative is none"),
    ],
)
def test_how_long_a_pod_may_stay(tolerations, expected):
    taints = [Taint(key="k", value="v", effect="NoExecute")]
    records = [
        Toleration(operator=each["operator"], toleration_seconds=each.get("seconds"))
        for each in tolerations
    ]
    assert may_stay_s(taints, records) == expected


def test_thousands_of_nodes_promise_longer_leases_and_are_believed():
    options = KubeletOptions(nodes=5000)
    assert options.heartbeat_interval_s(10) == 10.0
    assert options.heartbeat_interval_s(5000) == 50.0
