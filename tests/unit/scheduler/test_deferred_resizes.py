"""Bound pods whose resize the kubelet defers are tried again, and preempt on their node.

Y1 to Y3 were run on kube-scheduler 1.37 with the gate.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.config.features import from_map
from kubesched.testing import Cluster, make_node, make_pod
from kubesched.testing.builders import NodeBuilder, PodBuilder

GATE = "InPlacePodVerticalScalingSchedulerPreemption"
GATES = from_map({GATE: True})
GROUP_GATES = from_map({GATE: True, "GenericWorkload": True})
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


def node(cpu: str = "2", name: str = "n1") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="110")


def bound(name: str, cpu: str, priority: int = 0, node_name: str = "n1") -> PodBuilder:
    return make_pod(name).uid(name).cpu(cpu).memory("64Mi").priority(priority).on(node_name)


def resized(
    cpu: str = "1500m", priority: int = 1000, *, deferred: bool = True, **spec: Any
) -> PodBuilder:
    """A pod that has 1 cpu and wants this much."""
    allocated = {"cpu": "1", "memory": "64Mi"}
    actual = {"name": "c", "allocatedResources": allocated, "resources": {"requests": allocated}}
    pod = bound("rz", cpu, priority).spec(**spec)
    pod.json["spec"]["containers"][0]["name"] = "c"
    conditions = [DEFERRED] if deferred else []
    return pod.status(containerStatuses=[actual], conditions=conditions)


def world(*objects: NodeBuilder | PodBuilder, gates: Any = GATES, **settings: Any) -> Cluster:
    return Cluster([each.build() for each in objects], gates=gates, **settings)


def becomes_deferred(world: Cluster, **wanted: Any) -> None:
    world.update(resized(**wanted).build())
    world.settle()


def attempts(world: Cluster) -> int:
    info = world.assembly.scheduler.queue.get_pod("default", "rz")
    assert info is not None, "the pod does not wait"
    return info.attempts


def test_y1_the_victim_is_evicted_and_the_pod_hears_nothing() -> None:
    with world(node(), bound("low", "1"), resized(deferred=False)) as cluster:
        cluster.settle()
        assert cluster.place_in_queue("rz") is None
        becomes_deferred(cluster)
        assert cluster.client.deleted == ["default/low"]
        assert cluster.nominations() == {}
        assert cluster.condition("rz") is None
        assert [(event.reason, event.pod) for event in cluster.events] == [
            ("Preempted", "default/low")
        ]
        assert "Preempted by pod rz on node n1" in str(cluster.events)
        becomes_deferred(cluster, deferred=False)
        assert cluster.place_in_queue("rz") is None


@pytest.mark.parametrize("disabled", [["x"], []])
def test_y2_a_node_may_disable_preemption(disabled: list[str]) -> None:
    policy = {"disableResizePreemption": disabled}
    with world(
        node().spec(podPreemptionPolicy=policy), bound("low", "1"), resized(deferred=False)
    ) as cluster:
        becomes_deferred(cluster)
        if disabled:
            assert cluster.client.deleted == []
            (decision,) = cluster.decisions()
            assert "node had resize preemption disabled" in decision.message
            cluster.advance(20)
            cluster.update(node().label("a", "b").spec(podPreemptionPolicy=policy).build())
            cluster.settle()
            assert attempts(cluster) == 1
            cluster.update(node().label("a", "b").build())
            cluster.settle()
        assert cluster.client.deleted == ["default/low"]


def test_y3_a_resize_that_fits_is_left_to_the_kubelet() -> None:
    with world(node("4"), bound("low", "1"), resized(deferred=False)) as cluster:
        becomes_deferred(cluster)
        assert cluster.place_in_queue("rz") == "backoff"
        assert cluster.decisions()[-1].message == (
            "pod rz(default/rz) is in the cache, so can't be assumed"
        )
        cluster.advance(2.5)
        cluster.settle()
        assert attempts(cluster) == 2
        assert (cluster.client.deleted, cluster.client.patches, cluster.events) == ([], [], [])
        cluster.delete(cluster.pod("rz"))
        assert cluster.place_in_queue("rz") is None


def test_pods_that_are_deferred_at_the_start_are_tried() -> None:
    with world(node(), bound("low", "1"), resized()) as cluster:
        cluster.settle()
        assert cluster.client.deleted == ["default/low"]


def test_without_the_gate_nothing_happens() -> None:
    with world(node(), bound("low", "1"), resized(), gates=from_map({})) as cluster:
        becomes_deferred(cluster, cpu="1600m")
        assert cluster.client.deleted == []
        assert cluster.decisions() == []


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param({"nodeSelector": {"no": "node"}}, id="NodeAffinity"),
        pytest.param({"volumes": [{"persistentVolumeClaim": {"claimName": "gone"}}]}, id="volumes"),
        pytest.param(
            {"resourceClaims": [{"name": "a", "resourceClaimName": "gone"}]}, id="claims of devices"
        ),
        pytest.param({"preemptionPolicy": "Never"}, id="no right to preempt"),
    ],
)
def test_only_resources_matter_on_its_node(unfit: dict[str, Any]) -> None:
    cordoned = node().unschedulable().taint("t")
    with world(cordoned, bound("low", "1"), resized(deferred=False, **unfit)) as cluster:
        if "resourceClaims" in unfit:
            # PreEnqueue is asked as for any pod.
            becomes_deferred(cluster, **unfit)
            assert cluster.place_in_queue("rz") == "gated"
            return
        becomes_deferred(cluster, **unfit)
        evicted = [] if "preemptionPolicy" in unfit else ["default/low"]
        assert cluster.client.deleted == evicted


def test_only_lower_pods_of_its_node_are_victims() -> None:
    with world(
        node(),
        node(name="n2"),
        bound("peer", "1", 1000),
        bound("other", "1", 0, "n2"),
        resized(deferred=False),
    ) as cluster:
        becomes_deferred(cluster)
        assert cluster.client.deleted == []
        assert attempts(cluster) == 1
        waiting = cluster.assembly.scheduler.queue.get_pod("default", "rz")
        assert waiting is not None
        assert waiting.unschedulable_plugins == {"NodeName", "NodeResourcesFit"}


def test_a_resize_beyond_the_node_evicts_nobody() -> None:
    with world(node(), bound("low", "1"), resized(deferred=False)) as cluster:
        becomes_deferred(cluster, cpu="3")
        assert cluster.client.deleted == []
        assert "Preemption is not helpful" in cluster.decisions()[-1].message


@pytest.mark.parametrize(
    ("changed", "is_retried"),
    [
        (bound("peer", "900m", 1000), True),
        (bound("peer", "1100m", 1000), True),
        (bound("peer", "1", 1000).label("a", "b"), False),
        (bound("other", "900m", 0, "n2"), False),
        (bound("other", "1100m", 0, "n2"), False),
        (node("3"), True),
        (node("3", "n2"), False),
        (resized("1400m"), True),
        (resized("1600m"), True),
        (resized().label("a", "b"), False),
    ],
)
def test_events_that_bring_it_back(changed: NodeBuilder | PodBuilder, is_retried: bool) -> None:
    with world(
        node(),
        node(name="n2"),
        bound("peer", "1", 1000),
        bound("other", "1", 0, "n2"),
        resized(deferred=False),
    ) as cluster:
        becomes_deferred(cluster)
        cluster.advance(5)
        cluster.update(changed.build())
        cluster.settle()
        assert attempts(cluster) == 1 + is_retried


@pytest.mark.parametrize(("victim", "is_retried"), [("peer", True), ("other", False)])
def test_deletions_that_bring_it_back(victim: str, is_retried: bool) -> None:
    with world(
        node(),
        node(name="n2"),
        bound("peer", "1", 1000),
        bound("other", "1", 0, "n2"),
        resized(deferred=False),
    ) as cluster:
        becomes_deferred(cluster)
        cluster.advance(5)
        cluster.delete(cluster.pod(victim))
        cluster.settle()
        assert attempts(cluster) == 1 + is_retried


def test_another_pod_that_waits_is_not_woken_by_growth() -> None:
    with world(node(), bound("peer", "1"), make_pod("p").uid("p").cpu("4")) as cluster:
        cluster.settle()
        cluster.advance(5)
        cluster.update(bound("peer", "1100m").build())
        cluster.settle()
        info = cluster.assembly.scheduler.queue.get_pod("default", "p")
        assert info is not None
        assert info.attempts == 1


def test_a_member_of_a_group_is_tried_alone() -> None:
    def member(**wanted: Any) -> Pod:
        manifest = codec.to_json(resized(**wanted).build())
        manifest["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        return codec.convert(manifest, Pod)

    with world(node(), bound("low", "1"), gates=GROUP_GATES) as cluster:
        cluster.add(member(deferred=False))
        cluster.settle()
        cluster.update(member())
        cluster.settle()
        # Its group does not exist, for which GangScheduling keeps it out.
        assert cluster.place_in_queue("rz") == "gated"
        cluster.update(member(deferred=False))
        assert cluster.place_in_queue("rz") is None
        cluster.assembly.scheduler.check_invariants()


def test_a_pod_that_is_not_bound_shares_nothing_with_one_that_is() -> None:
    """The condition on a pod without a node: tried everywhere, and reserved nowhere."""
    odd = make_pod("odd").uid("odd").cpu("1").status(conditions=[DEFERRED])
    plain = make_pod("plain").uid("plain").cpu("1")
    with world(node().taint("t")) as cluster:
        cluster.add(plain.build(), odd.build())
        cluster.settle()
        said = {decision.name: decision.message for decision in cluster.decisions()}
        assert "untolerated taint" in said["plain"]
        assert said["odd"] == 'running Reserve plugin "VolumeBinding": not found'
        assert cluster.condition("odd") is None
