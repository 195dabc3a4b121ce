"""An event that is evaluated in slices has the effect of one that is evaluated at once.

The twin is the same queue without slices. Pods are changed, deleted and activated, and further events come, while an event is
under way.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from kubesched.queue import deliveries, scheduling_queue
from kubesched.queue.announcements import ClassFailure

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
        world.queue.divides_events = divides
        self.tried = []

    def add(self, number, kind, *, alone):
        self.world.advance(0.001)  # of pods with equal time stamps the first to move goes first
        self.world.add(f"p{number}", labels={"class": kind}, priority=number % 2)
        info = self.world.pop(f"p{number}")
        failure = None
        info.unschedulable_plugins = {"Fit"}
        if not alone:
            info.pod_info.class_key = kind.encode()
            failure = ClassFailure("does not fit", lambda _info: None)
        self.world.queue.add_unschedulable_if_not_present(info, failure)

    def perform(self, name, argument):
        queue = self.world.queue
        if name in ("room", "taint"):
            self.world.move(ROOM if name == "room" else TAINT, None, frozenset(argument))
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
            (place, info.pod_info.name, info.attempts, info.timestamp)
            for place, info in self.world.queue.entries()
        ]


kinds = st.sets(st.sampled_from(KINDS), min_size=1).map(sorted)
pods = st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), min_size=3, max_size=12)
events = st.tuples(st.sampled_from(["room", "taint"]), kinds)
changes = st.tuples(st.sampled_from(["delete", "activate", "touch", "relabel"]), st.integers(0, 11))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pods, st.lists(st.lists(events | changes, min_size=1, max_size=5), max_size=3))
@example([("a", False)] * 3 + [("b", True)] * 3, [[("room", ["a", "b"]), ("relabel", 2)]])
@example([("a", False)] * 4, [[("taint", ["a"]), ("room", ["c"]), ("relabel", 3)]])
def test_slices_have_the_effect_of_one_go(make_world, first, rounds):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deliveries, "SLICE", 2)
        patch.setattr(scheduling_queue, "SLICE", 2)
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
                while side.world.queue.deliver_some():
                    side.world.queue.check_invariants()
            assert sides[0].entries() == sides[1].entries()
            for side in sides:
                side.fail_all()
            assert sides[0].tried == sides[1].tried


@pytest.fixture
def divided(make_world, monkeypatch):
    monkeypatch.setattr(deliveries, "SLICE", 2)
    monkeypatch.setattr(scheduling_queue, "SLICE", 2)
    side = Side(make_world(registered=register(), max_backoff_s=0), divides=True)
    for number in range(5):
        side.add(number, "a", alone=True)
    return side


def test_no_pod_is_popped_while_an_event_is_under_way(divided):
    queue = divided.world.queue
    divided.perform("room", ["a"])
    assert queue.sizes == (2, 0, 3)
    assert queue.pop() is None
    assert queue.deliver_some()
    assert queue.pop() is None
    assert queue.deliver_some()
    assert not queue.deliver_some()
    assert queue.pop() is not None


def test_pods_are_popped_between_events(divided):
    queue = divided.world.queue
    divided.perform("room", ["b"])
    divided.perform("room", ["a"])
    while queue.pop() is None:
        assert queue.deliver_some()
        if queue.sizes[0]:
            break
    assert queue.sizes[2] in (2, 3, 4)


def test_events_that_pile_up_are_delivered_in_one_go(divided, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 2)
    for kind in ("a", "b", "c"):
        divided.perform("room", [kind])
    assert divided.world.queue.sizes == (5, 0, 0)


def test_a_pod_that_comes_after_an_event_is_not_moved_by_it(divided):
    queue = divided.world.queue
    divided.perform("room", ["b"])  # under way
    divided.perform("room", ["a"])
    while len(queue._deliveries._waiting) == 2:
        queue.deliver_some()
    divided.add(9, "a", alone=True)
    while queue.deliver_some():
        pass
    assert divided.world.where("p9") == "unschedulable"
    assert queue.sizes == (5, 0, 1)


def test_expired_backoffs_are_flushed_in_slices(make_world, monkeypatch):
    monkeypatch.setattr(scheduling_queue, "SLICE", 2)
    world = make_world()
    world.queue.divides_events = True
    for number in range(5):
        world.add(f"p{number}")
        info = world.pop(f"p{number}")
        world.queue.add_unschedulable_if_not_present(info)  # an error: it backs off
    world.advance(60)
    world.queue.flush_backoff_completed()
    assert world.queue.sizes == (2, 3, 0)
    assert world.queue.pop() is None
    while world.queue.deliver_some():
        pass
    assert world.queue.sizes == (5, 0, 0)
