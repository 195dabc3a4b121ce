"""What kube-scheduler's decisions cost: the part of its CPU profile that belongs to scheduling cycles.

All of a scheduler's CPU per pod includes its API traffic, its informers and its bindings. A decision is the scheduling cycle:
the snapshot, PreFilter to Score, PostFilter, assuming, Reserve and Permit. Where the cycle works in parallel its
goroutines have stacks of their own, which begin in the parallelizer. Not counted: taking the pod from the queue, the binding
cycle, event handlers, evictions, and the garbage collector's own goroutines, which cannot be told apart by cause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kubesched.api import pprof

Fetch = Callable[[int], Awaitable[bytes]]
"""Takes a profile of so many seconds."""

LONGEST_S = 8
"""A profile has a length that is fixed beforehand: short ones in a row end soon after what is measured."""

_CYCLE = "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulingCycle"
_PARALLEL = "k8s.io/client-go/util/workqueue.ParallelizeUntil"
_EVICTION = "k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Executor)."
"""Victims are deleted in parallel as well, by requests to the API."""

SAMPLE_NS = 10_000_000
"""Go takes a hundred samples per second of CPU."""


def is_of_decision(stack: Sequence[str]) -> bool:
    """Whether a stack of kube-scheduler is part of a scheduling cycle."""
    return any(name.startswith((_CYCLE, _PARALLEL)) for name in stack) and not any(
        name.startswith(_EVICTION) for name in stack
    )


@dataclass(slots=True)
class DecisionProfile:
    """Profiles of one measured stretch, added up."""

    decisions_ns: int = 0
    all_ns: int = 0
    is_over: bool = False
    """The stretch has ended: no further profile is taken."""

    async def take(self, fetch: Fetch) -> None:
        """Profile until the stretch is over and the profile that is being taken is complete."""
        seconds = 1
        while not self.is_over:
            self.add(await fetch(seconds))
            seconds = min(2 * seconds, LONGEST_S)

    def add(self, data: bytes) -> None:
        """Raises `ProtobufError`."""
        for stack, spent_ns in pprof.decode(data).items():
            self.all_ns += spent_ns
            if is_of_decision(stack):
                self.decisions_ns += spent_ns

    @property
    def share(self) -> float | None:
        """Of the process's CPU; None if it was never seen at work."""
        return self.decisions_ns / self.all_ns if self.all_ns else None

    @property
    def samples(self) -> int:
        """Seen in decisions: the share is as precise as this number is large."""
        return self.decisions_ns // SAMPLE_NS
