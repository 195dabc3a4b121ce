"""Measurements of core mode, and the figures computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import getpagesize
from time import process_time

from kubesched.api.core_v1 import Pod
from kubesched.lab.benchmarking.core_cluster import has_labels
from kubesched.lab.benchmarking.results import (
    Contestant,
    DecisionCpu,
    Mode,
    ProcessUse,
    RunResult,
    percentiles,
)

_STATM = Path("/proc/self/statm")


class Measurement:
    """One measured interval for pods of some namespaces with some labels.

    Only the scheduler's work between `begin` and `end` counts, in CPU time, which other programs on
    the machine do not distort.
    """

    def __init__(
        self, namespaces: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> None:
        self._namespaces = frozenset(namespaces)
        self._labels = labels or {}
        self.decisions_s: list[float] = []
        """CPU time of each attempt."""
        self.cycles_s: float | None = None
        """CPU time of all scheduling cycles, if they were timed."""
        self.unschedulable = 0
        self.pods = 0
        self._cpu_s = 0.0
        self._cpu_began = 0.0

    def begin(self) -> None:
        self._cpu_began = process_time()

    def end(self) -> None:
        self._cpu_s += process_time() - self._cpu_began

    def note_bound(self, pod: Pod) -> None:
        if self._namespaces and pod.metadata.namespace not in self._namespaces:
            return
        if has_labels(pod, self._labels):
            self.pods += 1

    def result(
        self, workload: str, nodes: int, *, classes: bool, repeat: int, threshold: float | None
    ) -> RunResult:
        pods = self.pods
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


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text().split()[1]) * getpagesize()
    except OSError:  # not Linux
        return 0
