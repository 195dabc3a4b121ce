"""Proves every way a pod can take between the queues, and the label under which it is counted."""

from __future__ import annotations

import logging

import pytest
from msgspec import structs

from kubesched.config.references import REFERENCES
from kubesched.framework.events import (
    EVENT_NODE_ADD,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)

NODE_ALL = ClusterEvent(Resource.NODE, Action.ALL)
POD_ALL = ClusterEvent(Resource.POD, Action.ALL)
LABEL_UPDATE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
TOLERATION_UPDATE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
GATES_ELIMINATED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


def on(event, answer=Hint.QUEUE):
    return ClusterEventWithHint(event, lambda pod, old, new: answer)


REGISTERED = {
    "Fit": [on(NODE_ALL)],  # any node event helps
    "Own": [on(POD_ALL)],  # any pod event helps
    "Never": [on(NODE_ALL, Hint.SKIP), on(POD_ALL, Hint.SKIP)],
}


@pytest.fixture
def world(make_world):
    return make_world(registered=REGISTERED)


# Pods come.


def test_a_new_pod_is_ready_to_be_tried(world):
    world.add("a")
    assert world.where("a") == "active"
    assert world.incoming() == {"active/UnscheduledPodAdd": 1}
    assert world.wakes == 1


@pytest.mark.parametrize(
    ("version", "label"), [("1.37", "UnscheduledPodAdd"), ("1.36", "UnschedulablePodUpdate")]
)
def test_an_update_of_an_unknown_pod_adds_it(make_world, version, label):
    world = make_world(reference=REFERENCES[version])
    world.update(world.pod("a"), LABEL_UPDATE, version="2")
    assert world.where("a") == "active"
    assert world.incoming() == {f"active/{label}": 1}
    assert world.wakes == 1


@pytest.mark.parametrize("place", ["active", "error backoff", "backoff", "unschedulable"])
def test_a_pod_delivered_again_is_in_activeq_and_nowhere_else(world, place):
    pod = world.add("a")
    if place != "active":
        info = world.pop("a")
        if place == "backoff":
            world.queue.activate({"a": pod})
        world.fail(info, *([] if place == "error backoff" else ["Fit"]))
    assert world.where("a") == place
    world.queue.add(pod)
    assert world.where("a") == "active"
    assert world.pending() == (1, 0, 0, 0)


def test_pods_are_popped_by_priority_then_by_arrival(world):
    for name, priority in (
        ("low", 1),
        ("high", 10),
        ("none", None),
        ("negative", -5),
        ("also-high", 10),
    ):
        world.add(name, priority=priority)
        world.advance(0.001)
    assert world.drain() == ["high", "also-high", "low", "none", "negative"]


def test_pods_that_came_at_the_same_instant_are_popped_in_the_order_of_arrival(world):
    names = [f"p{number}" for number in range(50)]
    for name in names:
        world.add(name)
    assert world.drain() == names


def test_popping_counts_attempts_and_cycles_and_keeps_the_rejectors(world):
    world.reject("a", "Fit", pending=["Own"])
    world.queue.activate({"a": world.known_pods["shop", "a"]})
    info = world.pop("a")
    assert info.attempts == 2
    assert world.queue.scheduling_cycle == 2
    assert info.unschedulable_plugins == {"Fit", "Own"}
    assert info.pending_plugins == {"Own"}
    assert world.where("a") == "in flight"


def test_popping_an_empty_queue_gives_nothing(world):
    assert world.pop() is None
    assert world.queue.scheduling_cycle == 0


# Attempts fail.


