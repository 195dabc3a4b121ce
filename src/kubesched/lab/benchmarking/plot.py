"""A report as one HTML page: throughput bars, throughput over time, and a table of all figures.

The page is self-contained, follows the reader's light or dark setting, and the table repeats the
data of every chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kubesched.base import charts
from kubesched.base.charts import WIDTH
from kubesched.lab.benchmarking.results import Report, RunResult
from kubesched.lab.benchmarking.summary import (
    Ratio,
    Summary,
    against,
    number,
    ratio_table,
    summarise,
    table,
)

BAR, GAP, FIGURE = 20, 10, 90
_TEXTS = ("WORKLOAD", "CONTESTANT")
MEANINGS = {
    "PODS/S": "pods scheduled per second, the median of the repetitions",
    "±": "half the distance between the slowest and the fastest repetition",
    "WITH EVENTS": "pods per second until the last event is written",
    "DECISIONS/S": "scheduling cycles per second of CPU time",
    "DECISION P50": "time of one scheduling cycle",
    "ATTEMPT P50": "scheduler_scheduling_attempt_duration_seconds",
    "SLI P50": "scheduler_pod_scheduling_sli_duration_seconds: from a pod's arrival to its binding",
    "CPU/POD": "CPU time of the scheduler per pod",
    "DECISION CPU/POD": "CPU time of scheduling cycles alone: "
    "kube-scheduler's from its CPU profile, ours in core mode",
    "API CPU/POD": "CPU time of the API server per pod",
    "MEMORY": "the scheduler's largest resident set",
    "ASKED": "what scheduler_perf asks for",
}


def page(report: Report) -> str:
    """The whole document."""
    summaries = summarise(report.results)
    colours = _colours(summaries)
    parts = ["<h1>Benchmark</h1>", f'<p class="note">{escape(_where(report))}</p>']
    if summaries:
        parts += ["<h2>Pods per second</h2>", charts.key(colours), _bars(summaries, colours)]
        if any(summary.spread for summary in summaries):
            parts.append(
                '<p class="note">Across the bars: from the slowest to the fastest repetition.</p>'
            )
        parts += _ratios(against(summaries))
        parts += ["<h2>Figures</h2>", _figures(summaries)]
        parts += _courses(summaries, colours)
    if report.refused:
        parts += ["<h2>Not run</h2><ul>"]
        parts += [
            f"<li>{escape(refusal.workload)}: {escape(refusal.reason)}</li>"
            for refusal in report.refused
        ]
        parts += ["</ul>"]
    return charts.document("kubesched bench", parts)


def _where(report: Report) -> str:
    env = report.environment
    parts = [
        f"kubesched {env.kubesched}",
        f"Python {env.python}",
        f"NumPy {env.numpy}",
        *([f"kube-scheduler {env.kube_scheduler}"] if env.kube_scheduler else []),
        *([f"control plane: {env.control_plane}"] if env.control_plane else []),
        f"{env.cores} cores, {env.machine}, {env.system}",
        report.started,
    ]
    return " · ".join(part for part in parts if part)


def _colours(summaries: Sequence[Summary]) -> dict[str, str]:
    contestants = dict.fromkeys(summary.first.contestant for summary in summaries)
    return charts.colours_of(list(contestants))


def _bars(summaries: Sequence[Summary], colours: dict[str, str]) -> str:
    """Per workload, a name line and one bar per contestant with the range of its repetitions."""
    highest = max(run.pods_per_s for summary in summaries for run in summary.runs) or 1.0
    room = WIDTH - FIGURE
    lines: list[str] = []
    y = 0
    previous = ""
    for summary in summaries:
        workload = summary.first.workload
        if workload != previous:
            y += GAP if previous else 0
            lines.append(f'<text x="0" y="{y + BAR - 6}">{escape(workload)}</text>')
            y += BAR
            previous = workload
        rates = [run.pods_per_s for run in summary.runs]
        slowest, middle, fastest = (
            max(1.0, rate / highest * room) for rate in (min(rates), summary.pods_per_s, max(rates))
        )
        lines.append(
            f'<rect x="0" y="{y + 2}" width="{middle:.1f}" height="{BAR - 4}" '
            f'fill="{colours[summary.first.contestant]}"/>'
        )
        if fastest - slowest >= 1.0:
            lines.append(charts.line(slowest, y + BAR / 2, fastest, y + BAR / 2, "range"))
        lines.append(
            f'<text x="{fastest + 6:.1f}" y="{y + BAR - 6}">{number(summary.pods_per_s)}</text>'
        )
        y += BAR
    return charts.svg(y + 4, lines, "Pods per second by workload and contestant")


def _ratios(ratios: Sequence[Ratio]) -> list[str]:
    """Contestants compared; empty if there is only one."""
    if not ratios:
        return []

    headers, rows = ratio_table(ratios)
    names = f"{ratios[0].contestant} beside {ratios[0].reference}"
    note = "More pods per second are better; of the others, less."
    return [
        f"<h2>{escape(names)}</h2>",
        charts.table(headers, rows, _TEXTS),
        f'<p class="note">{note}</p>',
    ]


def _figures(summaries: Sequence[Summary]) -> str:
    headers, rows = table(summaries)
    meanings = "".join(
        f"<dt>{escape(name.removesuffix(' P50'))}</dt><dd>{escape(MEANINGS[name])}</dd>"
        for name in headers
        if name in MEANINGS
    )
    return f"{charts.table(headers, rows, _TEXTS)}<dl>{meanings}</dl>"


def _courses(summaries: Sequence[Summary], colours: dict[str, str]) -> list[str]:
    """Throughput over time, one chart per workload with enough samples."""
    parts: list[str] = []
    for workload in dict.fromkeys(summary.first.workload for summary in summaries):
        runs = [
            run
            for summary in summaries
            if summary.first.workload == workload
            for run in summary.runs
            if len(run.series) > 2
        ]
        if runs:
            shown = {run.contestant: colours[run.contestant] for run in runs}
            parts += [
                f"<h2>{escape(workload)} over time</h2>",
                charts.key(shown),
                _course(runs, colours),
            ]
    return parts


def _course(runs: Sequence[RunResult], colours: dict[str, str]) -> str:
    """A step chart: each value holds for its whole interval."""
    axes = charts.Axes(
        max(run.series[-1].at_s for run in runs),
        max(sample.pods_per_s for run in runs for sample in run.series),
        x_title="seconds from the start of the measurement",
        y_title="pods/s",
    )
    for run in runs:
        points: list[tuple[float, float]] = []
        began = 0.0
        for sample in run.series:
            points += [(began, sample.pods_per_s), (sample.at_s, sample.pods_per_s)]
            began = sample.at_s
        axes.course(points, colours[run.contestant])
    return axes.svg("Pods per second over time, one line per repetition")
