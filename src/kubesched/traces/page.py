"""The report of `kubesched replay` as one HTML page: courses over time, waits, figures, differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from kubesched import charts
from kubesched.traces.outcome import Outcome
from kubesched.traces.report import Comparison, Figure, Report, figures_of, shown_number

DAY_S, HOUR_S = 86_400.0, 3600.0


def page(report: Report) -> str:
    """The whole document."""
    figures = figures_of(report.cells)
    colours = charts.colours_of([each.name for each in report.configurations])
    parts = [
        "<h1>Replay</h1>",
        f'<p class="note">{escape(report.trace)} ({escape(report.format)}) · kubesched {escape(report.version)}</p>',
    ]
    if report.cells:
        parts += ["<h2>Figures</h2>", _figures(report, figures)]
        for comparison in report.comparisons:
            parts += _comparison(comparison, figures)
        parts += _courses(report.cells, colours)
    if report.failed:
        rows = [[each.config, str(each.seed), each.error] for each in report.failed]
        headers = ["CONFIGURATION", "SEED", "WHY"]
        parts += ["<h2>Failed</h2>", charts.table(headers, rows, headers)]
    parts += [f'<p class="note">note: {escape(note)}</p>' for note in report.notes]
    return charts.document("kubesched replay", parts)


def _figures(report: Report, figures: Sequence[Figure]) -> str:
    headers = ["FIGURE", *(each.name for each in report.configurations)]
    rows = []
    for figure in figures:
        cells = [figure.title]
        for configuration in report.configurations:
            found = configuration.figures.get(figure.key)
            text = "-" if found is None else shown_number(figure, found.mean)
            if found is not None and found.low is not None and found.high is not None:
                half = (found.high - found.low) / 2
                text += f" ± {shown_number(figure, half)}" if half else ""
            cells.append(text)
        rows.append(cells)
    seeds = max(len(each.seeds) for each in report.configurations)
    note = f"Means over {seeds} seeds and their 95 % intervals." if seeds > 1 else "One seed."
    return charts.table(headers, rows) + f'<p class="note">{note}</p>'


def _comparison(comparison: Comparison, figures: Sequence[Figure]) -> list[str]:
    title = f"<h2>{escape(comparison.other)} beside {escape(comparison.first)}</h2>"
    if comparison.same_placements:
        return [title, "<p>Nothing shown: every pod went to the same node.</p>"]
    rows = []
    for figure in figures:
        found = comparison.figures.get(figure.key)
        if found is None:
            continue
        between = "-"
        if found.low is not None and found.high is not None:
            low = shown_number(figure, found.low, signed=True)
            between = f"{low} to {shown_number(figure, found.high, signed=True)}"
        mean = shown_number(figure, found.mean, signed=True)
        rows.append([figure.title, mean, between, "shown" if found.shown else "nothing shown"])
    headers = ["FIGURE", "DIFFERENCE", "95 % INTERVAL", "VERDICT"]
    note = '<p class="note">Differences are taken seed by seed.</p>'
    return [title, charts.table(headers, rows, ["VERDICT"]), note]


def _courses(cells: Sequence[Outcome], colours: dict[str, str]) -> list[str]:
    """One line per configuration and seed."""
    parts: list[str] = []
    resources = list(dict.fromkeys(name for each in cells for name in each.series.utilisation))
    for name in resources:
        parts += _course(
            cells,
            colours,
            f"Utilisation of {name}",
            "%",
            lambda each, name=name: [100 * v for v in each.series.utilisation.get(name, ())],  # type: ignore[misc]  # bound per resource
        )
    parts += _course(cells, colours, "Pods waiting", "pods", lambda each: each.series.pending)
    parts += _course(cells, colours, "Nodes used", "nodes", lambda each: each.series.nodes_used)
    for name in resources:
        parts += _course(
            cells,
            colours,
            f"Fragmentation of {name}: of what is free, the share on nodes partly used",
            "%",
            lambda each, name=name: [100 * v for v in each.series.fragmentation.get(name, ())],  # type: ignore[misc]  # as above
        )
    parts += _course(
        cells,
        colours,
        "GPU fragmentation (FGD): of the free GPU capacity, what a pod of the trace could not use",
        "%",
        lambda each: [100 * v for v in each.series.gpu_fragmentation],
    )
    return parts + _waits(cells, colours)


def _course(
    cells: Sequence[Outcome],
    colours: dict[str, str],
    title: str,
    unit: str,
    of: Callable[[Outcome], Sequence[float]],
) -> list[str]:
    lines = [(each, of(each)) for each in cells if len(of(each)) > 1]
    if not lines:
        return []
    most_s = max(each.series.at_s[-1] for each, _ in lines)
    size, name = _time_unit(most_s)
    axes = charts.Axes(
        most_s / size,
        max(max(values) for _, values in lines),
        x_title=f"{name} from the beginning of the trace",
        y_title=unit,
    )
    for each, values in lines:
        points = [(at / size, value) for at, value in zip(each.series.at_s, values, strict=True)]
        axes.course(points, colours[each.config])
    return [f"<h2>{escape(title)}</h2>", charts.key(colours), axes.svg(title)]


def _waits(cells: Sequence[Outcome], colours: dict[str, str]) -> list[str]:
    longest = max(each.waits.longest for each in cells)
    size, name = _time_unit(longest)
    axes = charts.Axes(
        100.0, longest / size, x_title="% of the placed pods wait no longer", y_title=name
    )
    for each in cells:
        points = [(float(percent), wait / size) for percent, wait in enumerate(each.wait_quantiles)]
        axes.course(points, colours[each.config])
    title = "Waits from submission to binding"
    return [f"<h2>{title}</h2>", charts.key(colours), axes.svg(title)]


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * DAY_S:
        return DAY_S, "days"
    return (HOUR_S, "hours") if seconds > 3 * HOUR_S else (1.0, "seconds")
