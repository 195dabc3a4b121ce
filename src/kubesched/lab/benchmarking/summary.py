"""Summarises repetitions into comparable figures: medians, spreads, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubesched.lab.benchmarking.results import Contestant, Mode, RunResult


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

    def median(self, value: Callable[[RunResult], float | None]) -> float | None:
        """Median over the repetitions that have the value."""
        values = [figure for run in self.runs if (figure := value(run)) is not None]
        return statistics.median(values) if values else None

    @property
    def pods_per_s(self) -> float:
        return self.median(lambda run: run.pods_per_s) or 0.0

    @property
    def spread(self) -> float:
        """Half the range between slowest and fastest repetition, as a share of the median."""
        values = [run.pods_per_s for run in self.runs]
        middle = self.pods_per_s
        return (max(values) - min(values)) / 2 / middle if middle else 0.0

    @property
    def cpu_ms_per_pod(self) -> float | None:
        return self.median(lambda run: run.scheduler.cpu_ms_per_pod if run.scheduler else None)

    @property
    def decision_us_per_pod(self) -> float | None:
        """End to end: CPU of decisions alone."""
        return self.median(lambda run: run.decision_cpu.us_per_pod if run.decision_cpu else None)

    @property
    def api_cpu_ms_per_pod(self) -> float | None:
        return self.median(lambda run: run.api_server.cpu_ms_per_pod if run.api_server else None)

    @property
    def memory_bytes(self) -> float | None:
        return self.median(
            lambda run: float(run.scheduler.max_rss_bytes) or None if run.scheduler else None
        )


def summarise(results: Iterable[RunResult]) -> list[Summary]:
    """Group results in order of first appearance."""
    groups: dict[tuple[str, str, str, str], list[RunResult]] = {}
    for result in results:
        groups.setdefault(Summary((result,)).key, []).append(result)
    return [Summary(tuple(runs)) for runs in groups.values()]


@dataclass(frozen=True, slots=True)
class Ratio:
    """One contestant compared with another on the same workload."""

    workload: str
    contestant: str
    reference: str
    throughput: float
    """Pods per second, ours divided by theirs."""
    cpu: float | None
    """Scheduler CPU per pod, ours divided by theirs."""
    sli_p99: float | None = None
    decision: float | None = None
    """CPU of decisions per pod, ours divided by theirs."""


def against(
    summaries: Sequence[Summary], reference: str = Contestant.KUBE_SCHEDULER
) -> list[Ratio]:
    """Compare all contestants with the reference, per workload."""
    ratios: list[Ratio] = []
    for summary in summaries:
        workload, contestant, mode, plane = summary.key
        other = next((s for s in summaries if s.key == (workload, reference, mode, plane)), None)
        if other is not None and contestant != reference:
            ratios.append(
                Ratio(
                    workload,
                    contestant,
                    reference,
                    _divided(summary.pods_per_s, other.pods_per_s) or 0.0,
                    _divided(summary.cpu_ms_per_pod, other.cpu_ms_per_pod),
                    _divided(_sli_p99(summary), _sli_p99(other)),
                    _divided(summary.decision_us_per_pod, other.decision_us_per_pod),
                )
            )
    return ratios


def _sli_p99(summary: Summary) -> float | None:
    return summary.median(lambda run: run.sli_ms.p99 if run.sli_ms else None)


def _divided(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


# -- tables ----------------------------------------------------------------------------------------


def table(summaries: Sequence[Summary]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells, without empty columns."""
    rows = [_cells(summary) for summary in summaries]
    headers = [name for name in _COLUMNS if any(row.get(name) for row in rows)]
    return headers, [[row.get(name, "") for name in headers] for row in rows]


_COLUMNS = (
    "WORKLOAD",
    "CONTESTANT",
    "NODES",
    "PODS",
    "PODS/S",
    "±",
    "WITH EVENTS",
    "DECISIONS/S",
    "DECISION P50",
    "DECISION P99",
    "ATTEMPT P50",
    "ATTEMPT P99",
    "SLI P50",
    "SLI P99",
    "CPU/POD",
    "DECISION CPU/POD",
    "API CPU/POD",
    "MEMORY",
    "ASKED",
)


def _cells(summary: Summary) -> dict[str, str]:
    first = summary.first
    core = first.mode is Mode.CORE
    return {
        "WORKLOAD": first.workload,
        "CONTESTANT": first.contestant,
        "NODES": f"{first.nodes:,}",
        "PODS": f"{first.pods:,}",
        "PODS/S": number(summary.pods_per_s),
        "±": f"{summary.spread:.0%}" if len(summary.runs) > 1 else "",
        "WITH EVENTS": _shown(
            summary.median(
                lambda run: run.end_to_end.pods_per_s_with_events if run.end_to_end else None
            )
        ),
        "DECISIONS/S": _shown(summary.median(lambda run: run.decisions_per_s or None)),
        "DECISION P50": _us(
            summary.median(lambda run: run.decision_us.p50 if run.decision_us else None)
        ),
        "DECISION P99": _us(
            summary.median(lambda run: run.decision_us.p99 if run.decision_us else None)
        ),
        "ATTEMPT P50": _ms(
            summary.median(lambda run: run.attempt_ms.p50 if run.attempt_ms else None)
        ),
        "ATTEMPT P99": _ms(
            summary.median(lambda run: run.attempt_ms.p99 if run.attempt_ms else None)
        ),
        "SLI P50": _ms(summary.median(lambda run: run.sli_ms.p50 if run.sli_ms else None)),
        "SLI P99": _ms(summary.median(lambda run: run.sli_ms.p99 if run.sli_ms else None)),
        "CPU/POD": (_us_of_ms if core else _ms)(summary.cpu_ms_per_pod),
        "DECISION CPU/POD": _us(summary.decision_us_per_pod),
        "API CPU/POD": _ms(summary.api_cpu_ms_per_pod),
        "MEMORY": _mib(summary.memory_bytes),
        "ASKED": f"{first.threshold:.0f}/s" if first.threshold is not None and not core else "",
    }


def ratio_table(ratios: Sequence[Ratio]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells, without empty columns."""
    columns = {
        "WORKLOAD": [ratio.workload for ratio in ratios],
        "PODS/S": [_times(ratio.throughput) for ratio in ratios],
        "CPU/POD": [_times(ratio.cpu) for ratio in ratios],
        "DECISION CPU/POD": [_times(ratio.decision) for ratio in ratios],
        "SLI P99": [_times(ratio.sli_p99) for ratio in ratios],
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    return list(filled), [list(row) for row in zip(*filled.values(), strict=True)]


def number(value: float) -> str:
    """Three significant digits, at most one decimal place."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _times(value: float | None) -> str:
    """Two decimal places, or as many as are significant."""
    return "" if value is None else f"{value:.2f}x" if value >= 0.1 else f"{value:.2g}x"


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)


def _us(value: float | None) -> str:
    return "" if value is None else f"{number(value)} µs"


def _us_of_ms(value: float | None) -> str:
    return "" if value is None else _us(value * 1000)


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f} ms" if value < 10 else f"{number(value)} ms"


def _mib(value: float | None) -> str:
    return "" if value is None else f"{value / 2**20:,.0f} MiB"