@pytest.mark.parametrize(
    ("plugins", "pending", "event", "place", "label"),
    [
        pytest.param([], [], None, "error backoff", "backoff",
                     id="an error rests in the error heap"),
        pytest.param([], [], EVENT_NODE_ADD, "error backoff", "backoff",
                     id="whatever happened meanwhile"),
        pytest.param(["Fit"], [], None, "unschedulable", "unschedulable",
                     id="rejected and nothing happened: it waits"),
        pytest.param(["Own"], [], EVENT_NODE_ADD, "unschedulable", "unschedulable",
                     id="nothing that concerns its rejector"),
        pytest.param(["Never"], [], EVENT_NODE_ADD, "unschedulable", "unschedulable",
                     id="the hint says Skip"),
        pytest.param(["Fit"], [], EVENT_NODE_ADD, "backoff", "backoff",
                     id="the hint says Queue: it rests"),
        pytest.param([], ["Fit"], EVENT_NODE_ADD, "active", "active",
                     id="the plugin it is pending on says Queue: no rest"),
        pytest.param(["Fit"], ["Own"], EVENT_NODE_ADD, "backoff", "backoff",
                     id="only another rejector says Queue: it rests"),
        pytest.param(["Fit"], [], UNSCHEDULABLE_TIMEOUT, "backoff", "backoff",
                     id="a flush of others frees it too"),
    ],
)  # fmt: skip
def test_where_a_failed_pod_goes(world, plugins, pending, event, place, label):
    world.add("a")
    info = world.pop("a")
    if event is not None:
        world.move(event)
    wakes = world.wakes
    assert world.fail(info, *plugins, pending=pending)
    assert world.where("a") == place
    assert world.incoming()[f"{label}/ScheduleAttemptFailure"] == 1
    assert world.wakes - wakes == (label != "unschedulable")
    assert world.queue.in_flight_uids() == []


def test_without_rest_a_failed_pod_that_may_help_itself_is_active_at_once(make_world):
    world = make_world(registered=REGISTERED, max_backoff_s=0)
    world.add("a")
    world.fail(world.pop("a"))
    assert world.where("a") == "active"


def test_a_later_event_of_the_pending_plugin_wins_over_an_earlier_one(world):
    world.add("a")
    info = world.pop("a")
    world.move(EVENT_NODE_ADD)  # Fit: after backoff
    world.move(ClusterEvent(Resource.ASSIGNED_POD, Action.ADD))  # Own: immediately
    world.fail(info, "Fit", pending=["Own"])
    assert world.where("a") == "active"


def test_events_during_an_attempt_are_told_at_level_five(world, caplog):
    """One line as they arrive, and one for each that is asked about when the attempt has failed."""
    caplog.set_level(1, logger="kubesched")
    world.add("a")
    info = world.pop("a")
    world.move(EVENT_NODE_ADD)
    world.move(ClusterEvent(Resource.ASSIGNED_POD, Action.ADD))
    world.fail(info, "Fit", pending=["Own"])
    told = [(record.msg, record.values.get("event")) for record in caplog.records]
    labels = [EVENT_NODE_ADD.label, "AssignedPodAdd"]
    received = "Event received while entities are in flight"
    assert [label for msg, label in told if msg == received] == labels
    assert [label for msg, label in told if msg == "Checking event for in-flight pod"] == labels


def test_a_failed_pod_that_is_queued_already_changes_nothing(world):
    for place, prepare in {
        "active": lambda pod: world.queue.add(pod),
        "unschedulable": lambda pod: world.reject("twin", "Fit", uid="other"),
    }.items():
        pod = world.add("twin")
        info = world.pop("twin")
        prepare(pod)
        before = (world.incoming(), world.rejections(), info.timestamp, info.unschedulable_count)
        world.advance(1)
        assert world.fail(info, "Fit") == ""
        assert (
            world.incoming(),
            world.rejections(),
            info.timestamp,
            info.unschedulable_count,
        ) == before
        assert world.where("twin") == place
        assert world.queue.in_flight_uids() == []
        world.queue.delete(pod)


def test_a_failed_pod_that_was_never_popped_is_retried_after_backoff(world, caplog):
    caplog.set_level(logging.CRITICAL)
    world.add("a")
    info = world.pop("a")
    world.queue.done("uid-a")
    world.fail(info, "Fit")
    assert world.where("a") == "backoff"


def test_failing_sets_the_clock_of_the_entry_anew(world):
    world.add("a")
    info = world.pop("a")
    started = world.clock.monotonic()
    info.was_flushed_from_unschedulable, info.flush_timestamp, info.backoff_expiration = (
        True,
        started,
        started,
    )
    world.advance(3)
    world.fail(info, "Fit")
    assert info.timestamp == started + 3
    assert (info.was_flushed_from_unschedulable, info.flush_timestamp, info.backoff_expiration) == (
        False,
        None,
        None,
    )
    assert info.initial_attempt_timestamp == started


