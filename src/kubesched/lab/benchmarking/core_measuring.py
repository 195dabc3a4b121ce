"""Measurements of core mode, and the figures computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from resource import getpagesize
from time import perf_counter, process_time

from kubesched.api.core_v1 import Pod
from kubesched.base.metrics.instruments import Family, Histogram
from kubesched.lab.benchmarking.core_cluster import has_labels
from kubesched.lab.benchmarking.results import (
    Contestant,
    DecisionCpu,
    Mode,
    Phase,
    ProcessUse,
    RunResult,
    percentiles,
)

PARTS = {
    "Enqueue": ("PreEnqueue", "Sign"),
    "Attempt": ("PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve", "Permit"),
    "Binding cycle": ("PreBindPreFlight", "WaitOnPermit", "PreBind", "Bind", "PostBind"),
}
"""The phase of each extension point."""

_STATM = Path("/proc/self/statm")


class Measurement:
    """One measured interval for pods of some namespaces with some labels.

    Only the scheduler's work between `begin` and `end` counts. Totals and single decisions are CPU
    time, which other programs on the machine do not distort. The scheduler times extension points
    with the wall clock, which is cheaper to read; these durations are scaled to CPU time.
    """

    def __init__(
        self,
        points: Family[Histogram],
        namespaces: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._points = points
        self._before = _point_totals(points)
        self._namespaces = frozenset(namespaces)
        self._labels = labels or {}
        self.decisions_s: list[float] = []
        """CPU time of each attempt."""
        self.cycles_s: float | None = None
        """CPU time of all scheduling cycles, if they were timed."""
        self.attempts_s = 0.0
        self.bindings_s = 0.0
        self.bindings = 0
        self.enqueued = 0
        self.enqueue_s = 0.0
        self.unschedulable = 0
        self.pods = 0
        self._cpu_s = 0.0
        self._wall_s = 0.0
        self._cpu_began = 0.0
        self._wall_began = 0.0

    def begin(self) -> None:
        self._cpu_began, self._wall_began = process_time(), perf_counter()

    def end(self) -> None:
        self._cpu_s += process_time() - self._cpu_began
        self._wall_s += perf_counter() - self._wall_began

    def note_bound(self, pod: Pod) -> None:
        if self._namespaces and pod.metadata.namespace not in self._namespaces:
            return
        if has_labels(pod, self._labels):
            self.pods += 1

    def result(
        self, workload: str, nodes: int, *, classes: bool, repeat: int, threshold: float | None
    ) -> RunResult:
        pods, wall_s = self.pods, max(self._wall_s, 1e-9)
        # On a shared machine, CPU time approximates the duration of an undisturbed run.
        scale = self._cpu_s / wall_s
        decision_s = sum(self.decisions_s)
        contestant = Contestant.KUBESCHED if classes else Contestant.KUBESCHED_NO_CLASSES
        return RunResult(
            workload=workload,
            contestant=contestant,
            mode=Mode.CORE,
            repeat=repeat,
            nodes=nodes,
            pods=pods,
            seconds=self._cpu_s,
            pods_per_s=pods / self._cpu_s if self._cpu_s else 0.0,
            decisions_per_s=len(self.decisions_s) / decision_s if decision_s else 0.0,
            decision_us=percentiles(seconds * 1e6 for seconds in self.decisions_s),
            decision_cpu=self._decision_cpu(pods),
            phases=tuple(self._phases(wall_s, scale)),
            attempts=len(self.decisions_s),
            unschedulable_attempts=self.unschedulable,
            scheduler=ProcessUse(
                cpu_s=self._cpu_s,
                cpu_ms_per_pod=self._cpu_s * 1e3 / max(1, pods),
                max_rss_bytes=_resident_bytes(),
            ),
            threshold=threshold,
        )

    def _decision_cpu(self, pods: int) -> DecisionCpu | None:
        if self.cycles_s is None or not pods:
            return None
        return DecisionCpu(us_per_pod=self.cycles_s * 1e6 / pods)

    def _phases(self, wall_s: float, scale: float) -> Iterator[Phase]:
        """Enqueueing, attempt and binding cycle, each followed by its extension points."""
        totals = {
            "Enqueue": (self.enqueued, self.enqueue_s),
            "Attempt": (len(self.decisions_s), self.attempts_s),
            "Binding cycle": (self.bindings, self.bindings_s),
        }
        for name, (count, seconds) in _point_totals(self._points).items():
            old_count, old_seconds = self._before.get(name, (0, 0.0))
            totals[name] = (count - old_count, seconds - old_seconds)
        for whole, parts in PARTS.items():
            for name in (whole, *parts):
                count, seconds = totals.get(name, (0, 0.0))
                if count:
                    yield Phase(
                        name=name,
                        count=count,
                        mean_us=seconds * scale * 1e6 / count,
                        share=seconds / wall_s,
                        part_of=whole if name in parts else "",
                    )


def _point_totals(points: Family[Histogram]) -> dict[str, tuple[int, float]]:
    """Count and seconds by extension point."""
    totals: dict[str, tuple[int, float]] = {}
    for (point, *_), cell in points.cells().items():
        count, seconds = totals.get(point, (0, 0.0))
        totals[point] = (count + cell.count, seconds + cell.sum)
    return totals


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text().split()[1]) * getpagesize()
    except OSError:  # not Linux
        return 0
