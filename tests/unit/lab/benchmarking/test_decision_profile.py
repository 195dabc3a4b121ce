"""What of a CPU profile belongs to decisions, and profiles taken in a row for as long as something
is measured.
"""

import asyncio

import pprof_profiles
import pytest

from kubesched.api import pprof
from kubesched.lab.benchmarking.end_to_end.decision_profile import DecisionProfile, is_of_decision
from kubesched.lab.contestants import ALLOCATIONS

SCHEDULER = "k8s.io/kubernetes/pkg/scheduler"
CYCLE = (f"{SCHEDULER}.(*Scheduler).schedulingCycle", f"{SCHEDULER}.(*Scheduler).scheduleOnePod")
WORKER = ("k8s.io/client-go/util/workqueue.ParallelizeUntil.func1",)
COLLECTOR = ("runtime.gcDrain", "runtime.gcBgMarkWorker.func2", "runtime.gcBgMarkWorker")


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


STACKS = {"cycle": CYCLE, "worker": WORKER, "other": ("net.read",), "collector": COLLECTOR}


def profile_of(**seen):
    """A sample of CPU time is 10 ms."""
    return pprof_profiles.profile_of(
        {STACKS[what]: 10_000_000 * count for what, count in seen.items()}
    )


def allocations_of(**seen):
    """Bytes by cause, in a profile of this one kind."""
    samples = {STACKS[what]: allocated for what, allocated in seen.items()}
    return pprof_profiles.profile_of(samples, pprof.ALLOCATED)


def test_the_share_of_decisions_is_taken_over_all_profiles():
    profile = DecisionProfile()
    assert profile.share is None
    profile.add(profile_of(cycle=10, other=60))
    profile.add(profile_of(worker=15, other=15))
    assert (profile.share, profile.samples) == (0.25, 25)


def test_the_collector_is_charged_by_bytes_allocated_meanwhile():
    profile = DecisionProfile()
    assert profile.collector_share == 0.0
    profile.add(profile_of(cycle=40, collector=20, other=40))
    assert profile.collector_share == 0.0, "nothing is known of allocations"
    profile.add_allocations(allocations_of(cycle=1_000, other=9_000), sign=-1)
    profile.add_allocations(allocations_of(cycle=1_300, worker=300, other=9_200))
    assert profile.share == pytest.approx(0.4)
    assert profile.collector_share == pytest.approx(0.2 * 0.75)


def test_profiles_are_taken_in_a_row_until_the_stretch_is_over():
    profile, lengths = DecisionProfile(), []

    class Process:
        asked = 0

        async def get(self, path, query=None):
            if path == ALLOCATIONS:
                Process.asked += 1
                return allocations_of(cycle=Process.asked)
            lengths.append(int(query["seconds"]))
            profile.is_over = len(lengths) == 5
            return profile_of(cycle=1, collector=1)

    asyncio.run(profile.take(Process()))
    assert lengths == [1, 2, 4, 8, 8]
    assert profile.samples == 5
    assert Process.asked == 2
    assert profile.collector_share == pytest.approx(0.5)
