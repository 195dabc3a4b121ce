"""Which events bring a waiting pod back, and under which names, in kube-scheduler 1.37 and 1.36.

The numbers are those of the scenarios that were run on both releases.
"""

from __future__ import annotations

import pytest

from kubesched.config.features import defaults
from kubesched.testing import Cluster, make_node, make_pod
from kubesched.testing.builders import PodBuilder

VERSIONS = pytest.mark.parametrize("version", ["1.37", "1.36"])


def node():
    return make_node("a1").capacity(cpu="1", memory="8Gi", pods="110")


def asking(name: str, cpu: str = "100m") -> PodBuilder:
    return make_pod(name).uid(name).cpu(cpu).memory("64Mi")


def series(world: Cluster, name: str) -> dict[str, float]:
    """The labels of a metric's series -> the value."""
    found = {}
    for line in world.metrics.text().splitlines():
        labels, _, value = line.rpartition(" ")
        if labels.startswith(f"scheduler_{name}{{"):
            found[labels.partition("{")[2].rstrip("}")] = float(value)
    return found


def incoming(world: Cluster) -> dict[str, float]:
    return series(world, "queue_incoming_pods_total")


def attempts(world: Cluster, name: str) -> int:
    info = world.assembly.scheduler.queue.get_pod("default", name)
    assert info is not None, f"{name} does not wait"
    return info.attempts


@VERSIONS
def test_t8_a_toleration_brings_the_pod_itself_back(version: str) -> None:
    with Cluster([node().taint("t").build()], gates=defaults(version)) as world:
        world.add(asking("p").build())
        world.settle()
        world.advance(5)
        world.update(asking("p").tolerates("t").build())
        world.settle()
        assert world.node_of("p") == "a1"
        own = {"1.37": "TargetPod", "1.36": "UnschedulablePod"}[version]
        label = f'event="{own}UpdatePodToleration"'
        assert incoming(world)[f'queue="active",{label}'] == 1
        entities = series(world, "queue_incoming_entities_total")
        if version == "1.37":
            assert entities[f'queue="active",{label},type="pod"'] == 1
        else:
            assert entities == {}


@VERSIONS
def test_t9_labels_of_additions_and_failures(version: str) -> None:
    with Cluster([node().build()], gates=defaults(version)) as world:
        world.add(asking("fits").build(), asking("big", "4").build())
        world.settle()
        added = {"1.37": "UnscheduledPodAdd", "1.36": "UnschedulablePodAdd"}[version]
        assert incoming(world) == {
            f'queue="active",event="{added}"': 2,
            'queue="unschedulable",event="ScheduleAttemptFailure"': 1,
        }
        entities = series(world, "queue_incoming_entities_total")
        if version == "1.37":
            assert entities == {f'queue="active",event="{added}",type="pod"': 2}


@VERSIONS
def test_t10_the_label_of_a_relabelled_pod_that_waits(version: str) -> None:
    with Cluster([node().build()], gates=defaults(version)) as world:
        world.add(asking("big", "4").build())
        world.settle()
        world.update(asking("big", "4").label("a", "b").build())
        world.settle()
        other = {"1.37": "UnscheduledPod", "1.36": "UnschedulablePod"}[version]
        handled = series(world, "event_handling_duration_seconds_count")
        assert handled[f'event="{other}UpdatePodLabel"'] == 1
        assert handled[f'event="{other}Update"'] == 2, "and the condition that was written"


TAINTED = node().taint("soft", effect="PreferNoSchedule")
LABELLED = node().label("a", "b")
LARGER = make_node("a1").capacity(cpu="2", memory="8Gi", pods="110")


@pytest.mark.parametrize(("version", "retries"), [("1.37", 0), ("1.36", 1)], ids=["1.37", "1.36"])
def test_t11_a_changed_taint_concerns_those_whom_taints_keep_away(
    version: str, retries: int
) -> None:
    with Cluster([node().build()], gates=defaults(version)) as world:
        world.add(asking("big", "4").build())
        world.settle()
        world.advance(2.5)
        world.update(TAINTED.build())
        world.advance(2.5)
        assert attempts(world, "big") == 1 + retries


