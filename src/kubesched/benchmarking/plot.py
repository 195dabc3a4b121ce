"""A report as one HTML page: bars of throughput, its course over time, and all figures in a table.

The page needs nothing else: styles and drawings are in it, it follows the reader's light or dark setting, and every
drawing says the same as the table below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from kubesched.benchmarking.results import Report, RunResult
from kubesched.benchmarking.summary import Ratio, Summary, against, number, summarise, table

WIDTH = 980
BAR, GAP, FIGURE = 20, 10, 90
COURSE_HEIGHT = 240
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
"""Room around a course for its axes."""
COLOURS = ("var(--a)", "var(--b)", "var(--c)", "var(--d)")
MEANINGS = {
    "PODS/S": "pods scheduled per second, the median of the repetitions",
    "±": "half the distance between the slowest and the fastest repetition",
    "WITH EVENTS": "pods per second until the last event is written",
    "DECISIONS/S": "scheduling cycles per second of CPU time",
    "DECISION P50": "time of one scheduling cycle",
    "ATTEMPT P50": "scheduler_scheduling_attempt_duration_seconds",
    "SLI P50": "scheduler_pod_scheduling_sli_duration_seconds: from a pod's arrival to its binding",
    "CPU/POD": "CPU time of the scheduler per pod",
    "API CPU/POD": "CPU time of the API server per pod",
    "MEMORY": "the scheduler's largest resident set",
    "ASKED": "what scheduler_perf asks for",
}

_STYLE = """\
:root { color-scheme: light dark; --a: #1f63d6; --b: #c8590f; --c: #1f7a49; --d: #7d3fa8;
        --text: #1b1f24; --dim: #59636e; --line: #d8dce1; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --a: #6ea8ff; --b: #f0a35e; --c: #6fcf97; --d: #c79bf0;
          --text: #e6e8ea; --dim: #9aa4af; --line: #3a4149; --page: #14171a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 70rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
p.note, dl { color: var(--dim); font-size: 13px; margin: .3rem 0; } div.wide { overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; margin-top: .8rem; }
dd { margin: 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 0 .25rem .9rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid var(--line); }
th { white-space: normal; vertical-align: bottom; font-weight: 600; color: var(--dim); font-size: 11.5px; }
th:first-child, td:first-child, th.text, td.text { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
svg { width: 100%; min-width: 42rem; height: auto; } svg text { fill: var(--text); font-size: 13px; }
svg .dim { fill: var(--dim); font-size: 12px; } svg line { stroke: var(--line); }
svg .range { stroke: var(--text); stroke-width: 1.2; }
.key { margin: .2rem 0 .4rem; } .key span { margin-right: 1.4em; }
.key i { display: inline-block; width: .9em; height: .9em; margin-right: .45em; vertical-align: -1px; }
"""


def page(report: Report) -> str:
    """The whole document."""
    summaries = summarise(report.results)
    colours = _colours(summaries)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>kubesched bench</title><style>{_STYLE}</style></head><body>",
        "<h1>Benchmark</h1>",
        f'<p class="note">{escape(_where(report))}</p>',
    ]
    if summaries:
        parts += ["<h2>Pods per second</h2>", _key(colours), _bars(summaries, colours)]
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
    return "\n".join([*parts, "</body></html>", ""])


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
    contestants = list(dict.fromkeys(summary.first.contestant for summary in summaries))
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(contestants)}


def _key(colours: dict[str, str]) -> str:
    """Who has which colour; nothing where there is only one."""
    if len(colours) < 2:
        return ""
    items = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="key">{items}</p>'


def _bars(summaries: Sequence[Summary], colours: dict[str, str]) -> str:
    """A line with the workload's name, then a bar per contestant, with the range of its repetitions across its end."""
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
            lines.append(_line(slowest, y + BAR / 2, fastest, y + BAR / 2, "range"))
        lines.append(
            f'<text x="{fastest + 6:.1f}" y="{y + BAR - 6}">{number(summary.pods_per_s)}</text>'
        )
        y += BAR
    return _svg(y + 4, lines, "Pods per second by workload and contestant")


def _ratios(ratios: Sequence[Ratio]) -> list[str]:
    """One contestant beside the other; nothing where there is only one."""
    if not ratios:
        return []

    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}×"

    headers = ["WORKLOAD", "PODS/S", "CPU/POD", "SLI P99"]
    rows = [
        [ratio.workload, shown(ratio.throughput), shown(ratio.cpu), shown(ratio.sli_p99)]
        for ratio in ratios
    ]
    names = f"{ratios[0].contestant} beside {ratios[0].reference}"
    note = "More pods per second are better; of the others, less."
    return [f"<h2>{escape(names)}</h2>", _table(headers, rows), f'<p class="note">{note}</p>']


def _figures(summaries: Sequence[Summary]) -> str:
    headers, rows = table(summaries)
    meanings = "".join(
        f"<dt>{escape(name.removesuffix(' P50'))}</dt><dd>{escape(MEANINGS[name])}</dd>"
        for name in headers
        if name in MEANINGS
    )
    return f"{_table(headers, rows)}<dl>{meanings}</dl>"


def _courses(summaries: Sequence[Summary], colours: dict[str, str]) -> list[str]:
    """Throughput over time, one drawing per workload with enough of it."""
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
            parts += [f"<h2>{escape(workload)} over time</h2>", _key(shown), _course(runs, colours)]
    return parts


def _course(runs: Sequence[RunResult], colours: dict[str, str]) -> str:
    """Steps: each figure holds for its whole interval."""
    times = ticks(max(run.series[-1].at_s for run in runs), 8)
    rates = ticks(max(sample.pods_per_s for run in runs for sample in run.series), 4)
    wide, high = WIDTH - LEFT - RIGHT, COURSE_HEIGHT - TOP - BOTTOM
    floor = TOP + high

    def x(at_s: float) -> float:
        return LEFT + at_s / times[-1] * wide

    def y(rate: float) -> float:
        return floor - rate / rates[-1] * high

    lines = [_label(LEFT - 8, TOP - 18, "pods/s", "end")]
    for value in rates:
        lines.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value)))
        lines.append(_label(LEFT - 8, y(value) + 4, f"{value:,g}", "end"))
    for value in times:
        lines.append(_line(x(value), floor, x(value), floor + 4))
        lines.append(_label(x(value), floor + 18, f"{value:g}", "middle"))
    lines.append(_label(LEFT + wide / 2, floor + 36, "seconds from the start of the measurement"))
    for run in runs:
        points: list[str] = []
        began = 0.0
        for sample in run.series:
            level = f"{y(sample.pods_per_s):.1f}"
            points += [f"{x(began):.1f},{level}", f"{x(sample.at_s):.1f},{level}"]
            began = sample.at_s
        lines.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke-width="1.6" '
            f'stroke-opacity=".8" stroke="{colours[run.contestant]}"/>'
        )
    return _svg(COURSE_HEIGHT, lines, "Pods per second over time, one line per repetition")


def ticks(highest: float, wanted: int) -> list[float]:
    """Round values from 0 to at least the highest, about as many as wanted, in steps of 1, 2 or 5 times a power of ten."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    count = math.ceil(highest / step - 1e-9)
    return [float(f"{step * index:.12g}") for index in range(count + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<line{named} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="dim" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _svg(height: int, lines: Sequence[str], title: str) -> str:
    inner = "\n".join(lines)
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>\n{inner}\n</svg></div>'
    )


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    texts, text = ("WORKLOAD", "CONTESTANT"), ' class="text"'

    def cells(kind: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{kind}{text if name in texts else ''}>{escape(value)}</{kind}>"
            for name, value in zip(headers, values, strict=True)
        )

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{cells("th", headers)}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )
