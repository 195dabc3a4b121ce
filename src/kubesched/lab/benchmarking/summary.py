"""Summarises repetitions into comparable figures: medians, spreads, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubesched.lab.benchmarking.results import Contestant, Mode, RunResult

Table = tuple[list[str], list[list[str]]]
"""Headers and cells, without empty columns."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All repetitions of one workload by one contestant."""

    runs: tuple[RunResult, ...]

    @property
    def first(self) -> RunResult:
        return self.runs[0]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Summaries with equal keys are comparable."""
        first = self.first
        return first.workload, first.contestant, first.mode.value, first.control_plane

    def median(self, figure: str) -> float | None:
        """Median over the repetitions that have this figure, such as `sli_ms.p99`."""
        values = [value for run in self.runs if (value := _value(run, figure))]
        return statistics.median(values) if values else None

    @property
    def pods_per_s(self) -> float:
        return self.median("pods_per_s") or 0.0

    @property
    def spread(self) -> float:
        """Half the range between slowest and fastest repetition, as a share of the median."""
        values = [run.pods_per_s for run in self.runs]
        middle = self.pods_per_s
        return (max(values) - min(values)) / 2 / middle if middle else 0.0


def summarise(results: Iterable[RunResult]) -> list[Summary]:
    """Group results in order of first appearance."""
    groups: dict[tuple[str, str, str, str], list[RunResult]] = {}
    for result in results:
        groups.setdefault(Summary((result,)).key, []).append(result)
    return [Summary(tuple(runs)) for runs in groups.values()]


# -- figures ---------------------------------------------------------------------------------------


def _value(run: RunResult, figure: str) -> float | None:
    value: Any = run
    for name in figure.split("."):
        value = getattr(value, name) if value is not None else None
    return value  # type: ignore[no-any-return]  # a number


def number(value: float) -> str:
    """Three significant digits, at most one decimal place."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _us(value: float) -> str:
    return f"{number(value)} µs"


def _ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 10 else f"{number(value)} ms"


def _mib(value: float) -> str:
    return f"{value / 2**20:,.0f} MiB"


_CPU = "scheduler.cpu_ms_per_pod"
_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("WITH EVENTS", "end_to_end.pods_per_s_with_events", number),
    ("DECISIONS/S", "decisions_per_s", number),
    ("DECISION P50", "decision_us.p50", _us),
    ("DECISION P99", "decision_us.p99", _us),
    ("ATTEMPT P50", "attempt_ms.p50", _ms),
    ("ATTEMPT P99", "attempt_ms.p99", _ms),
    ("SLI P50", "sli_ms.p50", _ms),
    ("SLI P99", "sli_ms.p99", _ms),
    ("CPU/POD", _CPU, _ms),
    ("DECISION CPU/POD", "decision_cpu.us_per_pod", _us),
    ("API CPU/POD", "api_server.cpu_ms_per_pod", _ms),
    ("MEMORY", "scheduler.max_rss_bytes", _mib),
)
_RATIOS = {
    "PODS/S": "pods_per_s",
    "CPU/POD": _CPU,
    "DECISION CPU/POD": "decision_cpu.us_per_pod",
    "SLI P99": "sli_ms.p99",
}


# -- tables ----------------------------------------------------------------------------------------


def table(summaries: Sequence[Summary]) -> Table:
    """The figures of all contestants."""
    return _filled([_cells(summary) for summary in summaries])


def _cells(summary: Summary) -> dict[str, str]:
    first = summary.first
    core = first.mode is Mode.CORE
    cells = {
        "WORKLOAD": first.workload,
        "CONTESTANT": first.contestant,
        "NODES": f"{first.nodes:,}",
        "PODS": f"{first.pods:,}",
        "PODS/S": number(summary.pods_per_s),
        "±": f"{summary.spread:.0%}" if len(summary.runs) > 1 else "",
    }
    for name, figure, shown in _FIGURES:
        value = summary.median(figure)
        cells[name] = "" if value is None else shown(value)
        if core and figure == _CPU and value is not None:
            cells[name] = _us(value * 1000)
    cells["ASKED"] = f"{first.threshold:.0f}/s" if first.threshold is not None and not core else ""
    return cells


def ratio_table(summaries: Sequence[Summary]) -> Table:
    """Figures divided by kube-scheduler's on the same workload and plane."""
    rows = []
    for summary in summaries:
        workload, contestant, mode, plane = summary.key
        theirs = (workload, str(Contestant.KUBE_SCHEDULER), mode, plane)
        other = next((each for each in summaries if each.key == theirs), None)
        if other is None or contestant == Contestant.KUBE_SCHEDULER:
            continue
        cells = {"WORKLOAD": workload}
        for name, figure in _RATIOS.items():
            ours, their = summary.median(figure), other.median(figure)
            cells[name] = _times(ours / their) if ours is not None and their else ""
        rows.append(cells)
    return _filled(rows)


def _times(value: float) -> str:
    """Two decimal places, or as many as are significant."""
    return f"{value:.2f}x" if value >= 0.1 else f"{value:.2g}x"


def _filled(rows: Sequence[dict[str, str]]) -> Table:
    headers = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    return headers, [[row[name] for name in headers] for row in rows]