# Something happens.


@pytest.mark.parametrize(
    ("rested_s", "place"),
    [
        pytest.param(0.5, "backoff", id="a pod that has not rested goes to backoffQ"),
        pytest.param(3.0, "active", id="a rested one to activeQ"),
    ],
)
def test_an_event_frees_a_waiting_pod(world, rested_s, place):
    world.reject("a", "Fit")
    world.advance(rested_s)
    wakes = world.wakes
    world.move(EVENT_NODE_ADD)
    assert world.where("a") == place
    assert world.incoming()[f"{place}/NodeAdd"] == 1
    assert world.wakes == wakes + 1


def test_a_pending_pod_does_not_rest(world):
    world.reject("a", pending=["Fit"])
    world.move(EVENT_NODE_ADD)
    assert world.where("a") == "active"


def test_pods_rejected_by_others_stay(world):
    world.reject("own", "Own")
    world.reject("never", "Never")
    wakes = world.wakes
    world.move(EVENT_NODE_ADD)
    assert world.where("own") == world.where("never") == "unschedulable"
    assert world.wakes == wakes


def test_a_pod_rejected_by_several_plugins_is_freed_by_either(world):
    world.reject("a", "Fit", "Never")
    world.move(EVENT_NODE_ADD)
    assert world.where("a") == "backoff"
    world.reject("b", "Never", "Own")
    world.move(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE))
    assert world.where("b") == "backoff"


def test_moves_can_be_restricted(world):
    for name, priority in (("low", 1), ("high", 9)):
        world.reject(name, "Fit", priority=priority)
    world.move(EVENT_NODE_ADD, pre_check=lambda pod: pod.spec.priority <= 5)
    assert world.where("low") == "backoff"
    assert world.where("high") == "unschedulable"


def test_the_restriction_is_not_evaluated_for_an_unregistered_event(world):
    world.reject("a", "Fit")
    world.move(ClusterEvent(Resource.CSI_NODE, Action.ADD), pre_check=pytest.fail)


def test_freed_pods_keep_their_place_in_time(world):
    for name in ("first", "second"):
        world.reject(name, "Fit")
        world.advance(0.001)
    world.advance(5)
    world.add("newcomer")
    world.move(EVENT_NODE_ADD)
    assert world.drain() == ["first", "second", "newcomer"]


def test_a_pod_that_keeps_failing_does_not_starve_a_newer_one(world):
    world.reject("old", "Fit")
    world.advance(1)
    world.add("new")
    world.advance(3)
    world.queue.activate({"old": world.known_pods["shop", "old"]})
    world.advance(1)
    world.fail(world.pop("old"), pending=["Fit"])
    world.move(EVENT_NODE_ADD)  # back in activeQ, but now later than `new`
    assert world.drain() == ["new", "old"]


def test_an_important_pod_at_rest_does_not_block_the_others(world):
    world.add("important", priority=100)
    world.fail(world.pop("important"))
    world.add("ordinary")
    assert world.drain() == ["ordinary"]


# The pod itself changes.


def test_an_update_of_an_active_pod_re_ranks_it_and_asks_no_plugin(world):
    low = world.add("low", priority=1)
    world.add("middle", priority=5)
    world.gate_calls.clear()
    world.close_gate("low")
    newer = structs.replace(low, spec=structs.replace(low.spec, priority=9))
    world.queue.update(low, newer, [LABEL_UPDATE])
    assert world.gate_calls == []
    assert world.where("low") == "active"
    assert world.drain() == ["low", "middle"]


