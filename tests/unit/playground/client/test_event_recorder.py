"""Events tell the story, count repetitions, keep to their budget and are forgotten in time."""

from __future__ import annotations

import pytest

from kubesched.base.clock import ManualClock
from kubesched.playground.client.events import EventRecorder


class FakeApi:
    """Takes events, or refuses them."""

    def __init__(self) -> None:
        self.events: dict[str, dict] = {}
        self.refusal: Exception | None = None

    def create_composed(self, resource, obj, namespace):
        if self.refusal is not None:
            raise self.refusal
        assert (resource, obj["metadata"]["namespace"]) == ("events", namespace)
        assert obj["metadata"]["name"] not in self.events
        self.events[obj["metadata"]["name"]] = obj

    def patch(self, resource, namespace, name, patch, *, kind):
        from kubesched.base.errors import NotFound

        if name not in self.events:
            raise NotFound("gone")
        self.events[name].update(patch)


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"},
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "uid": "v"}}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def api():
    return FakeApi()


def test_an_event_has_what_describe_prints(api, clock):
    EventRecorder(api, clock).normal(POD, "kubelet", "Started", "Container started", host="node")
    [event] = api.events.values()
    assert event["involvedObject"]["uid"] == "u"
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Started",
        "Container started",
    )
    assert event["source"] == {"component": "kubelet", "host": "node"}
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"]


def test_a_repetition_raises_the_count(api, clock):
    recorder = EventRecorder(api, clock)
    for _ in range(3):
        recorder.warning(POD, "c", "BackOff", "again")
        clock.advance(10)
    [event] = api.events.values()
    assert event["count"] == 3
    assert event["lastTimestamp"] > event["firstTimestamp"]
    assert recorder.dropped == 0


def test_a_repetition_of_an_event_that_expired_is_a_new_event(api, clock):
    recorder = EventRecorder(api, clock)
    recorder.normal(POD, "c", "r", "m")
    api.events.clear()
    recorder.normal(POD, "c", "r", "m")
    assert [event["count"] for event in api.events.values()] == [1]


def test_different_stories_stay_apart_even_at_the_same_moment(api, clock):
    recorder = EventRecorder(api, clock)
    recorder.normal(POD, "c", "r", "one")
    recorder.normal(POD, "c", "r", "two")
    recorder.normal(NODE, "c", "r", "one")
    assert len(api.events) == 3


def test_events_about_cluster_scoped_objects_live_in_default(api, clock):
    EventRecorder(api, clock).normal(NODE, "c", "r", "m")
    [event] = api.events.values()
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


def test_the_budget_is_kept_and_refills(api, clock):
    recorder = EventRecorder(api, clock, per_second=2, burst=5)
    for index in range(50):
        recorder.normal(POD, "c", "r", str(index))
    assert (len(api.events), recorder.dropped) == (5, 45)
    clock.advance(2)
    for index in range(50, 100):
        recorder.normal(POD, "c", "r", str(index))
    assert len(api.events) == 9


def test_switched_off_it_writes_nothing(api, clock):
    EventRecorder(api, clock, enabled=False).warning(POD, "c", "r", "m")
    assert api.events == {}


def test_a_refused_event_is_counted_and_forgotten(api, clock):
    from kubesched.base.errors import Forbidden

    api.refusal = Forbidden("namespace is being terminated")
    recorder = EventRecorder(api, clock)
    recorder.normal(POD, "c", "r", "m")
    assert recorder.dropped == 1


def test_old_events_expire_and_repeated_ones_live_on(make_world):
    world = make_world(0, disabled=frozenset({"namespace"}))
    world.pod("quiet")
    world.pod("loud")
    recorder = world.cast["deployment"].events
    recorder.normal(world.get("pods", "quiet"), "c", "Once", "m")
    for _ in range(7):
        recorder.normal(world.get("pods", "loud"), "c", "Often", "m")
        world.run(600)
    assert world.reasons("quiet") == []
    assert world.reasons("loud") == ["Often"]
    world.run(3700)
    assert world.list("events") == []
