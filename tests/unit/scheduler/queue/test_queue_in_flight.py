"""Proves that in-flight pods see exactly the events since they were popped, and that no event is
kept without need.
"""

from __future__ import annotations

import pytest

from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.framework.events import (
    EVENT_NODE_ADD,
    EVENT_NODE_DELETE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Resource,
)
from kubesched.scheduler.queue.hints import HintMap
from kubesched.scheduler.queue.in_flight import InFlight

NOBODY_CARES = ClusterEvent(Resource.CSI_NODE, Action.ADD)
LISTENS = {"P": [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ALL))]}


class Flight:
    """InFlight driven by short words: `+a` pops a, `-a` finishes it, `e1` records an event."""

    def __init__(self, **limits):
        self.metrics = SchedulerMetrics(MetricsRegistry())
        self.hints = HintMap({})
        given_up = self.hints.resolve(UNSCHEDULABLE_TIMEOUT)
        self.in_flight = InFlight(self.metrics, given_up=given_up, **limits)

    def run(self, *words):
        for word in words:
            if word[0] == "+":
                self.in_flight.add(word[1:])
            elif word[0] == "-":
                self.in_flight.done(word[1:])
            else:
                event = self.hints.resolve(ClusterEvent(Resource.NODE, Action.ADD, word))
                self.in_flight.record(event, None, None)
            self.in_flight.check_invariants()

    def seen_by(self, uid):
        events = self.in_flight.events_since_pop(uid)
        return None if events is None else [recorded.event.label for recorded in events]


@pytest.mark.parametrize(
    ("words", "seen", "kept"),
    [
        pytest.param("e1 +a", {"a": []}, 0, id="events before the pop are not considered"),
        pytest.param("e1 e2", {"a": None}, 0, id="with nothing in flight nothing is recorded"),
        pytest.param("+a e1 +b e2", {"a": ["e1", "e2"], "b": ["e2"]}, 2,
                     id="each pod sees what came after its own pop"),
        pytest.param(
            "+a e1 +b e2 +c e3 -b", {"a": ["e1", "e2", "e3"], "c": ["e3"]}, 3,
            id="finishing one in the middle keeps what older pods may need",
        ),
        pytest.param("+a e1 e2 +b e3 -a", {"b": ["e3"]}, 1,
                     id="finishing the oldest drops everything up to the next pod"),
        pytest.param("+a e1 +b e2 -b -a", {"a": None, "b": None}, 0,
                     id="finishing all leaves nothing"),
        pytest.param("+a e1 +b e2 -a -b", {"a": None, "b": None}, 0, id="in whichever order"),
        pytest.param("+a e1 -z", {"a": ["e1"]}, 1, id="finishing an unknown pod changes nothing"),
        pytest.param("+a e1 -a -a +b e2", {"b": ["e2"]}, 1, id="finishing twice is harmless"),
        pytest.param("+a e1 +b -a +a e2", {"b": ["e2"], "a": ["e2"]}, 1,
                     id="a pod popped again starts afresh"),
    ],
)  # fmt: skip
def test_which_events_are_kept_for_whom(words, seen, kept):
    flight = Flight()
    flight.run(*words.split())
    assert {uid: flight.seen_by(uid) for uid in seen} == seen
    assert flight.in_flight.event_count == kept


def test_a_pod_is_not_tracked_twice():
    flight = Flight()
    assert flight.in_flight.add("a") is True
    flight.run("e1")
    assert flight.in_flight.add("a") is False
    assert flight.seen_by("a") == ["e1"]


def test_beyond_the_limit_the_older_half_is_given_up_and_counts_as_possibly_helpful():
    flight = Flight(max_events=4)
    flight.run("+a", "e1", "e2", "+b", "e3", "e4", "+c", "e5")
    assert flight.in_flight.event_count == 3
    assert flight.seen_by("a") == ["UnschedulableTimeout", "e3", "e4", "e5"]
    assert flight.seen_by("b") == ["e3", "e4", "e5"]
    assert flight.seen_by("c") == ["e5"]
    flight.run("e6", "e7")
    assert flight.seen_by("b") == ["UnschedulableTimeout", "e5", "e6", "e7"]
    flight.run("-a", "-b")
    assert flight.seen_by("c") == ["e5", "e6", "e7"]
    flight.run("-c")
    assert flight.in_flight.event_count == 0
    shown = {
        labels[0]: cell.current() for labels, cell in flight.metrics.inflight_events.cells().items()
    }
    assert set(shown.values()) == {0}


def test_gauge_shows_what_is_in_flight():
    flight = Flight()
    gauge = flight.metrics.inflight_events
    event = flight.hints.resolve(EVENT_NODE_ADD)
    flight.in_flight.add("a")
    for _ in range(2):
        flight.in_flight.record(event, None, None)
    assert gauge.labels("NodeAdd").current() == 2
    assert gauge.labels("PodPopped").current() == 1
    flight.in_flight.done("a")
    assert {labels: cell.current() for labels, cell in gauge.cells().items()} == {
        ("NodeAdd",): 0,
        ("PodPopped",): 0,
    }


def test_unregistered_events_are_not_recorded(make_world):
    world = make_world(registered=LISTENS)
    world.add("a")
    world.pop("a")
    world.move(NOBODY_CARES)
    assert world.queue._in_flight.event_count == 0
    world.move(EVENT_NODE_ADD)
    assert world.queue._in_flight.event_count == 1


def test_an_event_that_arrived_after_the_pop_while_another_pod_flew_counts(make_world):
    world = make_world(registered=LISTENS)
    world.add("first")
    world.add("second")
    first = world.pop("first")
    world.move(EVENT_NODE_DELETE)
    second = world.pop("second")
    world.fail(first, "P")
    world.fail(second, "P")
    assert world.where("first") == "backoff"
    assert world.where("second") == "unschedulable"


def test_the_same_pod_in_flight_and_in_active_is_popped_once(make_world):
    world = make_world(registered=LISTENS)
    pod = world.add("a")
    info = world.pop("a")
    world.queue.add(pod)  # a relist delivers it again
    world.add("b")
    cycle = world.queue.scheduling_cycle
    world.pop("b")  # the duplicate came first and was dropped
    assert world.queue.scheduling_cycle == cycle + 1
    world.fail(info, "P")
    assert world.where("a") == "unschedulable"
    world.queue.done("uid-b")
    assert world.queue.in_flight_uids() == []
    assert world.queue._in_flight.event_count == 0


def test_close_ends_every_flight_and_leaves_queued_pods_poppable(make_world):
    world = make_world(registered=LISTENS)
    world.add("a")
    world.add("b")
    world.pop("a")
    world.move(EVENT_NODE_ADD)
    wakes = world.wakes
    world.queue.close()
    assert world.queue.is_closed
    assert world.wakes == wakes + 1
    assert world.queue.in_flight_uids() == []
    assert world.queue._in_flight.event_count == 0
    world.pop("b")
    assert world.pop() is None
    world.queue.check_invariants()
