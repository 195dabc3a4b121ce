"""A report as one HTML page: bars of throughput, its course over time, and all figures in a table.

The page needs nothing else: styles and drawings are in it, it follows the reader's light or dark setting, and every
drawing says the same as the table below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kubesched.benchmarking.results import Report, RunResult
from kubesched.benchmarking.summary import Summary, number, summarise, table

WIDTH = 860
BAR, GAP, FIGURE = 18, 8, 90
COURSE_HEIGHT = 160
COLOURS = ("var(--a)", "var(--b)", "var(--c)", "var(--d)")

_STYLE = """\
:root { color-scheme: light dark; --a: #2a6fdb; --b: #d2691e; --c: #2e8b57; --d: #8a4baf;
        --text: #1b1f24; --dim: #667; --line: #d5d9de; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --a: #6ea8ff; --b: #f0a35e; --c: #6fcf97; --d: #c79bf0;
          --text: #e6e8ea; --dim: #9aa4af; --line: #3a4149; --page: #14171a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.note { color: var(--dim); } div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; white-space: nowrap;
         border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
svg { width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; }
svg .dim { fill: var(--dim); } svg line { stroke: var(--line); }
.key i { display: inline-block; width: .9em; height: .9em; margin: 0 .4em 0 1em; }
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
        parts += ["<h2>Figures</h2>", _table(summaries)]
        parts += _courses(summaries, colours)
    if report.refused:
        parts += ["<h2>Not run</h2><ul>"]
        parts += [
            f"<li>{escape(each.workload)}: {escape(each.reason)}</li>" for each in report.refused
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
    contestants = list(dict.fromkeys(each.first.contestant for each in summaries))
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(contestants)}


def _key(colours: dict[str, str]) -> str:
    items = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="key">{items}</p>'


def _bars(summaries: Sequence[Summary], colours: dict[str, str]) -> str:
    """A line with the workload's name, then a bar per contestant."""
    highest = max(each.pods_per_s for each in summaries) or 1.0
    room = WIDTH - FIGURE
    lines: list[str] = []
    y = 0
    previous = ""
    for each in summaries:
        workload = each.first.workload
        if workload != previous:
            y += GAP if previous else 0
            lines.append(f'<text x="0" y="{y + BAR - 5}">{escape(workload)}</text>')
            y += BAR
            previous = workload
        length = max(1.0, each.pods_per_s / highest * room)
        lines.append(
            f'<rect x="0" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" '
            f'fill="{colours[each.first.contestant]}"/>'
        )
        lines.append(
            f'<text x="{length + 6:.1f}" y="{y + BAR - 5}">{number(each.pods_per_s)}</text>'
        )
        y += BAR
    return _svg(y + 4, lines, "Pods per second by workload and contestant")


def _courses(summaries: Sequence[Summary], colours: dict[str, str]) -> list[str]:
    """Throughput over time, one drawing per workload with enough of it."""
    parts: list[str] = []
    for workload in dict.fromkeys(each.first.workload for each in summaries):
        runs = [
            run
            for each in summaries
            if each.first.workload == workload
            for run in each.runs
            if len(run.series) > 2
        ]
        if runs:
            parts += [f"<h2>{escape(workload)} over time</h2>", _course(runs, colours)]
    return parts


def _course(runs: Sequence[RunResult], colours: dict[str, str]) -> str:
    end = max(run.series[-1].at_s for run in runs)
    highest = max(sample.pods_per_s for run in runs for sample in run.series) or 1.0
    left, top, bottom = 60, 10, COURSE_HEIGHT
    wide, high = WIDTH - left - 10, bottom - top
    lines = [
        f'<line x1="{left}" y1="{y:.1f}" x2="{WIDTH - 10}" y2="{y:.1f}"/>'
        f'<text class="dim" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        for value in (0.0, highest / 2, highest)
        for y in [bottom - value / highest * high]
    ]
    for run in runs:
        points = " ".join(
            f"{left + sample.at_s / end * wide:.1f},{bottom - sample.pods_per_s / highest * high:.1f}"
            for sample in run.series
        )
        lines.append(
            f'<polyline points="{points}" fill="none" stroke-width="1.5" '
            f'stroke="{colours[run.contestant]}"/>'
        )
    lines.append(f'<text class="dim" x="{left}" y="{bottom + 16}">0 s</text>')
    lines.append(
        f'<text class="dim" x="{WIDTH - 10}" y="{bottom + 16}" text-anchor="end">{end:.2f} s</text>'
    )
    return _svg(bottom + 22, lines, "Pods per second over time, one line per repetition")


def _svg(height: int, lines: Sequence[str], title: str) -> str:
    inner = "\n".join(lines)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>\n{inner}\n</svg>"
    )


def _table(summaries: Sequence[Summary]) -> str:
    headers, rows = table(summaries)
    head = "".join(f"<th>{escape(each)}</th>" for each in headers)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
