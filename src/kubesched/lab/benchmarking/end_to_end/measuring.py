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
    EndToEnd,
    Mode,
    Percentiles,
    ProcessUse,
    RunResult,
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
        first = self.accounts[max(0, bisect_right(self.moments, began_at) - 1)]
        last = self.accounts[-1]
        nothing = Usage(0.0, 0)
        return {role: use.cpu_s - first.get(role, nothing).cpu_s for role, use in last.items()}

    def peak_bytes(self) -> dict[str, int]:
        peaks: dict[str, int] = {}
        for account in self.accounts:
            for role, usage in account.items():
                peaks[role] = max(peaks.get(role, 0), usage.resident_bytes)
        return peaks


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
    began_at: float,
    counts_from_first: bool,
    log: UsageLog,
    pages: tuple[MetricPage | None, MetricPage],
    events: int,
    settled_at: float,
    profile: DecisionProfile,
) -> RunResult:
    """Combine the observations of one measured interval; the caller fills in what was run.

    `counts_from_first`: excludes the scheduler's start, so CPU time counts from the first binding.
    """
    bound = sorted(moments.values())
    pods = len(bound)
    first, last = (bound[0], bound[-1]) if bound else (began_at, began_at)
    seconds, settled_s = last - first, max(0.0, settled_at - last)
    start = first if counts_from_first else began_at
    cpu_s, peaks, cpu_seconds = log.cpu_s(start), log.peak_bytes(), log.moments[-1] - start
    others_s = 2 * cpu_s[MACHINE] - sum(cpu_s.values())
    before, after = pages

    def observed(name: str, where: Labels | None = None) -> HistogramView:
        now = after.histogram(name, where)
        return now if before is None else now.since(before.histogram(name, where))

    def use_of(role: str) -> ProcessUse | None:
        if role not in cpu_s:
            return None
        per_pod = cpu_s[role] * 1000 / pods if pods else 0.0
        return ProcessUse(
            cpu_s=cpu_s[role], cpu_ms_per_pod=per_pod, max_rss_bytes=peaks.get(role, 0)
        )

    return RunResult(
        workload="",
        contestant="",
        mode=Mode.END_TO_END,
        repeat=0,
        pods=pods,
        seconds=seconds,
        pods_per_s=rate(bound),
        decision_cpu=_decision_cpu(profile, cpu_s[SCHEDULER], pods),
        attempt_ms=milliseconds(observed(ATTEMPT)),
        sli_ms=milliseconds(observed(SLI)),
        attempts=round(observed(ATTEMPT).count),
        unschedulable_attempts=round(observed(ATTEMPT, {"result": "unschedulable"}).count),
        scheduler=use_of(SCHEDULER),
        api_server=use_of("kube-apiserver") or use_of("embedded"),
        end_to_end=EndToEnd(
            release="",
            events=events,
            settled_s=settled_s,
            pods_per_s_with_events=pods / (seconds + settled_s) if seconds else 0.0,
            etcd=use_of("etcd"),
            driver=use_of(DRIVER),
            others_cores=max(0.0, others_s) / cpu_seconds if cpu_seconds else 0.0,
        ),
    )


def _decision_cpu(profile: DecisionProfile, cpu_s: float, pods: int) -> DecisionCpu | None:
    """The profile's share applied to the scheduler's CPU time from the kernel."""
    if profile.share is None or not pods:
        return None
    all_us = cpu_s * 1e6 / pods
    collector_us = profile.collector_share * all_us
    return DecisionCpu(
        us_per_pod=profile.share * all_us + collector_us,
        collector_us_per_pod=collector_us,
        samples=profile.samples,
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
