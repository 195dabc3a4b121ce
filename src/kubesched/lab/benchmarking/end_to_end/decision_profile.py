"""Cost of kube-scheduler's decisions: the share of its CPU profile in scheduling cycles.

Total CPU per pod includes API traffic, informers and bindings. A decision is the scheduling cycle:
snapshot, PreFilter to Score, PostFilter, assume, Reserve and Permit. Parallel parts of the cycle
run in goroutines whose stacks begin in the parallelizer. Not counted: the queue pop, the binding
cycle, event handlers and evictions.

The garbage collector runs in its own goroutines. Decisions are charged a share of its CPU in
proportion to the bytes they allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.api import pprof
from kubesched.lab.contestants import ALLOCATIONS, CPU_PROFILE, RunningScheduler

LONGEST_S = 8
"""A profile's length is fixed in advance; short ones end soon after the measured interval."""

_CYCLE = "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulingCycle"
_GROUP_CYCLE = "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).podGroupCycle"
_PARALLEL = "k8s.io/client-go/util/workqueue.ParallelizeUntil"
_EVICTION = "k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Executor)."
"""Victims are also deleted in parallel, by API requests."""

_COLLECTOR = ("runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge")

SAMPLE_NS = 10_000_000
"""CPU time per sample: Go takes 100 samples per second of CPU."""


def is_of_decision(stack: Sequence[str]) -> bool:
    """Whether a kube-scheduler stack is part of a scheduling cycle."""
    return any(name.startswith((_CYCLE, _GROUP_CYCLE, _PARALLEL)) for name in stack) and not any(
        name.startswith(_EVICTION) for name in stack
    )


def is_of_collector(stack: Sequence[str]) -> bool:
    """Whether a stack belongs to a garbage collector goroutine."""
    return any(name.startswith(_COLLECTOR) for name in stack)


@dataclass(slots=True)
class DecisionProfile:
    """The summed profiles of one measured interval."""

    decisions_ns: int = 0
    collector_ns: int = 0
    all_ns: int = 0
    decisions_bytes: int = 0
    all_bytes: int = 0
    is_over: bool = False
    """The interval has ended; no further profile is taken."""

    async def take(self, process: RunningScheduler) -> None:
        """Take profiles until the interval is over and the last profile is complete."""
        self.add_allocations(await process.get(ALLOCATIONS), sign=-1)
        seconds = 1
        while not self.is_over:
            self.add(await process.get(CPU_PROFILE, {"seconds": str(seconds)}))
            seconds = min(2 * seconds, LONGEST_S)
        self.add_allocations(await process.get(ALLOCATIONS))

    def add(self, data: bytes) -> None:
        """Raises `ProtobufError`."""
        for stack, spent_ns in pprof.decode(data).items():
            self.all_ns += spent_ns
            if is_of_decision(stack):
                self.decisions_ns += spent_ns
            elif is_of_collector(stack):
                self.collector_ns += spent_ns

    def add_allocations(self, data: bytes, sign: int = 1) -> None:
        """Add the final allocation profile (`sign` -1: the initial one). Raises `ProtobufError`."""
        for stack, allocated in pprof.decode(data, pprof.ALLOCATED).items():
            self.all_bytes += sign * allocated
            if is_of_decision(stack):
                self.decisions_bytes += sign * allocated

    @property
    def share(self) -> float | None:
        """Share of the process's CPU, without the collector; None if there are no samples."""
        return self.decisions_ns / self.all_ns if self.all_ns else None

    @property
    def collector_share(self) -> float:
        """The collector's CPU for decisions, as a share of the process's CPU."""
        if not self.all_ns or self.all_bytes <= 0:
            return 0.0
        return self.collector_ns / self.all_ns * self.decisions_bytes / self.all_bytes

    @property
    def samples(self) -> int:
        """Samples within decisions, which determine the precision of the share."""
        return self.decisions_ns // SAMPLE_NS
