"""Proves how long pods rest: the formula, its rounding, and which pods leave backoffQ when."""

from __future__ import annotations

import pytest

from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.backoff import BackoffPolicy

START = 1_767_225_600.0


def entry(world, name="a", *, timestamp=START, unschedulable=0, errors=0):
    info = QueuedPodInfo(PodInfo(world.pod(name)), timestamp)
    info.unschedulable_count = unschedulable
    info.consecutive_errors_count = errors
    return info


@pytest.mark.parametrize(
    ("unschedulable", "errors", "rest_s"),
    [
        pytest.param(1, 0, 1, id="first rejection rests one second"),
        pytest.param(2, 0, 2, id="second rejection doubles it"),
        pytest.param(3, 0, 4, id="third rejection doubles it again"),
        pytest.param(4, 0, 8, id="fourth rejection still doubles"),
        pytest.param(5, 0, 10, id="fifth rejection reaches the maximum"),
        pytest.param(6, 0, 10, id="and it stays there"),
        pytest.param(7, 0, 10, id="for good"),
        pytest.param(2**31, 0, 10, id="a count beyond 32 bits gives the maximum"),
        pytest.param(2**63, 0, 10, id="a count beyond 64 bits gives the maximum"),
        pytest.param(2**70, 0, 10, id="no count overflows"),
        pytest.param(7, 1, 1, id="a first error rests one second whatever was rejected before"),
        pytest.param(0, 3, 4, id="errors double as well"),
        pytest.param(1, 9, 10, id="and have the same maximum"),
    ],
)
def test_rest_grows_with_every_failure(world, unschedulable, errors, rest_s):
    info = entry(world, unschedulable=unschedulable, errors=errors)
    assert BackoffPolicy().expiration(info) == START + rest_s
    assert info.backoff_expiration == START + rest_s


def test_shifts_are_exact_in_nanoseconds(world):
    policy = BackoffPolicy(initial_s=0.003, max_s=0.5, whole_seconds=False)
    rests = [policy.expiration(entry(world, unschedulable=n, timestamp=0.0)) for n in range(1, 10)]
    assert rests == [0.003, 0.006, 0.012, 0.024, 0.048, 0.096, 0.192, 0.384, 0.5]


def test_a_pod_that_never_failed_does_not_rest(world):
    info = entry(world)
    assert not BackoffPolicy().is_backing_off(info, START)
    assert info.backoff_expiration is None


def test_a_maximum_of_zero_disables_resting(world):
    assert not BackoffPolicy(max_s=0).is_backing_off(entry(world, unschedulable=5), START)


def test_computed_expiry_is_reused(world):
    info = entry(world, unschedulable=1)
    info.backoff_expiration = START + 77
    assert BackoffPolicy().expiration(info) == START + 77


@pytest.mark.parametrize(
    ("whole_seconds", "after_s", "is_resting"),
    [
        pytest.param(True, 1.2, True, id="within the second of its expiry a pod still rests"),
        pytest.param(True, 1.69, True, id="to the very end of that second"),
        pytest.param(True, 1.7, False, id="and is free with the next whole second"),
        pytest.param(False, 0.99, True, id="without windows a pod rests to its expiry"),
        pytest.param(False, 1.0, True, id="that instant included"),
        pytest.param(False, 1.001, False, id="and is free right after it"),
    ],
)
def test_rest_ends_strictly_after_the_expiry(world, whole_seconds, after_s, is_resting):
    timestamp = START + 0.3  # rests until START + 1.3, in windows until the end of second 1
    info = entry(world, unschedulable=1, timestamp=timestamp)
    policy = BackoffPolicy(whole_seconds=whole_seconds)
    assert policy.is_backing_off(info, timestamp + after_s) is is_resting