def test_an_update_that_changes_no_rank_keeps_the_turn(world):
    for name in ("a", "b", "c"):
        world.add(name)
    world.update(world.known_pods["shop", "a"], version="2")
    assert world.drain() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("plugins", "events", "rested_s", "place", "label"),
    [
        pytest.param(["Own"], [LABEL_UPDATE], 0, "backoff", "backoff/TargetPodUpdatePodLabel",
                     id="its hint says Queue: it rests first"),
        pytest.param(["Own"], [LABEL_UPDATE], 5, "active", "active/TargetPodUpdatePodLabel",
                     id="unless it has rested"),
        pytest.param(["Never"], [LABEL_UPDATE], 5, "unschedulable", None,
                     id="its hint says Skip: it stays"),
        pytest.param(["Fit"], [LABEL_UPDATE], 5, "unschedulable", None,
                     id="no rejecting plugin is interested: it stays"),
        pytest.param(["Own"], [GATES_ELIMINATED, LABEL_UPDATE], 5, "active",
                     "active/TargetPodUpdatePodSchedulingGatesEliminated",
                     id="the first event that frees it counts"),
    ],
)  # fmt: skip
def test_an_update_of_a_waiting_pod(world, plugins, events, rested_s, place, label):
    pod = world.reject("a", *plugins)
    world.advance(rested_s)
    before, wakes = world.incoming(), world.wakes
    world.update(pod, *events, version="2")
    assert world.where("a") == place
    assert {key: count for key, count in world.incoming().items() if before.get(key) != count} == (
        {label: 1} if label else {}
    )
    assert world.wakes - wakes == (place != "unschedulable")
    assert world.info("a").pod_info.pod.metadata.labels == {"version": "2"}


def test_an_update_without_events_still_brings_the_new_version(world):
    pod = world.reject("a", "Fit")
    newer = world.changed(pod, version="2")
    world.queue.update(pod, newer, [])
    assert world.where("a") == "unschedulable"
    assert world.info("a").pod_info.pod is newer


def test_later_events_of_an_update_are_tried_if_the_first_does_not_help(make_world):
    only_tolerations = ClusterEvent(Resource.POD, Action.UPDATE_POD_TOLERATION)
    world = make_world(registered={"P": [on(only_tolerations)]})
    pod = world.reject("a", "P")
    world.update(pod, LABEL_UPDATE, TOLERATION_UPDATE)
    assert world.incoming()["backoff/TargetPodUpdatePodToleration"] == 1


def test_an_update_with_several_events_never_leaves_a_pod_in_two_places(make_world):
    only_labels = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
    world = make_world(registered={"P": [on(only_labels)]}, pop_from_backoff_q=False)
    pod = world.reject("a", "P")
    wakes = world.wakes
    world.update(pod, LABEL_UPDATE, TOLERATION_UPDATE)
    assert world.where("a") == "backoff"
    assert world.wakes == wakes, "it may not be popped yet"


def test_an_update_in_flight_is_remembered_and_honoured_when_the_attempt_fails(world):
    pod = world.add("a")
    info = world.pop("a")
    world.update(pod, LABEL_UPDATE, version="2")
    assert world.where("a") == "in flight"
    assert info.pod_info.pod is pod
    world.fail(info, "Own")
    assert world.where("a") == "backoff"


def test_an_update_in_flight_is_recorded_even_if_it_is_unregistered(make_world):
    world = make_world(registered={"P": []})
    pod = world.add("a")
    world.pop("a")
    world.update(pod, LABEL_UPDATE, TOLERATION_UPDATE)
    assert world.queue._in_flight.event_count == 2


def test_a_recreated_pod_of_the_same_name_takes_over_the_entry(world):
    old = world.add("a", priority=1)
    new = world.pod("a", uid="second", priority=7)
    world.queue.update(old, new, [LABEL_UPDATE])
    info = world.pop("a")
    assert (info.pod_info.uid, info.pod_info.priority, info.pod_info.pod) == ("second", 7, new)


# Pods are brought back by hand.


def test_activating(world):
    pods = {}
    pods["pooled"] = world.reject("pooled", "Fit")
    pods["broken"] = world.add("broken")
    world.fail(world.pop("broken"))
    pods["flying"] = world.add("flying")
    flying = world.pop("flying")
    pods["active"] = world.add("active")
    pods["unknown"] = world.pod("unknown")
    before, wakes = world.incoming(), world.wakes
    world.queue.activate(pods)
    assert {name: world.where(name) for name in pods} == {
        "pooled": "active",
        "broken": "active",
        "flying": "in flight",
        "active": "active",
        "unknown": None,
    }
    assert world.incoming() == before | {"active/ForceActivate": 2}
    assert world.wakes == wakes + 1
    world.fail(flying, "Fit")
    assert world.where("flying") == "backoff", "activated while in flight: retried, but it rests"


