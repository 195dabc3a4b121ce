"""Proves where PreEnqueue plugins are asked, in which order, and what happens to gated pods."""

from __future__ import annotations

import logging

import pytest

from kubesched.framework.events import (
    EVENT_NODE_ADD,
    POD_RESOURCES,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)
from kubesched.framework.status import Code, Status
from kubesched.scheduler.queue import HintMap
from kubesched.scheduler.queue.pre_enqueue import PreEnqueueRunner

POD_DELETE = ClusterEvent(Resource.POD, Action.DELETE)
DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


def recording(calls, answer=Hint.QUEUE):
    def hint(pod, old, new):
        calls.append(pod.metadata.name)
        return answer

    return hint


@pytest.fixture
def calls():
    return []


@pytest.fixture
def gated_world(make_world, calls):
    """GateA listens to pod deletions, P to nodes; GateB to nothing."""
    return lambda **settings: make_world(
        registered={
            "GateA": [ClusterEventWithHint(POD_DELETE, recording(calls))],
            "GateB": [],
            "P": [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ALL), recording(calls))],
        },
        **settings,
    )


def test_a_refused_pod_waits_as_gated(gated_world):
    world = gated_world()
    world.close_gate("a")
    world.add("a")
    info = world.info("a")
    assert world.where("a") == "gated"
    assert info.gating_plugin == "GateA"
    assert info.unschedulable_plugins == {"GateA"}
    assert info.gating_plugin_events == tuple(
        ClusterEvent(resource, Action.DELETE) for resource in POD_RESOURCES
    )
    assert info.initial_attempt_timestamp is None
    assert world.wakes == 0
    assert world.incoming() == {"unschedulable/UnscheduledPodAdd": 1}
    assert world.pop() is None


def test_the_first_refusal_ends_the_asking(gated_world):
    world = gated_world()
    world.close_gate("a", "GateA")
    world.add("a")
    assert world.gate_calls == [("GateA", "a")]


def test_the_plugin_that_refused_last_time_is_asked_first_and_once(gated_world):
    world = gated_world()
    world.close_gate("a", "GateB")
    pod = world.add("a")
    world.gate_calls.clear()
    world.queue.activate({"a": pod})
    assert world.gate_calls == [("GateB", "a")]
    world.open_gate("a", "GateB")
    world.gate_calls.clear()
    world.queue.activate({"a": pod})
    assert world.gate_calls == [("GateB", "a"), ("GateA", "a")]
    assert world.where("a") == "active"


def test_gates_closing_one_after_the_other(gated_world):
    world = gated_world()
    world.close_gate("a", "GateB")
    pod = world.add("a")
    world.open_gate("a", "GateB")
    world.close_gate("a", "GateA")
    world.queue.activate({"a": pod})
    info = world.info("a")
    assert (world.where("a"), info.gating_plugin) == ("gated", "GateA")
    assert info.unschedulable_plugins == {"GateA", "GateB"}
    assert world.rejections() == {"GateA": 1, "GateB": 1}
    world.open_gate("a", "GateA")
    world.queue.activate({"a": pod})
    assert world.info("a").unschedulable_plugins == {"GateA", "GateB"}
    assert world.info("a").gating_plugin == ""
    world.pop("a")
    assert world.rejections() == {}


@pytest.mark.parametrize("pop_from_backoff_q", [True, False])
def test_where_the_plugins_are_asked(gated_world, pop_from_backoff_q):
    world = gated_world(pop_from_backoff_q=pop_from_backoff_q)

    def asked(action):
        world.gate_calls.clear()
        action()
        return bool(world.gate_calls)

    pod = world.pod("a")
    assert asked(lambda: world.queue.add(pod)), "on the way into activeQ"
    info = world.pop("a")
    world.queue.activate({"a": pod})
    to_backoff = asked(lambda: world.fail(info, "P"))
    assert world.where("a") == "backoff"
    assert to_backoff is pop_from_backoff_q, "on the way into backoffQ only with the gate"
    from_backoff = asked(lambda: world.queue.activate({"a": pod}))
    assert world.where("a") == "active"
    assert from_backoff is not pop_from_backoff_q, "from backoffQ to activeQ only without it"
    world.fail(world.pop("a"), "P")
    assert world.where("a") == "unschedulable"
    assert asked(lambda: world.queue.activate({"a": pod})), "on the way from the pool to activeQ"