def test_flush_releases_expired_pods_of_both_heaps_only(make_world):
    world = make_world(registered={"P": []})
    for name, plugins in (("rejected", ["P"]), ("broken", [])):
        world.add(name)
        world.fail(world.pop(name), *plugins)
    world.queue.activate({"x": world.known_pods["shop", "rejected"]})
    world.fail(world.pop("rejected"))  # an error: both are in the error heap now
    world.reject("fresh", "P")
    assert world.where("rejected") == world.where("broken") == "error backoff"
    world.advance(1.0)
    world.queue.flush_backoff_completed()
    assert world.where("broken") == "error backoff"
    world.advance(1.0)
    world.queue.flush_backoff_completed()
    assert world.where("broken") == "active"
    assert world.where("rejected") == "active"
    assert world.where("fresh") == "unschedulable"
    assert world.incoming()["active/BackoffComplete"] == 2


def rest(world, name, priority=0):
    """Get a pod into the plain backoff heap: rejected, and an event came while it was in flight."""
    world.add(name, priority=priority)
    info = world.pop(name)
    world.queue.activate({"x": info.pod_info.pod})
    world.fail(info, "P")
    return info


def test_pop_takes_active_pods_before_resting_ones_of_higher_priority(make_world):
    world = make_world(registered={"P": []})
    rest(world, "resting", priority=100)
    world.add("active", priority=1)
    assert world.where("resting") == "backoff"
    assert world.drain() == ["active", "resting"]
    assert world.incoming()["active/PopFromBackoffQ"] == 1


def test_pop_never_takes_a_pod_whose_attempt_broke(make_world):
    world = make_world(registered={"P": []})
    world.add("broken")
    world.fail(world.pop("broken"))
    assert world.where("broken") == "error backoff"
    assert world.pop() is None


def test_without_the_gate_pop_takes_active_pods_only(make_world):
    world = make_world(registered={"P": []}, pop_from_backoff_q=False)
    rest(world, "resting")
    assert world.where("resting") == "backoff"
    assert world.pop() is None


@pytest.mark.parametrize(
    ("gate", "order"),
    [
        pytest.param(
            True, ["high", "low"], id="within a window the more important pod comes first"
        ),
        pytest.param(False, ["low", "high"], id="without windows the one whose rest ends first"),
    ],
)
def test_order_of_rests_that_end_in_the_same_second(make_world, gate, order):
    world = make_world(registered={"P": []}, pop_from_backoff_q=gate)
    infos = []
    for name, priority in (("low", 1), ("high", 100)):
        world.advance(0.1)
        world.add(name, priority=priority)
        infos.append(world.pop(name))
    for info in infos:  # now both are in flight
        world.advance(0.1)
        world.queue.activate({"x": info.pod_info.pod})
        world.fail(info, "P")
    assert world.pending() == (0, 2, 0, 0)
    assert [
        info.pod_info.name for info in world.queue._backoff.pop_rested(world.clock.monotonic() + 5)
    ] == order


def test_updating_a_resting_pod_keeps_its_expiry(make_world):
    world = make_world(registered={"P": []})
    info = rest(world, "a")
    expiry = info.backoff_expiration
    world.advance(0.4)
    world.update(info.pod_info.pod, version="2")
    assert world.where("a") == "backoff"
    assert world.info("a").backoff_expiration == expiry
    assert world.info("a").pod_info.pod.metadata.labels == {"version": "2"}


def test_consecutive_errors_count_apart_from_rejections(make_world):
    world = make_world(registered={"P": []})
    world.add("a")
    seen = []
    for plugins in (["P"], ["P"], ["P"], [], [], ["P"]):
        info = world.pop() or world.queue.pop_specific_pod(world.known_pods["shop", "a"])
        world.fail(info, *plugins)
        world.where("a")
        expiry = world.queue._backoff.policy.expiration(info)
        seen.append(
            (info.unschedulable_count, info.consecutive_errors_count, expiry - info.timestamp)
        )
    assert seen == [(1, 0, 1), (2, 0, 2), (3, 0, 4), (3, 1, 1), (3, 2, 2), (4, 0, 8)]