@pytest.mark.parametrize(("version", "retries"), [("1.37", 0), ("1.36", 1)], ids=["1.37", "1.36"])
def test_t12_and_so_does_an_uncordoned_node(version: str, retries: int) -> None:
    with Cluster([node().build()], gates=defaults(version)) as world:
        world.add(asking("p").node_selector(x="y").build())
        world.settle()
        world.advance(2.5)
        world.update(node().unschedulable().build())
        world.update(node().build())
        world.advance(2.5)
        assert attempts(world, "p") == 1 + retries


@VERSIONS
def test_t13_a_taint_that_goes_brings_back_whom_it_kept_away(version: str) -> None:
    with Cluster([node().taint("t").build()], gates=defaults(version)) as world:
        world.add(asking("p").build())
        world.settle()
        world.advance(2.5)
        world.update(node().build())
        world.advance(2.5)
        assert world.node_of("p") == "a1"


@VERSIONS
@pytest.mark.parametrize("changed", [LABELLED, LARGER], ids=["labels", "too little room"])
def test_t14_other_changes_of_the_node_do_not_help(version: str, changed: object) -> None:
    with Cluster([node().build()], gates=defaults(version)) as world:
        world.add(asking("big", "4").build())
        world.settle()
        world.advance(2.5)
        world.update(changed.build())
        world.advance(2.5)
        assert attempts(world, "big") == 1


@pytest.mark.parametrize(("version", "is_bound"), [("1.37", False), ("1.36", True)])
def test_t45_a_gated_pod_holds_the_node_it_is_nominated_to(version: str, is_bound: bool) -> None:
    gated = asking("gated", "800m").priority(100).gate("g").nominated("a1")
    with Cluster([node().build(), gated.build()], gates=defaults(version)) as world:
        world.add(asking("p", "800m").build())
        world.settle()
        assert bool(world.node_of("p")) is is_bound
        if not is_bound:
            assert "1 Insufficient cpu" in str(world.condition("p"))


@VERSIONS
def test_t46_also_if_it_is_nominated_later(version: str) -> None:
    gated = asking("gated", "800m").priority(100).gate("g")
    with Cluster([node().build(), gated.build()], gates=defaults(version)) as world:
        world.settle()
        world.update(asking("gated", "800m").priority(100).gate("g").nominated("a1").build())
        world.add(asking("p", "800m").build())
        world.settle()
        assert not world.node_of("p")


@pytest.mark.parametrize(("version", "count"), [("1.37", 6), ("1.36", 4)])
def test_t49_the_page_of_a_fresh_scheduler(version: str, count: int) -> None:
    with Cluster([node().build()], gates=defaults(version)) as world:
        pending = series(world, "pending_pods")
        assert len(pending) == count
        assert set(pending.values()) == {0}
        assert series(world, "queued_entities") == {}


@pytest.mark.parametrize(("version", "is_timed"), [("1.37", False), ("1.36", True)])
def test_t51_the_page_after_a_preemption(version: str, is_timed: bool) -> None:
    low = asking("low", "800m").on("a1")
    with Cluster([node().build(), low.build()], gates=defaults(version)) as world:
        world.add(asking("high", "800m").priority(100).build())
        world.settle()
        assert world.client.deleted == ["default/low"]
        counted = series(world, "preemption_goroutines_execution_total")
        assert counted == {'result="success"': 1}
        timed = series(world, "preemption_goroutines_duration_seconds_count")
        assert timed == ({'result="success"': 1} if is_timed else {})


@pytest.mark.parametrize(("version", "is_seen"), [("1.37", 0), ("1.36", 1)])
def test_t56_an_annotation_of_a_running_pod_concerns_nobody(version: str, is_seen: int) -> None:
    running = asking("running").on("a1")
    with Cluster([node().build(), running.build()], gates=defaults(version)) as world:
        queue = world.assembly.scheduler.queue
        world.add(asking("big", "4").build())
        world.settle()
        queue.add(asking("tried").build())
        assert queue.pop() is not None  # its attempt goes on meanwhile
        world.update(asking("running").on("a1").annotation("a", "b").build())
        assert queue._in_flight.event_count == is_seen