def test_popping_from_backoff_asks_no_plugin(gated_world):
    world = gated_world()
    pod = world.add("a")
    info = world.pop("a")
    world.queue.activate({"a": pod})
    world.fail(info, "P")
    world.gate_calls.clear()
    world.pop("a")
    assert world.gate_calls == []


def test_a_pod_gated_on_its_way_into_backoff_waits_in_the_pool(gated_world):
    world = gated_world()
    pod = world.add("a")
    info = world.pop("a")
    world.queue.activate({"a": pod})
    world.close_gate("a")
    world.fail(info, "P")
    assert world.where("a") == "gated"
    assert world.incoming()["unschedulable/ScheduleAttemptFailure"] == 1


def test_a_pod_gated_on_its_way_out_of_backoff_waits_in_the_pool(gated_world):
    world = gated_world(pop_from_backoff_q=False)
    pod = world.add("a")
    info = world.pop("a")
    world.queue.activate({"a": pod})
    world.fail(info, "P")
    world.close_gate("a")
    world.advance(5)
    world.queue.flush_backoff_completed()
    assert world.where("a") == "gated"
    assert world.incoming()["unschedulable/BackoffComplete"] == 1


@pytest.mark.parametrize(
    ("event", "hints_called", "place"),
    [
        pytest.param(
            EVENT_NODE_ADD, [], "gated", id="events outside the gate's registration ask no hint"
        ),
        pytest.param(
            DELETED, ["a"], "active", id="events of the gate ask the hints of all rejectors"
        ),
        pytest.param(UNSCHEDULABLE_TIMEOUT, [], "active", id="a wildcard re-checks without asking"),
    ],
)
def test_which_events_reach_a_gated_pod(gated_world, calls, event, hints_called, place):
    world = gated_world()
    world.close_gate("a")
    world.add("a")
    world.open_gate("a")
    world.move(event)
    assert calls == hints_called
    assert world.where("a") == place


def test_a_gate_that_registered_nothing_is_lifted_by_no_event(gated_world, calls):
    world = gated_world()
    world.close_gate("a", "GateB")
    world.add("a")
    world.open_gate("a", "GateB")
    for event in (EVENT_NODE_ADD, DELETED, NODE_TAINT):
        world.move(event)
    assert world.where("a") == "gated"
    assert calls == []


def test_other_rejectors_decide_when_the_gates_own_hint_skips(make_world):
    """How a preemptor waits: its gate only lets the event through, the plugin that rejected it
    judges it.
    """
    world = make_world(
        registered={
            "GateA": [ClusterEventWithHint(POD_DELETE, lambda pod, old, new: Hint.SKIP)],
            "P": [ClusterEventWithHint(POD_DELETE, lambda pod, old, new: Hint.QUEUE)],
        }
    )
    pod = world.reject("rejected", "P")
    world.close_gate("rejected")
    world.queue.activate({"rejected": pod})
    world.close_gate("lone")
    world.add("lone")
    world.closed_gates.clear()
    world.advance(5)
    world.move(DELETED)
    assert world.where("rejected") == "active"
    assert world.where("lone") == "gated"


@pytest.mark.parametrize(
    ("rested_s", "place"),
    [
        pytest.param(0.0, "backoff", id="a pod that has to rest goes to backoffQ"),
        pytest.param(5.0, "active", id="a rested one to activeQ"),
    ],
)
def test_leaving_the_gate(gated_world, rested_s, place):
    world = gated_world()
    pod = world.reject("a", "P")
    world.close_gate("a")
    world.queue.activate({"a": pod})
    assert world.where("a") == "gated"
    world.open_gate("a")
    world.advance(rested_s)
    world.move(DELETED)
    assert world.where("a") == place


@pytest.mark.parametrize(
    ("way", "counted"),
    [
        pytest.param("event", 2, id="a move takes the pod out and puts it back: counted again"),
        pytest.param("update", 1, id="an update leaves it in place: not counted"),
        pytest.param("activate", 1, id="so does activating"),
    ],
)
def test_incoming_pods_that_stay_gated(gated_world, way, counted):
    world = gated_world()
    world.close_gate("a")
    pod = world.add("a")
    if way == "event":
        world.move(DELETED)
    elif way == "update":
        world.update(pod, DELETED)
    else:
        world.queue.activate({"a": pod})
    assert world.where("a") == "gated"
    incoming = world.incoming()
    assert sum(incoming.values()) == counted
    assert all(label.startswith("unschedulable/") for label in incoming)