def test_activating_in_flight_helps_that_pod_only(world):
    for name in ("a", "b"):
        world.add(name)
    first, second = world.pop("a"), world.pop("b")
    world.queue.activate({"b": second.pod_info.pod})
    world.fail(first, "Fit")
    world.fail(second, "Fit")
    assert world.where("a") == "unschedulable"
    assert world.where("b") == "backoff"


@pytest.mark.parametrize(
    "place", ["active", "backoff", "error backoff", "unschedulable", "gated", None]
)
def test_popping_one_specific_pod(world, place):
    pod = world.pod("a")
    if place == "gated":
        world.close_gate("a")
    if place is not None:
        world.queue.add(pod)
    if place in ("backoff", "error backoff", "unschedulable"):
        info = world.pop("a")
        if place == "backoff":
            world.queue.activate({"a": pod})
        world.fail(info, *([] if place == "error backoff" else ["Fit"]))
    assert world.where("a") == place
    world.add("other", priority=100)
    cycle = world.queue.scheduling_cycle
    info = world.queue.pop_specific_pod(pod)
    if place in ("gated", None):
        assert info is None
        assert world.where("a") == place
    else:
        assert info.pod_info.pod is pod
        assert world.where("a") == "in flight"
        assert world.queue.scheduling_cycle == cycle + 1


def test_a_pod_no_longer_gated_can_be_popped_specifically(world):
    world.close_gate("a")
    pod = world.add("a")
    world.open_gate("a")
    assert world.queue.pop_specific_pod(pod).pod_info.pod is pod


# Pods go.


@pytest.mark.parametrize(
    "place", ["active", "backoff", "error backoff", "unschedulable", "gated", "in flight"]
)
def test_deleting_a_pod_wherever_it_waits(world, place):
    pod = world.pod("a")
    if place == "gated":
        world.close_gate("a")
    world.queue.add(pod)
    if place not in ("active", "gated"):
        info = world.pop("a")
        if place == "backoff":
            world.queue.activate({"a": pod})
        if place != "in flight":
            world.fail(info, *([] if place == "error backoff" else ["Fit"]))
    assert world.where("a") == place
    world.queue.delete(pod)
    assert world.where("a") == ("in flight" if place == "in flight" else None)
    assert world.pop() is None


# What is where.


def test_pending_pods_and_get_pod_see_every_queue(world):
    world.reject("pooled", "Fit")
    world.add("broken")
    world.fail(world.pop("broken"))
    world.add("flying")
    world.pop("flying")
    world.add("active")
    world.close_gate("gated")
    world.add("gated")
    pods, summary = world.queue.pending_pods()
    assert {pod.metadata.name for pod in pods} == {"pooled", "broken", "active", "gated"}
    assert summary == "activeQ:1; backoffQ:1; unschedulableEntities:2"
    assert [pod.metadata.name for pod in world.queue.pods_in_active_q()] == ["active"]
    assert [info.pod_info.name for info in world.queue._backoff] == ["broken"]
    assert [pod.metadata.name for pod in world.queue.unschedulable_pods()] == ["pooled", "gated"]
    for name in ("pooled", "broken", "active", "gated"):
        assert world.info(name).pod_info.name == name
    assert world.info("flying") is None
    assert world.info("unknown") is None


def test_signatures_are_computed_on_add_and_again_on_every_update(make_world):
    def sign(pod_info):
        return repr(sorted((pod_info.pod.metadata.labels or {}).items())).encode()

    world = make_world(
        registered=REGISTERED,
        profiles=("default-scheduler", "other"),
        signers={"default-scheduler": sign},
    )
    for place in ("active", "backoff", "unschedulable"):
        pod = world.add(place)
        assert world.info(place).signature == b"[]"
        if place != "active":
            info = world.queue.pop_specific_pod(pod)
            if place == "backoff":
                world.queue.activate({place: pod})
            world.fail(info, "Fit")
        assert world.where(place) == place
        world.update(pod, LABEL_UPDATE, version="2")
        assert world.info(place).signature == b"[('version', '2')]"
    world.add("unsigned", profile="other")
    assert world.info("unsigned").signature is None


def test_an_update_forgets_the_class_of_the_pod(world):
    pod = world.add("a")
    world.info("a").pod_info.class_key = b"class"
    world.update(pod, version="2")
    assert world.info("a").pod_info.class_key is None
