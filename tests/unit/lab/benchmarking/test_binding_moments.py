"""From bindings seen to figures: rates, pauses, stalls, and what a measured stretch adds up to."""

import asyncio

import pytest

from kubesched.api.meta import ObjectMeta
from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError
from kubesched.lab.benchmarking.end_to_end import observing
from kubesched.lab.benchmarking.end_to_end.decision_profile import DecisionProfile
from kubesched.lab.benchmarking.end_to_end.measuring import (
    ATTEMPT,
    MACHINE,
    SCHEDULER,
    SLI,
    UsageLog,
    measurement,
    rate,
)
from kubesched.lab.benchmarking.end_to_end.metric_pages import MetricPage
from kubesched.lab.benchmarking.end_to_end.observing import BindingObserver, BoundPod
from kubesched.lab.benchmarking.end_to_end.usage import Usage


def bound(name, namespace="ns"):
    return BoundPod(metadata=ObjectMeta(namespace=namespace, name=name))


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        pytest.param([], 0.0, id="nothing"),
        pytest.param([5.0], 0.0, id="a single binding has no rate"),
        pytest.param([3.0, 1.0, 2.0], 1.0, id="in any order"),
        pytest.param([10.0, 10.5, 11.0, 12.0], 1.5, id="between the first and the last"),
        pytest.param([7.0, 7.0], 0.0, id="bindings seen all at once have none either"),
    ],
)
def test_rates(moments, expected):
    assert rate(moments) == expected


def test_a_pod_counts_from_when_it_was_first_seen():
    clock = ManualClock(100.0)
    observer = BindingObserver(clock)
    observer.take(bound("a"))
    clock.advance(5)
    observer.take(bound("a"))
    observer.take(bound("b"))
    assert observer.moments == {"ns/a": 100.0, "ns/b": 105.0}


async def test_waiting_ends_with_the_last_binding():
    observer = BindingObserver(ManualClock())
    left = ["a", "b", "c"]

    def check():
        if left:
            observer.take(bound(left.pop()))

    observer.take(bound("other"))
    await observer.until_bound(["ns/a", "ns/b", "ns/c"], stall_s=60, check=check, what="pods")
    assert len(observer.moments) == 4


async def test_a_pod_that_is_bound_between_two_looks_is_noticed(monkeypatch):
    monkeypatch.setattr(observing, "FEW", 0)
    monkeypatch.setattr(observing, "_CHECK_S", 3600.0)
    observer = BindingObserver(ManualClock())
    asyncio.get_running_loop().call_soon(observer.take, bound("a"))
    async with asyncio.timeout(60):
        await observer.until_bound(["ns/a"], stall_s=60, check=lambda: None, what="pods")


async def test_a_stall_names_what_is_missing():
    clock = ManualClock()
    observer = BindingObserver(clock)
    observer.take(bound("a"))
    with pytest.raises(KubeschedError, match=r"the pods: 2 of 3 pods are still not bound.* ns/b"):
        await observer.until_bound(
            ["ns/a", "ns/c", "ns/b"],
            stall_s=10,
            check=lambda: (clock.advance(6), observer.take(bound("x")))[0],
            what="the pods",
        )


async def test_waiting_ends_when_it_makes_no_sense_any_more():
    observer = BindingObserver(ManualClock())

    def ended():
        raise RuntimeError("the scheduler ended")

    with pytest.raises(RuntimeError, match="ended"):
        await observer.until_bound(["ns/a"], stall_s=60, check=ended, what="pods")


def page(attempts, unschedulable, sli):
    return MetricPage(
        f'{ATTEMPT}_bucket{{result="scheduled",le="+Inf"}} {attempts}\n'
        f'{ATTEMPT}_count{{result="scheduled"}} {attempts}\n'
        f'{ATTEMPT}_bucket{{result="unschedulable",le="+Inf"}} {unschedulable}\n'
        f'{ATTEMPT}_count{{result="unschedulable"}} {unschedulable}\n'
        f'{SLI}_bucket{{le="0.1"}} {sli}\n{SLI}_bucket{{le="+Inf"}} {sli}\n'
        f"{SLI}_sum {sli / 20}\n{SLI}_count {sli}\n"
    )


def stretch(*, counts_from_first, profile=None):
    log = UsageLog(ManualClock(), {})
    log.moments = [0.0, 10.0, 11.0, 16.0]
    log.accounts = [
        {SCHEDULER: Usage(cpu, 1000), MACHINE: Usage(all_, 0)}
        for cpu, all_ in ((1.0, 10.0), (2.0, 12.0), (3.0, 14.0), (7.0, 21.0))
    ]
    return measurement(
        moments={"ns/a": 11.0, "ns/b": 12.0, "ns/c": 13.0},
        began_at=10.0,
        counts_from_first=counts_from_first,
        log=log,
        pages=(page(10, 1, 10), page(13, 2, 13)),
        events=3,
        settled_at=16.0,
        profile=profile or DecisionProfile(),
    )


def test_a_stretch_counts_bindings_and_everything_they_cause():
    result = stretch(counts_from_first=False)
    assert (result.pods, result.pods_per_s, result.seconds) == (3, 1.0, 2.0)
    seen = result.end_to_end
    assert (seen.events, seen.settled_s) == (3, 3.0)
    assert seen.pods_per_s_with_events == pytest.approx(3 / 5)
    assert (result.attempts, result.unschedulable_attempts) == (4, 1)
    assert result.scheduler.cpu_ms_per_pod == pytest.approx(5000 / 3)
    assert seen.etcd is None
    assert seen.others_cores == pytest.approx((9.0 - 5.0) / 6.0)
    assert result.sli_ms.p50 == pytest.approx(50.0)
    assert result.sli_ms.mean == pytest.approx(50.0)
    assert result.decision_cpu is None, "no profile was taken"


def test_decisions_are_the_profiles_share_of_what_the_kernel_counted():
    """The profile need not cover everything: there are gaps between the ones taken in a row."""
    profile = DecisionProfile(decisions_ns=400_000_000, all_ns=1_000_000_000)
    decision = stretch(counts_from_first=False, profile=profile).decision_cpu
    assert decision.us_per_pod == pytest.approx(0.4 * 5.0 * 1e6 / 3)
    assert decision.collector_us_per_pod == 0.0
    assert decision.samples == 40
    profile.collector_ns, profile.decisions_bytes, profile.all_bytes = 200_000_000, 3, 4
    decision = stretch(counts_from_first=False, profile=profile).decision_cpu
    assert decision.us_per_pod == pytest.approx(0.55 * 5.0 * 1e6 / 3)
    assert decision.collector_us_per_pod == pytest.approx(0.15 * 5.0 * 1e6 / 3)


def test_the_start_of_a_scheduler_is_not_counted_when_a_queue_is_drained():
    result = stretch(counts_from_first=True)
    assert result.scheduler.cpu_s == 4.0
    assert result.pods_per_s == 1.0