def test_own_updates_reach_a_gated_pod_without_asking_for_the_gates_events(gated_world, calls):
    world = gated_world()
    world.reject("a", "P")
    world.close_gate("a")
    world.queue.activate({"a": world.known_pods["shop", "a"]})
    world.advance(5)
    world.open_gate("a")
    world.update(world.known_pods["shop", "a"], EVENT_NODE_ADD)  # P listens to it, GateA does not
    assert calls == ["a"]
    assert world.where("a") == "active"


def test_a_gated_pod_starts_its_first_attempt_when_the_gate_opens(gated_world):
    world = gated_world()
    world.close_gate("a")
    pod = world.add("a")
    world.advance(42)
    world.open_gate("a")
    world.queue.activate({"a": pod})
    info = world.pop("a")
    assert info.initial_attempt_timestamp == world.clock.monotonic()
    assert info.timestamp == world.clock.monotonic() - 42
    assert info.attempts == 1


class TestRunner:
    """The plugins' answers and what they cost."""

    def run(self, world, plugin, *, sample_percent=0.0, pods=1):
        from random import Random

        from kubesched.framework.nodes.pods import PodInfo
        from kubesched.framework.queued_pod import QueuedPodInfo

        runner = PreEnqueueRunner(
            {"default-scheduler": {"G": plugin}},
            HintMap({}),
            clock=world.clock,
            random=Random(1),
            metrics=world.metrics,
            sample_percent=sample_percent,
        )
        for number in range(pods):
            info = QueuedPodInfo(PodInfo(world.pod(f"a{number}")), 0.0)
            runner.run(info)
        return info

    @pytest.mark.parametrize(
        ("answer", "is_gated"),
        [
            pytest.param(None, False, id="no status lets the pod in"),
            pytest.param(Status(Code.SUCCESS), False, id="Success lets it in"),
            pytest.param(
                Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ["no"]), True, id="a rejection gates it"
            ),
            pytest.param(Status(Code.ERROR, ["broken"]), True, id="an error gates it"),
            pytest.param(Status(Code.WAIT), True, id="anything else gates it too"),
            pytest.param(False, True, id="nonsense counts as an error"),
        ],
    )
    def test_answers(self, world, caplog, answer, is_gated):
        caplog.set_level(logging.CRITICAL)
        assert self.run(world, lambda pod: answer).is_gated is is_gated

    def test_a_plugin_that_raises_gates_the_pod_and_is_named(self, world, caplog):
        def broken(pod):
            raise RuntimeError("lost its cache")

        info = self.run(world, broken)
        assert info.gating_plugin == "G"
        told = next(record for record in caplog.records if record.msg == "A plugin failed")
        assert (told.values["plugin"], told.values["extensionPoint"]) == ("G", "PreEnqueue")
        assert told.values["pod"].metadata.name == "a0"

    @pytest.mark.parametrize(
        ("percent", "low", "high"),
        [
            pytest.param(0.0, 0, 0, id="nothing is sampled at 0 percent"),
            pytest.param(10.0, 60, 140, id="a tenth is sampled at 10 percent"),
            pytest.param(100.0, 1000, 1000, id="everything is sampled at 100 percent"),
        ],
    )
    def test_plugin_durations_are_sampled(self, world, percent, low, high):
        self.run(
            world, lambda pod: Status(Code.UNSCHEDULABLE, ["no"]), sample_percent=percent, pods=1000
        )
        cell = world.metrics.plugin_execution_duration_seconds.labels(
            "G", "PreEnqueue", "Unschedulable"
        )
        assert low <= cell.count <= high

    def test_the_extension_point_is_always_reported_as_success(self, world):
        self.run(world, lambda pod: Status(Code.UNSCHEDULABLE, ["no"]), pods=5)
        cells = world.metrics.framework_extension_point_duration_seconds.cells()
        assert {labels: cell.count for labels, cell in cells.items()} == {
            ("PreEnqueue", "Success", "default-scheduler"): 5
        }
