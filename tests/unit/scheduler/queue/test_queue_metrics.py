"""Proves that the queue's gauges tell the truth on every path, gated pods included."""

from __future__ import annotations

import pytest

from kubesched.config.references import REFERENCES
from kubesched.framework.events import (
    EVENT_NODE_ADD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Resource,
)

REGISTERED = {
    "Fit": [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ALL))],
    "GateA": [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ALL))],
    "GateB": [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ALL))],
}


@pytest.fixture(params=[True, False], ids=["popping from backoff", "not popping from backoff"])
def world(make_world, request):
    return make_world(registered=REGISTERED, pop_from_backoff_q=request.param)


def test_all_sizes_are_on_the_page_from_the_start(world):
    assert world.pending() == (0, 0, 0, 0)
    queues = ("active", "backoff", "gated", "incomplete", "pending", "unschedulable")
    assert [line for line in world.registry.text().splitlines() if "_pending_pods{" in line] == [
        f'scheduler_pending_pods{{queue="{queue}"}} 0' for queue in queues
    ]
    assert "queued_entities" not in world.registry.text()


def test_queued_entities_lists_a_queue_once_a_pod_has_entered_it(world):
    def listed():
        cells = world.metrics.queued_entities.cells()
        return {queue: int(cell.current()) for (queue, _), cell in cells.items()}

    world.add("a")
    assert listed() == {"active": 1}
    world.fail(world.pop("a"), "Fit")
    assert listed() == {"active": 0, "unschedulable": 1}
    world.move(EVENT_NODE_ADD)
    assert listed() == {"active": 0, "unschedulable": 0, "backoff": 1}
    world.close_gate("b")
    world.add("b")
    assert listed() == {"active": 0, "unschedulable": 0, "backoff": 1, "gated": 1}


def test_entities_count_where_nothing_had_decided_on_their_queue(world):
    """T9 of kube-scheduler 1.37: a pod that was added and failed once shows up with its addition
    only.
    """

    def entities():
        cells = world.metrics.queue_incoming_entities_total.cells()
        return {f"{queue}/{event}": int(cell.value) for (queue, event, _), cell in cells.items()}

    added = {"active/UnscheduledPodAdd": 1}
    pod = world.reject("a", "Fit")
    assert entities() == added
    world.move(EVENT_NODE_ADD)  # decided on backoff, and that is where it goes
    assert world.incoming()["backoff/NodeAdd"] == 1
    assert entities() == added
    world.advance(5)
    world.queue.flush_backoff_completed()
    assert entities() == added | {"active/BackoffComplete": 1}
    world.fail(world.pop("a"), "Fit")
    world.advance(15)
    world.move(EVENT_NODE_ADD)  # the backoff is over
    assert entities() == added | {"active/BackoffComplete": 1, "active/NodeAdd": 1}
    world.fail(world.pop("a"), "Fit")
    world.close_gate("a")
    world.queue.activate({"a": pod})
    assert world.where("a") == "gated"
    assert entities() == added | {"active/BackoffComplete": 1, "active/NodeAdd": 1}


def test_sizes_follow_a_pod_on_its_way(world):
    # In turn: active, backoff, unschedulable, gated.
    pod = world.add("a")
    assert world.pending() == (1, 0, 0, 0)
    info = world.pop("a")
    assert world.pending() == (0, 0, 0, 0)
    world.fail(info, "Fit")
    assert world.pending() == (0, 0, 1, 0)
    world.close_gate("a")
    world.queue.activate({"a": pod})
    assert world.pending() == (0, 0, 0, 1)
    world.open_gate("a")
    world.move(EVENT_NODE_ADD)
    assert world.pending() == (0, 1, 0, 0)
    world.advance(5)
    world.queue.flush_backoff_completed()
    assert world.pending() == (1, 0, 0, 0)
    world.queue.delete(pod)
    assert world.pending() == (0, 0, 0, 0)


def test_errors_and_rejections_at_rest_are_one_number(world):
    for name in ("broken", "rejected"):
        world.add(name)
    broken, rejected = world.pop("broken"), world.pop("rejected")
    world.move(EVENT_NODE_ADD)
    world.fail(broken)
    world.fail(rejected, "Fit")
    assert world.pending() == (0, 2, 0, 0)


