"""Proves what the passing of time does to waiting pods, and that `next_deadline` names exactly
those instants.
"""

from __future__ import annotations

import pytest

from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource

NODE_ALL = ClusterEvent(Resource.NODE, Action.ALL)
GATE_EVENTS = ClusterEvent(Resource.POD, Action.DELETE)
REGISTERED = {"Fit": [ClusterEventWithHint(NODE_ALL)], "GateA": [ClusterEventWithHint(GATE_EVENTS)]}


@pytest.fixture
def world(make_world):
    return make_world(registered=REGISTERED)


def since_start(world):
    deadline = world.queue.next_deadline()
    return None if deadline is None else deadline - world.queue._started


def run_until(world, seconds):
    """Let time pass, running the timers exactly when the queue asks for it."""
    end = world.clock.monotonic() + seconds
    ran_at = []
    while (deadline := world.queue.next_deadline()) is not None and deadline <= end:
        assert deadline > world.clock.monotonic() or not ran_at, "the same deadline came twice"
        world.advance(deadline - world.clock.monotonic())
        world.queue.run_timers()
        world.queue.check_invariants()
        ran_at.append(since_start_of(world))
    world.advance(end - world.clock.monotonic())
    return ran_at


def since_start_of(world):
    return world.clock.monotonic() - world.queue._started


def test_nothing_depends_on_time_while_no_pod_waits(world):
    assert world.queue.next_deadline() is None
    world.add("a")
    assert world.queue.next_deadline() is None
    world.pop("a")
    assert world.queue.next_deadline() is None


@pytest.mark.parametrize(
    ("failed_after_s", "gate", "deadline_s"),
    [
        pytest.param(
            0.0, True, 2.0, id="a rest of one second from a whole second lasts to the second after"
        ),
        pytest.param(0.25, True, 2.0, id="and so does one that began within that second"),
        pytest.param(0.984375, True, 2.0, id="to its very end"),
        pytest.param(1.0, True, 3.0, id="from the next second on one more"),
        pytest.param(
            0.0, False, 2.0, id="without windows it is the tick strictly after the expiry"
        ),
        pytest.param(0.25, False, 2.0, id="ticks being whole seconds since the start"),
    ],
)
def test_deadline_of_a_resting_pod(make_world, failed_after_s, gate, deadline_s):
    world = make_world(registered=REGISTERED, pop_from_backoff_q=gate)
    world.add("a")
    info = world.pop("a")
    world.advance(failed_after_s)
    world.fail(info)
    assert since_start(world) == deadline_s
    world.advance(1.0)
    world.queue.run_timers()
    assert world.where("a") == "error backoff"
    wakes = world.wakes
    assert run_until(world, 1.0) == [deadline_s]
    assert world.where("a") == "active"
    assert world.wakes == wakes + 1
    assert world.queue.next_deadline() is None


def test_ticks_without_windows_count_from_the_start_of_the_queue(make_world):
    world = make_world(registered=REGISTERED, pop_from_backoff_q=False)
    world.queue._started += 0.25
    world.advance(0.5)
    world.add("a")
    world.fail(world.pop("a"))  # expires at 1.5, ticks at .25
    assert world.queue.next_deadline() == world.queue._started + 2.0


def test_leftovers_are_flushed_strictly_after_five_minutes(world):
    world.advance(10)
    world.reject("a", "Fit")
    assert since_start(world) == 330.0  # the first half minute after 310
    world.advance(300)
    world.queue.flush_unschedulable_leftovers()
    assert world.where("a") == "unschedulable", "exactly five minutes is not more than five minutes"
    world.advance(0.001)
    world.queue.flush_unschedulable_leftovers()
    assert world.where("a") == "active"
    assert world.incoming()["active/UnschedulableTimeout"] == 1


def test_a_pod_that_came_on_the_grid_waits_for_the_next_tick(world):
    world.reject("a", "Fit")
    assert since_start(world) == 330.0
    assert run_until(world, 329.0) == []
    assert run_until(world, 1.0) == [330.0]
    assert world.where("a") == "active"


