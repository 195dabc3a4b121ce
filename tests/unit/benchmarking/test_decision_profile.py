"""What of a CPU profile belongs to decisions, and profiles taken in a row for as long as something is measured."""

import asyncio

import pytest

from kubesched.api import pprof
from kubesched.benchmarking.end_to_end.decision_profile import DecisionProfile, is_of_decision

SCHEDULER = "k8s.io/kubernetes/pkg/scheduler"
CYCLE = (f"{SCHEDULER}.(*Scheduler).schedulingCycle", f"{SCHEDULER}.(*Scheduler).scheduleOnePod")
WORKER = ("k8s.io/client-go/util/workqueue.ParallelizeUntil.func1",)


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        pytest.param(("runtime.mallocgc", *CYCLE), True, id="in the cycle"),
        pytest.param(
            (f"{SCHEDULER}.(*Scheduler).findNodesThatPassFilters.func1", *WORKER),
            True,
            id="in parallel",
        ),
        pytest.param(
            (f"{SCHEDULER}/framework/preemption.(*Executor).prepareCandidateAsync.func3", *WORKER),
            False,
            id="evictions in parallel",
        ),
        pytest.param((f"{SCHEDULER}.(*Scheduler).bindingCycle",), False, id="binding"),
        pytest.param((f"{SCHEDULER}.(*Scheduler).scheduleOnePod",), False, id="around the cycle"),
        pytest.param(("runtime.gcBgMarkWorker",), False, id="garbage collection"),
    ],
)
def test_decisions_are_scheduling_cycles_and_what_they_do_in_parallel(stack, expected):
    assert is_of_decision(stack) == expected


def profile_of(**seen):
    stacks = {"cycle": CYCLE, "worker": WORKER, "other": ("net.read",)}
    samples = {
        tuple((name, "x.go", 1) for name in stacks[what]): count for what, count in seen.items()
    }
    return pprof.encode(samples, 0.0, 1.0, 100)


def test_the_share_of_decisions_is_taken_over_all_profiles():
    profile = DecisionProfile()
    assert profile.share is None
    profile.add(profile_of(cycle=10, other=60))
    profile.add(profile_of(worker=15, other=15))
    assert (profile.share, profile.samples) == (0.25, 25)


def test_profiles_are_taken_in_a_row_until_the_stretch_is_over():
    profile, lengths = DecisionProfile(), []

    async def fetch(seconds):
        lengths.append(seconds)
        profile.is_over = len(lengths) == 5
        return profile_of(cycle=1)

    asyncio.run(profile.take(fetch))
    assert lengths == [1, 2, 4, 8, 8]
    assert profile.samples == 5