def test_adding_a_key_again_never_counts_twice(world):
    for _ in range(3):
        world.add("a")
        assert world.pending() == (1, 0, 0, 0)
    world.close_gate("g")
    for _ in range(3):
        world.add("g")
        assert world.pending() == (1, 0, 0, 1)
    world.queue.delete(world.known_pods["shop", "a"])
    world.queue.delete(world.known_pods["shop", "g"])
    world.queue.delete(world.known_pods["shop", "g"])
    assert world.pending() == (0, 0, 0, 0)
    world.queue.check_invariants()


def test_adding_again_while_gated_leaves_a_pod_that_may_be_tried_where_it_is(world):
    world.add("a")
    world.close_gate("a")
    world.add("a")
    assert world.where("a") == "active"
    assert world.pending() == (1, 0, 0, 0)


def test_rejections_are_counted_per_plugin_until_the_pod_is_popped(world):
    world.reject("a", "Fit", "Other")
    world.reject("b", "Fit")
    assert world.rejections() == {"Fit": 2, "Other": 1}
    world.advance(5)
    world.move(EVENT_NODE_ADD)
    assert world.rejections() == {"Fit": 2, "Other": 1}, "moving between queues changes nothing"
    world.pop("a")
    assert world.rejections() == {"Fit": 1}


def test_a_pod_pending_on_a_plugin_counts_for_it_once(world):
    world.reject("a", pending=["Fit"])
    assert world.rejections() == {"Fit": 1}


def test_gating_counts_until_the_pod_is_popped(world):
    world.close_gate("a")
    pod = world.add("a")
    assert world.rejections() == {"GateA": 1}
    world.queue.activate({"a": pod})
    world.move(EVENT_NODE_ADD)
    assert world.rejections() == {"GateA": 1}, "being refused again is not another rejection"
    world.open_gate("a")
    world.queue.activate({"a": pod})
    world.pop("a")
    assert world.rejections() == {}


def test_gating_counts_until_the_pod_is_deleted(world):
    world.close_gate("a")
    world.queue.delete(world.add("a"))
    assert world.rejections() == {}


def test_two_gates_one_after_the_other_count_and_clear(world):
    world.close_gate("a", "GateA")
    pod = world.add("a")
    world.open_gate("a", "GateA")
    world.close_gate("a", "GateB")
    world.queue.activate({"a": pod})
    assert world.rejections() == {"GateA": 1, "GateB": 1}
    world.queue.delete(pod)
    assert world.rejections() == {}


def test_a_gate_that_already_rejected_the_pod_does_not_count_again(world):
    world.add("a")
    info = world.pop("a")
    world.move(EVENT_NODE_ADD)
    world.close_gate("a", "GateA")
    world.fail(info, "GateA", "Fit")
    world.queue.activate({"a": info.pod_info.pod})
    assert world.where("a") == "gated"
    assert world.rejections() == {"GateA": 1, "Fit": 1}


@pytest.mark.parametrize(
    ("version", "place", "left"),
    [
        pytest.param("1.37", "unschedulable", {}, id="deleting from the pool takes it back"),
        pytest.param("1.37", "active", {}, id="and so does deleting from activeQ"),
        pytest.param("1.37", "backoff", {}, id="and from backoffQ"),
        pytest.param("1.36", "unschedulable", {}, id="in 1.36 only deleting from the pool"),
        pytest.param("1.36", "active", {"Fit": 1}, id="and not from activeQ"),
        pytest.param("1.36", "backoff", {"Fit": 1}, id="nor from backoffQ"),
    ],
)
def test_deleting_a_rejected_pod(make_world, version, place, left):
    """T48."""
    world = make_world(registered=REGISTERED, reference=REFERENCES[version])
    pod = world.add("a")
    info = world.pop("a")
    if place == "backoff":
        world.move(EVENT_NODE_ADD)
    world.fail(info, "Fit")
    if place == "active":
        world.queue.activate({"a": pod})
    assert world.where("a") == place
    world.queue.delete(pod)
    assert world.rejections() == left
