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
            while queue._deliveries.has_flush:
                queue.deliver_some()  # there are 30 s between two flushes
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
    for sizes in ((0, 0, 5), (2, 0, 3), (4, 0, 1)):
        assert queue.sizes == sizes
        assert queue.pop() is None
        assert queue.deliver_some()
    assert not queue.deliver_some()
    assert queue.pop() is not None


def test_an_event_that_concerns_few_is_evaluated_at_once(make_world, monkeypatch):
    monkeypatch.setattr(scheduling_queue, "SLICE", 2)
    side = Side(make_world(registered=register(), max_backoff_s=0), divides=True)
    for number in range(5):
        side.add(number, "a", alone=True)
    side.perform("room", ["a"])
    assert side.world.queue.sizes == (5, 0, 0)


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


def test_an_event_that_concerns_no_waiting_pod_is_not_kept(divided):
    divided.world.queue.move_all_to_active_or_backoff_queue(
        ClusterEvent(Resource.NODE, Action.DELETE), None, frozenset("a")
    )
    assert not divided.world.queue.deliver_some()


def test_an_event_reaches_pods_whose_class_was_merged_into_another(make_world, monkeypatch):
    monkeypatch.setattr(deliveries, "SLICE", 2)
    monkeypatch.setattr(scheduling_queue, "SLICE", 2)
    added = ClusterEvent(Resource.NODE, Action.ADD)
    registered = register() | {"Other": [ClusterEventWithHint(added)]}
    side = Side(make_world(registered=registered, max_backoff_s=0), divides=True)
    world, queue = side.world, side.world.queue
    for number, kind in enumerate("bcdaa"):
        side.add(number, kind, alone=False)
    for number in range(5, 9):
        side.add(number, "a", alone=False, plugin="Other")
    world.move(added, None, None)
    while queue.deliver_some():
        pass
    side.perform("room", ["x"])  # helps none, but takes several slices
    side.perform("room", ["a"])  # waits for it, meant for p3 and p4
    while len(queue._deliveries._waiting) == 2:
        queue.deliver_some()
    head = queue.pop()
    assert head is not None
    assert head.pod_info.name == "p5"
    head.unschedulable_plugins = {"Fit"}
    queue.add_unschedulable_if_not_present(head, ClassFailure("none", lambda _info: None))
    queue.check_invariants()
    assert queue.pop() is None, "the larger class has taken the smaller one in, and sleeps"
    while queue.deliver_some():
        queue.check_invariants()
    woken = queue.pop()
    assert woken is not None
    assert woken.pod_info.name == "p3"


def test_overdue_pods_are_flushed_in_slices(divided):
    queue = divided.world.queue
    divided.perform("flush", 200)
    assert not queue.deliver_some()
    divided.add(5, "a", alone=True)  # it is not overdue
    divided.perform("flush", 101)
    assert queue.pop() is None
    assert queue.deliver_some()
    assert queue.sizes == (2, 0, 4)
    assert queue.pop() is None
    queue.run_timers()
    assert queue.sizes == (2, 0, 4), "a flush is under way"
    while queue.deliver_some():
        queue.check_invariants()
    assert queue.sizes == (5, 0, 1)
    assert divided.world.where("p5") == "unschedulable"
    due = queue.next_deadline()
    assert due is not None
    assert due > divided.world.clock.monotonic() + 100, "when p5 has waited for five minutes"


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
