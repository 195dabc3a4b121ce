"""One measured interval: from the first pod's creation to the last event about the pods.

* *rate*: number of bindings between the first and the last, divided by the time between them;
* *processor time*: of every process, until the scheduler has finished all work that the pods
  cause, so that deferred work counts as well;
* *settling*: time from the last binding to the last event, and the number of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubesched.base.clock import Clock
from kubesched.lab.benchmarking.end_to_end.decision_profile import DecisionProfile
from kubesched.lab.benchmarking.end_to_end.metric_pages import HistogramView, Labels, MetricPage
from kubesched.lab.benchmarking.end_to_end.planes import Plane, count_objects
from kubesched.lab.benchmarking.end_to_end.usage import ProcessGone, Usage, read_machine, read_usage
from kubesched.lab.benchmarking.results import (
    DecisionCpu,
    Percentiles,
    ProcessUse,
    percentiles,
)
from kubesched.lab.contestants import RunningScheduler
from kubesched.testing.control_plane import Process

EVENTS_PATH = "/apis/events.k8s.io/v1/events"

SCHEDULER = "scheduler"
DRIVER = "driver"
MACHINE = "machine"
"""CPU use of the whole machine, including processes that are not measured."""

QUIET_S = 2.0
"""All events count as written after this long without a new one."""
SETTLE_TIMEOUT_S = 120.0
_USAGE_S = 0.05
_COUNT_S = 0.25

ATTEMPT = "scheduler_scheduling_attempt_duration_seconds"
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
SLI = "scheduler_pod_scheduling_sli_duration_seconds"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The results of one interval."""

    pods: int
    rate: float
    """Pods per second between the first binding and the last."""
    seconds: float
    """Time from the first binding to the last."""
    events: int
    """Events that the API server received in the interval."""
    settled_s: float
    """Time from the last binding to the last event."""
    cpu_s: Mapping[str, float]
    """CPU by role, until all events are written."""
    cpu_seconds: float
    """The time over which `cpu_s` is counted."""
    peak_bytes: Mapping[str, int]
    attempt_ms: Percentiles | None
    sli_ms: Percentiles | None
    seen_ms: Percentiles | None
    """From sending a pod to seeing it bound in the watch; only for `as-created` pods."""
    attempts: int
    unschedulable_attempts: int
    profile: DecisionProfile

    @property
    def rate_with_events(self) -> float:
        """Pods per second, including the time for writing the events."""
        return self.pods / (self.seconds + self.settled_s) if self.seconds else 0.0

    @property
    def others_cores(self) -> float:
        """Average number of cores busy with other work."""
        parts = sum(cpu_s for role, cpu_s in self.cpu_s.items() if role != MACHINE)
        return max(0.0, self.cpu_s[MACHINE] - parts) / self.cpu_seconds if self.cpu_seconds else 0.0

    @property
    def decision_cpu(self) -> DecisionCpu | None:
        """The profile's share applied to the scheduler's CPU time from the kernel."""
        share = self.profile.share
        if share is None or not self.pods:
            return None
        all_us = self.cpu_s[SCHEDULER] * 1e6 / self.pods
        collector_us = self.profile.collector_share * all_us
        return DecisionCpu(
            us_per_pod=share * all_us + collector_us,
            collector_us_per_pod=collector_us,
            samples=self.profile.samples,
        )

    def use_of(self, role: str) -> ProcessUse | None:
        if role not in self.cpu_s:
            return None
        cpu_s = self.cpu_s[role]
        per_pod = cpu_s * 1000 / self.pods if self.pods else 0.0
        return ProcessUse(
            cpu_s=cpu_s, cpu_ms_per_pod=per_pod, max_rss_bytes=self.peak_bytes.get(role, 0)
        )