def test_flushed_pods_are_tried_by_priority(world):
    for name, priority in (("low", 1), ("high", 10)):
        world.reject(name, "Fit", priority=priority)
    run_until(world, 400)
    assert world.drain() == ["high", "low"]


def test_the_deadline_follows_the_oldest_pod_and_forgets_pods_that_left(world):
    old = world.reject("old", "Fit")
    world.advance(100)
    world.reject("young", "Fit")
    assert since_start(world) == 330.0
    world.queue.delete(old)
    # One visit for nothing is allowed; after it the deadline is exact again.
    assert run_until(world, 300) == [330.0]
    assert since_start(world) == 420.0


@pytest.mark.parametrize("gated", [False, True], ids=["ungated", "gated"])
@pytest.mark.parametrize("resting", [False, True], ids=["rested", "still resting"])
def test_the_flush_marks_pods_that_it_frees(make_world, gated, resting):
    world = make_world(
        registered=REGISTERED, initial_backoff_s=1000 if resting else 1, max_backoff_s=1000
    )
    pod = world.reject("a", "Fit")
    if gated:
        world.close_gate("a")
        world.queue.activate({"a": pod})
    world.advance(301)
    world.queue.flush_unschedulable_leftovers()
    info = world.info("a")
    assert info.was_flushed_from_unschedulable is not gated
    assert info.flush_timestamp == world.clock.monotonic()
    assert world.where("a") == ("gated" if gated else "backoff" if resting else "active")
    world.open_gate("a")
    info = world.queue.pop_specific_pod(pod)
    world.fail(info, "Fit")
    assert (info.was_flushed_from_unschedulable, info.flush_timestamp) == (False, None)


def test_a_gated_pod_is_rechecked_once_per_five_minutes(world):
    world.close_gate("a")
    world.add("a")
    world.gate_calls.clear()

    def rechecked_at(seconds):
        world.advance(seconds - since_start_of(world))
        before = len(world.gate_calls)
        world.queue.flush_unschedulable_leftovers()
        return len(world.gate_calls) > before

    assert rechecked_at(299) is False
    assert rechecked_at(301) is True
    assert rechecked_at(541) is False
    assert rechecked_at(602) is True
    assert world.where("a") == "gated"
    assert world.incoming()["unschedulable/UnschedulableTimeout"] == 2


def test_a_flush_is_remembered_for_pods_in_flight_only_if_a_pod_was_overdue(world):
    world.add("flying")
    info = world.pop("flying")
    world.queue.flush_unschedulable_leftovers()
    assert world.queue._in_flight.event_count == 0
    world.close_gate("gated")
    world.add("gated")
    world.advance(301)
    world.queue.flush_unschedulable_leftovers()
    assert world.where("gated") == "gated"
    assert world.queue._in_flight.event_count == 1
    world.fail(info, "Fit")
    assert world.where("flying") == "backoff"


def test_the_limit_is_a_setting(make_world):
    world = make_world(registered=REGISTERED, max_in_unschedulable_s=60.0)
    world.reject("a", "Fit")
    assert run_until(world, 100) == [90.0]
    assert world.where("a") == "active"


def test_running_the_timers_at_every_deadline_equals_running_them_all_the_time(make_world):
    """A shell that sleeps to `next_deadline` frees every pod at the instant a shell that ticks all
    the time does.
    """

    def tick(world, seconds):
        for _ in range(round(seconds * 4)):
            world.advance(0.25)
            passed = since_start_of(world)
            if passed % 1 == 0:
                world.queue.flush_backoff_completed()
            if passed % 30 == 0:
                world.queue.flush_unschedulable_leftovers()

    def history(wait):
        world = make_world(registered=REGISTERED)
        entered = []
        world.queue.on_ready = lambda: entered.append(
            (since_start_of(world), [pod.metadata.name for pod in world.queue.pods_in_active_q()])
        )
        for number in range(40):
            wait(world, 0.25 * (number % 11))
            name = f"p{number}"
            world.fail(
                world.queue.pop_specific_pod(world.add(name)), *(["Fit"] if number % 2 else [])
            )
        wait(world, 700.0)
        return entered

    assert history(run_until) == history(tick)
