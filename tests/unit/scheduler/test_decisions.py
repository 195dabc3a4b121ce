"""The ring of the last attempts: what the scheduler notes of each, and which are kept."""

from __future__ import annotations

from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.decisions import Decision, DecisionRing, Outcome
from kubesched.testing import Cluster, make_node, make_pod


def note(ring: DecisionRing, name: str) -> None:
    info = QueuedPodInfo(PodInfo(make_pod(name).build()), 0.0)
    ring.add(info, "default-scheduler", 1.0, 0.5, Outcome.SCHEDULED, "n", 2, 3)


def test_attempts_are_noted_with_their_outcome():
    with Cluster() as world:
        world.add(make_node("n").capacity(cpu="2").build())
        world.add(make_pod("fits").cpu("1").build())
        world.settle()
        world.add(make_pod("large").cpu("9").build())
        world.settle()
        failed, placed = world.assembly.scheduler.decisions.newest()
        condition = world.condition("large")
    assert (placed.number, placed.name, placed.outcome) == (1, "fits", Outcome.SCHEDULED)
    assert (placed.node, placed.feasible_nodes, placed.evaluated_nodes) == ("n", 1, 1)
    assert (failed.number, failed.name, failed.outcome) == (2, "large", Outcome.UNSCHEDULABLE)
    assert condition == ("Unschedulable", failed.message)
    assert failed.reasons == ["1 Insufficient cpu"]
    assert set(failed.plugins) == {"NodeResourcesFit"}
    assert (failed.queue, failed.attempt) == ("unschedulable", 1)


def test_a_binding_that_fails_is_an_entry_of_its_own():
    def refuse(pod: object, node: str) -> None:
        raise RuntimeError("no")

    with Cluster() as world:
        world.client.before["bind_pod"] = refuse
        world.add(make_node("n").build())
        world.add(make_pod("a").build())
        world.settle()
        newest = world.assembly.scheduler.decisions.newest()
    assert [each.outcome for each in newest] == [Outcome.ERROR, Outcome.SCHEDULED]
    assert (newest[0].queue, newest[0].backoff_s > 0) == ("backoff", True)


def test_only_the_newest_are_kept():
    ring = DecisionRing(size=3)
    for name in "abcde":
        note(ring, name)
    assert [each.name for each in ring.newest()] == ["e", "d", "c"]
    assert ring.count == 5
    assert ring.get(2) is None
    assert ring.get(6) is None
    kept = ring.get(4)
    assert isinstance(kept, Decision)
    assert kept.name == "d"


def test_an_empty_ring_holds_nothing():
    ring = DecisionRing(size=3)
    assert ring.newest() == []
    assert ring.get(0) is None