@dataclass(slots=True)
class UsageLog:
    """CPU readings of processes over time, from which any interval can be computed."""

    clock: Clock
    pids: Mapping[str, Callable[[], int]]
    """Role -> pid of its current process, or 0; schedulers start and stop."""
    moments: list[float] = field(default_factory=list)
    accounts: list[dict[str, Usage]] = field(default_factory=list)

    def note(self) -> None:
        account = {MACHINE: read_machine()}
        for role, find in self.pids.items():
            if pid := find():
                # Reported by the caller that waits for the dead process, with the end of its log.
                with contextlib.suppress(ProcessGone):
                    account[role] = read_usage(pid)
        self.moments.append(self.clock.monotonic())
        self.accounts.append(account)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_USAGE_S)
            self.note()

    def cpu_s(self, began_at: float) -> dict[str, float]:
        """CPU time of each role from the last reading before `began_at` to the last reading."""
        first, last = self._account_at(began_at), self.accounts[-1]
        nothing = Usage(0.0, 0)
        return {role: use.cpu_s - first.get(role, nothing).cpu_s for role, use in last.items()}

    def peak_bytes(self) -> dict[str, int]:
        peaks: dict[str, int] = {}
        for account in self.accounts:
            for role, usage in account.items():
                peaks[role] = max(peaks.get(role, 0), usage.resident_bytes)
        return peaks

    def _account_at(self, moment: float) -> dict[str, Usage]:
        return self.accounts[max(0, bisect_right(self.moments, moment) - 1)]


@contextlib.asynccontextmanager
async def usage_log(
    plane: Plane, scheduler: Callable[[], RunningScheduler | None], clock: Clock
) -> AsyncIterator[UsageLog]:
    def scheduler_pid() -> int:
        process = scheduler()
        return 0 if process is None else process.pid

    def pid_of(process: Process) -> Callable[[], int]:
        return lambda: process.pid

    servers = {role: pid_of(process) for role, process in plane.processes.items()}
    log = UsageLog(clock, {SCHEDULER: scheduler_pid, DRIVER: os.getpid, **servers})
    log.note()
    task = asyncio.ensure_future(log.run())
    try:
        yield log
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_settled(
    plane: Plane, clock: Clock, expected: int, before: int
) -> tuple[int, float]:
    """Wait until no more events are written; returns their number and when the last was seen.

    Returns early once every pod has its event. A scheduler may drop events, so the number is not a
    condition.
    """
    count, last = await count_objects(plane.client, EVENTS_PATH) - before, clock.monotonic()
    deadline = last + SETTLE_TIMEOUT_S
    while count < expected and clock.monotonic() < min(deadline, last + QUIET_S):
        await asyncio.sleep(_COUNT_S)
        plane.check()
        seen = await count_objects(plane.client, EVENTS_PATH) - before
        if seen != count:
            count, last = seen, clock.monotonic()
    return count, last


def measurement(
    *,
    moments: Mapping[str, float],
    created: Mapping[str, float],
    began_at: float,
    counts_from_first: bool,
    log: UsageLog,
    pages: tuple[MetricPage | None, MetricPage],
    events: int,
    settled_at: float,
    profile: DecisionProfile,
) -> Measurement:
    """Combine the observations of one measured interval.

    `counts_from_first`: excludes the scheduler's start, so CPU time counts from the first binding.
    """
    bound = sorted(moments.values())
    first, last = (bound[0], bound[-1]) if bound else (began_at, began_at)
    start = first if counts_from_first else began_at
    before, after = pages

    def observed(name: str, where: Labels | None = None) -> HistogramView:
        now = after.histogram(name, where)
        return now if before is None else now.since(before.histogram(name, where))

    waits = [1000 * (moments[key] - at) for key, at in created.items() if key in moments]
    return Measurement(
        pods=len(bound),
        rate=rate(bound),
        seconds=last - first,
        events=events,
        settled_s=max(0.0, settled_at - last),
        cpu_s=log.cpu_s(start),
        cpu_seconds=log.moments[-1] - start,
        peak_bytes=log.peak_bytes(),
        attempt_ms=milliseconds(observed(ATTEMPT)),
        sli_ms=milliseconds(observed(SLI)),
        seen_ms=percentiles(waits),
        attempts=round(observed(ATTEMPT).count),
        unschedulable_attempts=round(observed(ATTEMPT, {"result": "unschedulable"}).count),
        profile=profile,
    )


def rate(moments: Sequence[float]) -> float:
    """Bindings per second between the first and the last, in any order; 0 without elapsed time."""
    seconds = max(moments, default=0.0) - min(moments, default=0.0)
    return (len(moments) - 1) / seconds if seconds > 0 else 0.0


def milliseconds(view: HistogramView) -> Percentiles | None:
    """Percentiles of a histogram of seconds, from its buckets; None if it is empty."""
    if not view.count:
        return None
    at = {name: 1000 * view.quantile(q) for name, q in _QUANTILES.items()}
    return Percentiles(mean=1000 * view.mean, **at)
