"""Proves that events cost nothing for pods they cannot help, and that shortcuts change no outcome.

The equality with visiting every pod is proven by the model tests; here hint calls are counted.
"""

from __future__ import annotations

import pytest

from kubesched.framework.engine import reads
from kubesched.framework.events import (
    EVENT_NODE_ADD,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)
from kubesched.scheduler.queue.announcements import ClassFailure

NODE_ALL = ClusterEvent(Resource.NODE, Action.ALL)
POD_DELETE = ClusterEvent(Resource.POD, Action.DELETE)
DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)


@pytest.fixture
def calls():
    """(plugin, pod) for every hint that was asked."""
    return []


@pytest.fixture
def hint(calls):
    def make(plugin, answer):
        def decide(pod, old, new):
            calls.append((plugin, pod.metadata.name))
            return answer

        return decide

    return make


def wait_in_pool(world, name, plugin, class_key=None, shape_key=None, **fields):
    world.add(name, **fields)
    info = world.queue.pop_specific_pod(world.known_pods["shop", name])
    info.pod_info.class_key, info.pod_info.shape_key = class_key, shape_key
    world.fail(info, plugin)


def test_pods_whose_rejectors_did_not_register_the_event_are_not_visited(make_world, hint, calls):
    world = make_world(
        registered={
            "Nodes": [ClusterEventWithHint(NODE_ALL, hint("Nodes", Hint.SKIP))],
            "Pods": [ClusterEventWithHint(POD_DELETE, hint("Pods", Hint.SKIP))],
        }
    )
    for number in range(200):
        wait_in_pool(world, f"p{number}", "Pods")
    visited = []
    world.move(EVENT_NODE_ADD, pre_check=lambda pod: visited.append(pod) or True)
    assert (calls, visited) == ([], [])
    world.move(DELETED)
    assert len(calls) == 200


def test_gated_pods_are_not_visited_for_events_of_their_other_rejectors(make_world, hint, calls):
    world = make_world(
        registered={
            "Nodes": [ClusterEventWithHint(NODE_ALL, hint("Nodes", Hint.QUEUE))],
            "GateA": [ClusterEventWithHint(POD_DELETE, hint("GateA", Hint.SKIP))],
        }
    )
    pod = world.reject("a", "Nodes")
    world.close_gate("a")
    world.queue.activate({"a": pod})
    world.move(EVENT_NODE_ADD)
    assert calls == []
    assert world.where("a") == "gated"
    world.move(DELETED)
    assert calls == [("GateA", "a")]


@pytest.mark.parametrize("class_key", [b"web", None, b""])
def test_every_pod_that_waits_alone_is_asked_about(make_world, hint, calls, class_key):
    world = make_world(
        registered={"Fit": [ClusterEventWithHint(NODE_ALL, reads("class")(hint("Fit", Hint.SKIP)))]}
    )
    for name in ("a", "b", "c"):
        wait_in_pool(world, name, "Fit", class_key=class_key)
    world.move(EVENT_NODE_ADD)
    assert calls == [("Fit", "a"), ("Fit", "b"), ("Fit", "c")]


def test_a_hint_that_reads_the_spec_is_asked_once_per_spec_and_cohort(make_world, hint, calls):
    registered = {
        plugin: [ClusterEventWithHint(NODE_ALL, reads("spec")(hint(plugin, Hint.QUEUE)))]
        for plugin in ("Fit", "Ports")
    }
    world = make_world(registered=registered, max_backoff_s=0)
    for name in ("a", "b", "c"):
        wait_in_pool(world, name, "Fit", class_key=name.encode(), shape_key=b"small")
    wait_in_pool(world, "d", "Fit", class_key=b"d", shape_key=b"large")
    wait_in_pool(world, "e", "Ports", class_key=b"e", shape_key=b"small")
    for name in ("f", "g"):  # no class: nothing is known about what they share
        wait_in_pool(world, name, "Fit", class_key=b"", shape_key=b"")
    world.move(EVENT_NODE_ADD)
    asked = [("Fit", "a"), ("Fit", "d"), ("Fit", "f"), ("Fit", "g"), ("Ports", "e")]
    assert calls == asked
    assert world.drain() == [*"abcdefg"]


def test_a_pod_with_another_spec_is_asked_about_anew(make_world, hint, calls):
    fit = ClusterEventWithHint(NODE_ALL, reads("spec")(hint("Fit", Hint.SKIP)))
    world = make_world(registered={"Fit": [fit]})
    for name in ("a", "b"):
        wait_in_pool(world, name, "Fit", class_key=name.encode(), shape_key=b"small")
    world.move(EVENT_NODE_ADD)
    assert calls == [("Fit", "a")]
    world.update(world.known_pods["shop", "b"], labels={"now": "other"})
    calls.clear()
    world.move(EVENT_NODE_ADD)
    assert calls == [("Fit", "a"), ("Fit", "b")]


def test_one_hint_that_looks_at_the_pod_makes_every_pod_be_asked_about(make_world, hint, calls):
    world = make_world(
        registered={
            "Fit": [ClusterEventWithHint(NODE_ALL, reads("class")(hint("Fit", Hint.SKIP)))],
            "Own": [ClusterEventWithHint(NODE_ALL, hint("Own", Hint.SKIP))],
        }
    )
    for name in ("a", "b"):
        world.add(name)
        info = world.pop(name)
        info.pod_info.class_key = b"web"
        info.unschedulable_plugins = {"Fit", "Own"}
        failure = ClassFailure("does not fit", lambda _info: None)
        world.queue.add_unschedulable_if_not_present(info, failure)
    world.move(EVENT_NODE_ADD)
    assert calls == [("Fit", "a"), ("Own", "a"), ("Fit", "b"), ("Own", "b")]


def test_pods_are_freed_in_the_order_in_which_they_came_whatever_cohort_they_are_in(make_world):
    world = make_world(
        registered={"P": [ClusterEventWithHint(NODE_ALL)], "Q": [ClusterEventWithHint(NODE_ALL)]},
        max_backoff_s=0,
    )
    names = [f"p{number}" for number in range(12)]
    for number, name in enumerate(names):
        wait_in_pool(world, name, "PQ"[number % 2], class_key=[b"x", b"y", None][number % 3])
    world.move(EVENT_NODE_ADD)
    assert world.drain() == names


def test_a_wildcard_reaches_every_cohort(make_world):
    world = make_world(registered={"P": [], "Q": [ClusterEventWithHint(NODE_ALL)]}, max_backoff_s=0)
    for name, plugin in (("a", "P"), ("b", "Q"), ("c", "Unknown")):
        wait_in_pool(world, name, plugin, class_key=b"x")
    world.move(UNSCHEDULABLE_TIMEOUT)
    assert world.drain() == ["a", "b", "c"]


def test_an_update_that_changes_the_class_files_the_pod_anew(make_world, hint, calls):
    world = make_world(
        registered={"Fit": [ClusterEventWithHint(NODE_ALL, reads("class")(hint("Fit", Hint.SKIP)))]}
    )
    for name in ("a", "b"):
        wait_in_pool(world, name, "Fit", class_key=b"web")
    world.update(world.known_pods["shop", "a"], version="2")
    world.queue.check_invariants()
    world.move(EVENT_NODE_ADD)
    assert sorted(calls) == [("Fit", "a"), ("Fit", "b")]
