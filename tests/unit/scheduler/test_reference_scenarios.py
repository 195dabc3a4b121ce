"""What changed between releases of kube-scheduler, seen from outside: the same cluster under each of them."""

from __future__ import annotations

import pytest

from kubesched.config.features import defaults
from kubesched.framework.pod_status import REASON_UNSCHEDULABLE
from kubesched.testing import Cluster, NodeBuilder, PodBuilder, make_node, make_pod

VERSIONS = ("1.37", "1.36")
NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
NO_CLAIMS = {"1.37": "", "1.36": "no new claims to deallocate, "}


def node(name: str = "a1", cpu: str = "1") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="110")


def pod(name: str, cpu: str = "100m") -> PodBuilder:
    return make_pod(name).cpu(cpu).memory("64Mi")


def cluster(version: str, *objects) -> Cluster:
    return Cluster(objects, gates=defaults(version))


def message(world: Cluster, name: str) -> str:
    reason, text = world.condition(name)
    assert reason == REASON_UNSCHEDULABLE
    return text


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (node(), pod("p", "4"), "1 Insufficient cpu"),
        (
            node(),
            pod("p").node_selector(x="y"),
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        (node().taint("t"), pod("p"), "1 node(s) had untolerated taint(s)"),
    ],
    ids=["T1", "T2", "T7"],
)
def test_an_unschedulable_pod_says_why(version, given, wanted, reason) -> None:
    with cluster(version, given.build()) as world:
        world.add(wanted.build())
        world.settle()
        assert message(world, "p") == (
            f"0/1 nodes are available: {reason}. {NO_CLAIMS[version]}{NOT_HELPFUL}"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preemptor_says_where_it_is_going(version) -> None:
    """T3, T4: also while it waits for its victims."""
    with cluster(version, node().build()) as world:
        world.evicted = lambda victim: None  # the victims take their time
        for name in ("l1", "l2"):
            world.add(pod(name, "450m").build())
        world.settle()
        world.add(pod("high", "900m").priority(1000).build())
        world.settle()
        said = "preemption: found a potential placement for pod on node a1, preempting 2 victims"
        text = "0/1 nodes are available: 1 Insufficient cpu."
        assert message(world, "high") == (f"{text} {said}" if version == "1.37" else text)
        assert world.pod("high").status.nominated_node_name == "a1"
        assert [event.note for event in world.events if event.reason == "FailedScheduling"] == [
            message(world, "high")
        ]
        for name in ("l1", "l2"):
            world.delete(world.pod(name))
        world.advance(10)
        assert world.node_of("high") == "a1"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_that_may_not_preempt_says_so(version) -> None:
    """T5."""
    with cluster(version, node().build(), pod("low", "800m").on("a1").build()) as world:
        never = pod("high", "800m").priority(1000).spec(preemptionPolicy="Never")
        world.add(never.build())
        world.settle()
        assert message(world, "high") == (
            f"0/1 nodes are available: 1 Insufficient cpu. {NO_CLAIMS[version]}"
            "preemption: not eligible due to preemptionPolicy=Never."
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rejection_before_the_claims_were_looked_at_ends_in_not_found(version) -> None:
    """T6: the same in both releases."""
    with cluster(version, node().build()) as world:
        world.add(pod("p").claim("nope").build())
        world.settle()
        assert message(world, "p") == (
            '0/1 nodes are available: persistentvolumeclaim "nope" not found. not found'
        )
