from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from kubesched.framework.api import Pod, PriorityClass
from kubesched.testing import Cluster, make_node, make_pod
from kubesched_plugins.golden.clusters import config_of
from kubesched_plugins.preemption_toleration import PreemptionToleration, policy_of

PREFIX = "preemption-toleration.scheduling.x-k8s.io/"


def priority_class(name: str, value: int, **annotations: str) -> PriorityClass:
    given = {PREFIX + key.replace("_", "-"): text for key, text in annotations.items()}
    return msgspec.convert(
        {"metadata": {"name": name, "annotations": given}, "value": value}, PriorityClass
    )


def cluster_of(*objects: object) -> Cluster:
    node = make_node("n").capacity(cpu="2", memory="4Gi", pods=10).build()
    config = config_of({"PreemptionToleration": None}, "NodeResourcesFit")
    return Cluster([node, *objects], config, plugins=[PreemptionToleration])


def running(cluster: Cluster, name: str, class_name: str, priority: int) -> Pod:
    since = datetime.fromtimestamp(cluster.clock.now(), UTC).isoformat()
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
    pod = make_pod(name).request("cpu", "1").uid(name)
    pod.spec(priority=priority, priorityClassName=class_name, nodeName="n")
    built = pod.status(phase="Running", startTime=since, conditions=[scheduled]).build()
    cluster.add(built)
    return built


def wanting(name: str, cpu: str, priority: int) -> Pod:
    return make_pod(name).request("cpu", cpu).spec(priority=priority).build()


def test_a_pod_that_tolerates_preemption_stays_and_another_goes() -> None:
    classes = (
        priority_class("tough", 0, minimum_preemptable_priority="1000", toleration_seconds="-1"),
        priority_class("soft", 0),
    )
    with cluster_of(*classes) as cluster:
        running(cluster, "tough", "tough", 0)
        running(cluster, "soft", "soft", 0)
        cluster.add(wanting("p", "1", 500))
        cluster.settle()
        assert cluster.client.deleted == ["default/soft"]
        cluster.advance(2)  # the pod's backoff
        assert cluster.node_of("p") == "n"


def test_toleration_ends_with_its_time() -> None:
    tough = priority_class("t", 0, minimum_preemptable_priority="1000", toleration_seconds="60")
    with cluster_of(tough) as cluster:
        running(cluster, "a", "t", 0)
        running(cluster, "b", "t", 0)
        cluster.add(wanting("early", "2", 500))
        cluster.settle()
        assert not cluster.client.deleted
        assert "No victims found on node n for preemptor pod early" in cluster.condition("early")[1]
        cluster.advance(61)
        cluster.add(wanting("late", "2", 500))
        cluster.settle()
        assert sorted(cluster.client.deleted) == ["default/a", "default/b"]


def test_a_preemptor_of_enough_priority_is_not_stopped() -> None:
    tough = priority_class("t", 0, minimum_preemptable_priority="1000", toleration_seconds="-1")
    with cluster_of(tough) as cluster:
        running(cluster, "a", "t", 0)
        running(cluster, "b", "t", 0)
        cluster.add(wanting("p", "2", 1000))
        cluster.settle()
        assert sorted(cluster.client.deleted) == ["default/a", "default/b"]


def test_wrong_annotations_mean_no_toleration_and_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cluster_of(priority_class("t", 0, toleration_seconds="an hour")) as cluster:
        running(cluster, "a", "t", 0)
        running(cluster, "b", "t", 0)
        cluster.add(wanting("p", "2", 500))
        cluster.settle()
        assert sorted(cluster.client.deleted) == ["default/a", "default/b"]
    assert caplog.text.count("'an hour' is not an integer of 64 bits") == 1


def test_a_missing_priority_class_is_named_in_the_condition() -> None:
    with cluster_of() as cluster:
        running(cluster, "a", "gone", 0)
        cluster.add(wanting("p", "2", 500))
        cluster.settle()
        assert not cluster.client.deleted
        reason, message = cluster.condition("p")
        assert 'priorityclass.scheduling.k8s.io "gone" not found' in message, reason


@pytest.mark.parametrize("text", ["1.5", " 1", "1_000", "", "2147483648", "٣"])
def test_priorities_are_integers_of_32_bits(text: str) -> None:
    with pytest.raises(ValueError, match="integer of 32 bits"):
        policy_of(priority_class("t", 0, minimum_preemptable_priority=text))


def test_the_default_policy_is_no_toleration() -> None:
    assert policy_of(priority_class("t", 7)) == (8, 0)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage"),
        ({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}, "cannot both be zero"),
    ],
)
def test_wrong_arguments_are_named(args: dict[str, object], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        Cluster([], config_of({"PreemptionToleration": args}), plugins=[PreemptionToleration])
