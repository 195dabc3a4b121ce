"""What kube-scheduler's decisions cost: the part of its CPU profile that belongs to scheduling cycles.

All of a scheduler's CPU per pod includes its API traffic, its informers and its bindings. A
decision is the scheduling cycle: the snapshot, PreFilter to Score, PostFilter, assuming, Reserve
and Permit. Where the cycle works in parallel its goroutines have stacks of their own, which begin
in the parallelizer. Not counted: taking the pod from the queue, the binding cycle, event handlers
and evictions.

The garbage collector works in goroutines of its own for all that allocates memory. Decisions are
charged as much of its CPU as they have of the bytes allocated meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kubesched.api import pprof


class Profiled(Protocol):
    """A process that shows profiles of itself."""

    async def cpu_profile(self, seconds: int) -> bytes: ...

    async def allocations(self) -> bytes: ...


LONGEST_S = 8
"""A profile has a length that is fixed beforehand: short ones in a row end soon after what is
measured.
"""

_CYCLE = "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulingCycle"
_PARALLEL = "k8s.io/client-go/util/workqueue.ParallelizeUntil"
_EVICTION = "k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Executor)."
"""Victims are deleted in parallel as well, by requests to the API."""

_COLLECTOR = ("runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge")

SAMPLE_NS = 10_000_000
"""Go takes a hundred samples per second of CPU."""


def is_of_decision(stack: Sequence[str]) -> bool:
    """Whether a stack of kube-scheduler is part of a scheduling cycle."""
    return any(name.startswith((_CYCLE, _PARALLEL)) for name in stack) and not any(
        name.startswith(_EVICTION) for name in stack
    )


def is_of_collector(stack: Sequence[str]) -> bool:
    """Whether a stack is that of a goroutine of the garbage collector."""
    return any(name.startswith(_COLLECTOR) for name in stack)


@dataclass(slots=True)
class DecisionProfile:
    """Profiles of one measured stretch, added up."""

    decisions_ns: int = 0
    collector_ns: int = 0
    all_ns: int = 0
    decisions_bytes: int = 0
    all_bytes: int = 0
    is_over: bool = False
    """The stretch has ended: no further profile is taken."""

    async def take(self, process: Profiled) -> None:
        """Profile until the stretch is over and the profile that is being taken is complete."""
        self.add_allocations(await process.allocations(), sign=-1)
        seconds = 1
        while not self.is_over:
            self.add(await process.cpu_profile(seconds))
            seconds = min(2 * seconds, LONGEST_S)
        self.add_allocations(await process.allocations())

    def add(self, data: bytes) -> None:
        """Raises `ProtobufError`."""
        for stack, spent_ns in pprof.decode(data).items():
            self.all_ns += spent_ns
            if is_of_decision(stack):
                self.decisions_ns += spent_ns
            elif is_of_collector(stack):
                self.collector_ns += spent_ns

    def add_allocations(self, data: bytes, sign: int = 1) -> None:
        """Of a profile at the end, or with a `sign` of -1 at the beginning.

        Raises `ProtobufError`.
        """
        for stack, allocated in pprof.decode(data, pprof.ALLOCATED).items():
            self.all_bytes += sign * allocated
            if is_of_decision(stack):
                self.decisions_bytes += sign * allocated

    @property
    def share(self) -> float | None:
        """Of the process's CPU, the collector's left out; None if it was never seen at work."""
        return self.decisions_ns / self.all_ns if self.all_ns else None

    @property
    def collector_share(self) -> float:
        """Of the process's CPU: what the collector took for decisions."""
        if not self.all_ns or self.all_bytes <= 0:
            return 0.0
        return self.collector_ns / self.all_ns * self.decisions_bytes / self.all_bytes

    @property
    def samples(self) -> int:
        """Seen in decisions: the share is as precise as this number is large."""
        return self.decisions_ns // SAMPLE_NS
