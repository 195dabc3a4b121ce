"""Proves how a pod that Permit holds is let go, rejected or timed out, and how PreBind work is
called off.

Time is a list of timers fired by hand.
"""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.framework.status import Code
from kubesched.framework.waiting_pods import PodsInPreBind, WaitingPod, WaitingPods


class Timers:
    """A `call_later` that fires when told how much time has passed."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending: list[Timers.Timer] = []

    class Timer:
        def __init__(self, when, function):
            self.when = when
            self.function = function
            self.is_cancelled = False

        def cancel(self):
            self.is_cancelled = True

    def __call__(self, seconds, function):
        timer = self.Timer(self.now + seconds, function)
        self.pending.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in sorted(self.pending, key=lambda timer: timer.when):
            if timer.when <= self.now and not timer.is_cancelled:
                timer.is_cancelled = True
                timer.function()

    @property
    def running(self) -> int:
        return sum(not timer.is_cancelled for timer in self.pending)


def pod(uid: str = "u1") -> Pod:
    return Pod(metadata=ObjectMeta(name="web", namespace="shop", uid=uid))


def summary(waiting: WaitingPod) -> tuple[Code, str, str] | None:
    outcome = waiting.outcome
    return None if outcome is None else (outcome.code, outcome.plugin, outcome.message)


SUCCESS = (Code.SUCCESS, "", "")
HOLD = {"A": 10.0, "B": 60.0}

CASES = [
    pytest.param(HOLD, [], None, id="nothing happens and the pod waits"),
    pytest.param(
        HOLD, [("allow", "A")], None, id="one of two plugins allows and the pod still waits"
    ),
    pytest.param(
        HOLD, [("allow", "A"), ("allow", "B")], SUCCESS, id="all plugins allow and the pod goes on"
    ),
    pytest.param(
        HOLD,
        [("allow", "A"), ("allow", "A")],
        None,
        id="allowing twice does not count for the other plugin",
    ),
    pytest.param(
        HOLD, [("allow", "Z")], None, id="a plugin that did not ask to wait changes nothing"
    ),
    pytest.param({}, [("allow", "Z")], SUCCESS, id="with nothing pending any allow ends the wait"),
    pytest.param(
        HOLD,
        [("reject", "B", "no quorum")],
        (Code.UNSCHEDULABLE, "B", "no quorum"),
        id="one rejection ends the wait",
    ),
    pytest.param(
        HOLD,
        [("reject", "B", "first"), ("reject", "A", "second")],
        (Code.UNSCHEDULABLE, "B", "first"),
        id="only the first rejection counts",
    ),
    pytest.param(
        HOLD,
        [("reject", "B", "no"), ("allow", "A"), ("allow", "B")],
        (Code.UNSCHEDULABLE, "B", "no"),
        id="allowing after a rejection is too late",
    ),
    pytest.param(
        HOLD,
        [("allow", "A"), ("allow", "B"), ("reject", "A", "late")],
        SUCCESS,
        id="rejecting after everybody allowed is too late",
    ),
    pytest.param(
        HOLD,
        [("preempt", "DefaultPreemption", "preempted")],
        (Code.ERROR, "DefaultPreemption", "preempted"),
        id="preemption ends the wait with an error",
    ),
    pytest.param(
        HOLD,
        [("advance", 10.0)],
        (Code.UNSCHEDULABLE, "A", "rejected due to timeout after waiting 10s at plugin A"),
        id="the shortest timeout rejects the pod",
    ),
    pytest.param(
        HOLD,
        [("allow", "A"), ("advance", 30.0)],
        None,
        id="the timeout of a plugin that allowed does not fire",
    ),
    pytest.param(
        HOLD,
        [("allow", "A"), ("advance", 60.0)],
        (Code.UNSCHEDULABLE, "B", "rejected due to timeout after waiting 1m0s at plugin B"),
        id="the timeout of the plugin still pending does",
    ),
    pytest.param(
        {"A": 0.5},
        [("advance", 0.5)],
        (Code.UNSCHEDULABLE, "A", "rejected due to timeout after waiting 500ms at plugin A"),
        id="short timeouts are written in milliseconds",
    ),
    pytest.param(
        {"B": 5.0, "A": 0.0},
        [],
        (Code.UNSCHEDULABLE, "A", "rejected due to timeout after waiting 0s at plugin A"),
        id="a timeout of zero rejects at once",
    ),
    pytest.param(
        {"A": 7200.0},
        [("advance", 900.0)],
        (Code.UNSCHEDULABLE, "A", "rejected due to timeout after waiting 15m0s at plugin A"),
        id="no plugin can wait longer than fifteen minutes",
    ),
]


@pytest.mark.parametrize(("timeouts", "steps", "expected"), CASES)
def test_outcome_of_a_wait(timeouts, steps, expected):
    timers = Timers()
    waiting = WaitingPod(pod(), timeouts, timers)
    delivered = []
    waiting.add_done_callback(delivered.append)
    for step, *arguments in steps:
        (timers.advance if step == "advance" else getattr(waiting, step))(*arguments)
    assert summary(waiting) == expected
    assert delivered == ([] if expected is None else [waiting.outcome])
    if expected is not None:
        assert timers.running == 0, "a timer outlived the wait"


def test_reject_and_preempt_say_whether_they_were_in_time():
    waiting = WaitingPod(pod(), HOLD, Timers())
    assert waiting.reject("A", "no") is True
    assert waiting.reject("A", "no") is False
    assert waiting.preempt("A", "no") is False


def test_a_callback_added_after_the_end_is_called_at_once():
    waiting = WaitingPod(pod(), HOLD, Timers())
    waiting.reject("A", "no")
    delivered = []
    waiting.add_done_callback(delivered.append)
    assert delivered == [waiting.outcome]


def test_pending_plugins_are_those_that_have_not_allowed():
    waiting = WaitingPod(pod(), HOLD, Timers())
    assert waiting.pending_plugins() == ["A", "B"]
    waiting.allow("A")
    assert waiting.pending_plugins() == ["B"]


def test_the_map_holds_pods_by_uid_until_they_are_removed():
    pods = WaitingPods(Timers())
    first = pods.add(pod("u1"), HOLD)
    second = pods.add(pod("u2"), HOLD)
    assert (pods.get("u1"), pods.get("u2"), pods.get("u3")) == (first, second, None)
    for waiting in pods:  # removing while iterating is what a plugin that rejects everybody does
        pods.remove(waiting.pod.metadata.uid)
    assert len(pods) == 0
    pods.remove("u1")


def test_deleting_a_pod_ends_its_wait_without_a_plugin_to_blame():
    pods = WaitingPods(Timers())
    waiting = pods.add(pod("u1"), HOLD)
    assert pods.reject_waiting_pod("u1") is True
    assert summary(waiting) == (Code.UNSCHEDULABLE, "", "removed")
    assert pods.reject_waiting_pod("u2") is False


def test_deleting_a_pod_whose_wait_has_ended_changes_nothing():
    pods = WaitingPods(Timers())
    waiting = pods.add(pod("u1"), HOLD)
    for plugin in HOLD:
        waiting.allow(plugin)
    assert pods.reject_waiting_pod("u1") is False, "the caller has to free its room"
    assert summary(waiting)[0] is Code.SUCCESS


def test_pre_bind_can_be_called_off_until_it_is_finished():
    reasons = []
    entry = PodsInPreBind().add("u1", reasons.append)
    assert entry.cancel("preempted by shop/big") is True
    assert entry.cancel("again") is True
    assert reasons == ["preempted by shop/big"]
    assert entry.mark_prebound() == "preempted by shop/big"


def test_pre_bind_cannot_be_called_off_once_finished():
    reasons = []
    entry = PodsInPreBind().add("u1", reasons.append)
    assert entry.mark_prebound() is None
    assert entry.cancel("too late") is False
    assert reasons == []


def test_pods_in_pre_bind_are_found_by_uid():
    pods = PodsInPreBind()
    entry = pods.add("u1", lambda reason: None)
    assert pods.get("u1") is entry
    pods.remove("u1")
    pods.remove("u1")
    assert pods.get("u1") is None
    assert len(pods) == 0
