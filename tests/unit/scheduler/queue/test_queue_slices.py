"""An event that is evaluated in slices has the effect of one that is evaluated at once.

The twin is the same queue without slices. Pods are changed, deleted and activated, and further
events come, while an event is under way.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from kubesched.scheduler.queue import transitions
from kubesched.scheduler.queue.announcements import ClassFailure

ROOM = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
KINDS = ["a", "b", "c"]


def may_help(pod, old, new):
    return Hint.QUEUE if pod.metadata.labels["class"] in new else Hint.SKIP


def register():
    return {
        "Fit": [
            ClusterEventWithHint(ROOM, may_help, per_class=True),
            ClusterEventWithHint(TAINT, may_help),
        ]
    }


class Side:
    """A queue, in slices or not."""

    def __init__(self, world, *, divides):
        self.world = world
        world.queue.divides_work = divides
        self.tried = []

    def add(self, number, kind, *, alone, plugin="Fit"):
        self.world.advance(0.001)  # of pods with equal time stamps the first to move goes first
        self.world.add(f"p{number}", labels={"class": kind}, priority=number % 2)
        info = self.world.pop(f"p{number}")
        failure = None
        info.unschedulable_plugins = {plugin}
        if not alone:
            info.pod_info.class_key = kind.encode()
            failure = ClassFailure("does not fit", lambda _info: None)
        self.world.queue.add_unschedulable_if_not_present(info, failure)

    def perform(self, name, argument):
        queue = self.world.queue
        if name in ("room", "taint"):
            self.world.move(ROOM if name == "room" else TAINT, None, frozenset(argument))
            return
        if name == "flush":
            while queue.do_some():
                pass
            self.world.advance(argument)
            queue.flush_unschedulable_leftovers()
            return
        info = self.world.info(f"p{argument}")
        if info is None:
            return
        pod = info.pod_info.pod
        if name == "delete":
            queue.delete(pod)
        elif name == "activate":
            queue.activate({pod.metadata.name: pod})
        else:
            labels = {"class": "c"} if name == "relabel" else pod.metadata.labels
            meta = structs.replace(pod.metadata, labels=labels)
            queue.update(pod, structs.replace(pod, metadata=meta), ())

    def fail_all(self):
        """Try what can be popped; everything fails, alone."""
        while (info := self.world.queue.pop()) is not None:
            self.world.advance(0.001)
            self.tried.append(info.pod_info.name)
            info.unschedulable_plugins = {"Fit"}
            self.world.queue.add_unschedulable_if_not_present(info)

    def entries(self):
        return [
            (place, info.pod_info.name, info.attempts, info.timestamp, info.flush_timestamp)
            for place, info in self.world.queue.entries()
        ]


kinds = st.sets(st.sampled_from(KINDS), min_size=1).map(sorted)
pods = st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), min_size=3, max_size=12)
events = st.tuples(st.sampled_from(["room", "taint"]), kinds)
flushes = st.tuples(st.just("flush"), st.sampled_from([100, 250, 301]))
changes = st.tuples(st.sampled_from(["delete", "activate", "touch", "relabel"]), st.integers(0, 11))


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pods, st.lists(st.lists(events | flushes | changes, min_size=1, max_size=5), max_size=3))
@example([("a", False)] * 3 + [("b", True)] * 3, [[("room", ["a", "b"]), ("relabel", 2)]])
@example([("a", False), ("b", True)] * 4, [[("flush", 301), ("room", ["a"]), ("touch", 5)]])
@example([("a", False)] * 4, [[("taint", ["a"]), ("room", ["c"]), ("relabel", 3)]])
def test_slices_have_the_effect_of_one_go(make_world, first, rounds):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transitions, "SLICE", 2)
        sides = [
            Side(make_world(registered=register(), max_backoff_s=0), divides=divides)
            for divides in (True, False)
        ]
        for number, (kind, alone) in enumerate(first):
            for side in sides:
                side.add(number, kind, alone=alone)
        for steps in rounds:
            for side in sides:
                for name, argument in steps:
                    side.perform(name, argument)
                    side.world.queue.check_invariants()
                while side.world.queue.do_some():
                    side.world.queue.check_invariants()
            assert sides[0].entries() == sides[1].entries()
            for side in sides:
                side.fail_all()
            assert sides[0].tried == sides[1].tried


@pytest.fixture
def divided(make_world, monkeypatch):
    monkeypatch.setattr(transitions, "SLICE", 2)
    side = Side(make_world(registered=register(), max_backoff_s=0), divides=True)
    for number in range(5):
        side.add(number, "a", alone=True)
    return side


def test_no_pod_is_popped_while_an_event_is_under_way(divided):
    queue = divided.world.queue
    divided.perform("room", ["a"])
    for sizes in ((2, 0, 3), (4, 0, 1)):
        assert queue.is_busy
        assert queue.sizes == sizes
        assert queue.pop() is None
        assert queue.do_some()
    assert not queue.is_busy
    assert not queue.do_some()
    assert queue.pop() is not None


def test_the_loop_is_woken_for_the_slices_that_are_left_and_for_what_can_be_popped(divided):
    wakes = divided.world.wakes
    divided.perform("room", ["b"])
    assert divided.world.wakes == wakes + 1
    while divided.world.queue.do_some():
        pass
    assert divided.world.wakes == wakes + 1, "nothing can be popped"
    divided.perform("room", ["a"])
    while divided.world.queue.do_some():
        pass
    assert divided.world.wakes == wakes + 3


@pytest.mark.parametrize("what", ["room", "delete", "activate", "touch", "relabel"])
def test_what_changes_the_pods_that_wait_does_the_rest_first(divided, what):
    divided.perform("room", ["a"])
    divided.perform(what, ["b"] if what == "room" else 4)
    assert divided.world.queue.sizes == (5 - (what == "delete"), 0, 0)


def test_an_event_that_concerns_no_waiting_pod_is_done_at_once(divided):
    divided.world.queue.move_all_to_active_or_backoff_queue(
        ClusterEvent(Resource.NODE, Action.DELETE), None, frozenset("a")
    )
    assert not divided.world.queue.is_busy


def test_overdue_pods_are_flushed_in_slices(divided):
    queue = divided.world.queue
    divided.perform("flush", 200)
    assert not queue.is_busy
    divided.add(5, "a", alone=True)  # it is not overdue
    divided.perform("flush", 101)
    assert queue.pop() is None
    assert queue.sizes == (2, 0, 4)
    queue.run_timers()
    assert queue.sizes == (2, 0, 4), "a flush is under way"
    while queue.do_some():
        queue.check_invariants()
    assert queue.sizes == (5, 0, 1)
    assert divided.world.where("p5") == "unschedulable"
    due = queue.next_deadline()
    assert due is not None
    assert due > divided.world.clock.monotonic() + 100, "when p5 has waited for five minutes"


def test_expired_backoffs_are_flushed_in_slices(make_world, monkeypatch):
    monkeypatch.setattr(transitions, "SLICE", 2)
    world = make_world()
    world.queue.divides_work = True
    for number in range(5):
        world.add(f"p{number}")
        info = world.pop(f"p{number}")
        world.queue.add_unschedulable_if_not_present(info)  # an error: it backs off
    world.advance(60)
    world.queue.flush_backoff_completed()
    assert world.queue.sizes == (2, 3, 0)
    assert world.queue.pop() is None
    while world.queue.do_some():
        pass
    assert world.queue.sizes == (5, 0, 0)
