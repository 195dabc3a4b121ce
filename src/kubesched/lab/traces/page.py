"""The report of `kubesched replay` as an HTML page: charts, waits, figures, differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from kubesched.base import charts
from kubesched.lab.traces.outcome import Outcome
from kubesched.lab.traces.report import Comparison, Figure, Report, figures_of, shown_number

DAY_S, HOUR_S = 86_400.0, 3600.0


def page(report: Report) -> str:
    """The whole document."""
    figures = figures_of(report.cells)
    colours = charts.colours_of([configuration.name for configuration in report.configurations])
    parts = [
        "<h1>Replay</h1>",
        f'<p class="note">{escape(report.trace)} ({escape(report.format)})'
        f" · kubesched {escape(report.version)}</p>",
    ]
    if report.cells:
        parts += ["<h2>Figures</h2>", _figures(report, figures)]
        for comparison in report.comparisons:
            parts += _comparison(comparison, figures)
        parts += _courses(report.cells, colours)
    if report.failed:
        rows = [[cell.config, str(cell.seed), cell.error] for cell in report.failed]
        headers = ["CONFIGURATION", "SEED", "WHY"]
        parts += ["<h2>Failed</h2>", charts.table(headers, rows, headers)]
    parts += [f'<p class="note">note: {escape(note)}</p>' for note in report.notes]
    return charts.document("kubesched replay", parts)


def _figures(report: Report, figures: Sequence[Figure]) -> str:
    headers = ["FIGURE", *(configuration.name for configuration in report.configurations)]
    rows = []
    for figure in figures:
        cells = [figure.title]
        for configuration in report.configurations:
            measured = configuration.figures.get(figure.key)
            text = "-" if measured is None else shown_number(figure, measured.mean)
            if measured is not None and measured.low is not None and measured.high is not None:
                half = (measured.high - measured.low) / 2
                text += f" ± {shown_number(figure, half)}" if half else ""
            cells.append(text)
        rows.append(cells)
    seeds = max(len(configuration.seeds) for configuration in report.configurations)
    note = f"Means over {seeds} seeds and their 95 % intervals." if seeds > 1 else "One seed."
    return charts.table(headers, rows) + f'<p class="note">{note}</p>'


def _comparison(comparison: Comparison, figures: Sequence[Figure]) -> list[str]:
    title = f"<h2>{escape(comparison.other)} beside {escape(comparison.first)}</h2>"
    if comparison.same_placements:
        return [title, "<p>Nothing shown: every pod went to the same node.</p>"]
    rows = []
    for figure in figures:
        measured = comparison.figures.get(figure.key)
        if measured is None:
            continue
        between = "-"
        if measured.low is not None and measured.high is not None:
            low = shown_number(figure, measured.low, signed=True)
            between = f"{low} to {shown_number(figure, measured.high, signed=True)}"
        mean = shown_number(figure, measured.mean, signed=True)
        rows.append([figure.title, mean, between, "shown" if measured.shown else "nothing shown"])
    headers = ["FIGURE", "DIFFERENCE", "95 % INTERVAL", "VERDICT"]
    note = '<p class="note">Differences are taken seed by seed.</p>'
    return [title, charts.table(headers, rows, ["VERDICT"]), note]


def _courses(cells: Sequence[Outcome], colours: dict[str, str]) -> list[str]:
    """One line per configuration and seed."""
    parts: list[str] = []
    resources = list(dict.fromkeys(name for cell in cells for name in cell.series.utilisation))
    for name in resources:
        parts += _course(
            cells,
            colours,
            f"Utilisation of {name}",
            "%",
            lambda cell, name=name: [100 * v for v in cell.series.utilisation.get(name, ())],  # type: ignore[misc]  # bound per resource
        )
    parts += _course(cells, colours, "Pods waiting", "pods", lambda cell: cell.series.pending)
    parts += _course(cells, colours, "Nodes used", "nodes", lambda cell: cell.series.nodes_used)
    for name in resources:
        parts += _course(
            cells,
            colours,
            f"Fragmentation of {name}: of what is free, the share on nodes partly used",
            "%",
            lambda cell, name=name: [100 * v for v in cell.series.fragmentation.get(name, ())],  # type: ignore[misc]  # as above
        )
    parts += _course(
        cells,
        colours,
        "GPU fragmentation (FGD): of the free GPU capacity, what a pod of the trace could not use",
        "%",
        lambda cell: [100 * v for v in cell.series.gpu_fragmentation],
    )
    return parts + _waits(cells, colours)


def _course(
    cells: Sequence[Outcome],
    colours: dict[str, str],
    title: str,
    unit: str,
    of: Callable[[Outcome], Sequence[float]],
) -> list[str]:
    lines = [(cell, of(cell)) for cell in cells if len(of(cell)) > 1]
    if not lines:
        return []
    most_s = max(cell.series.at_s[-1] for cell, _ in lines)
    size, name = _time_unit(most_s)
    axes = charts.Axes(
        most_s / size,
        max(max(values) for _, values in lines),
        x_title=f"{name} from the beginning of the trace",
        y_title=unit,
    )
    for cell, values in lines:
        points = [(at / size, value) for at, value in zip(cell.series.at_s, values, strict=True)]
        axes.course(points, colours[cell.config])
    return [f"<h2>{escape(title)}</h2>", charts.key(colours), axes.svg(title)]


def _waits(cells: Sequence[Outcome], colours: dict[str, str]) -> list[str]:
    longest = max(cell.waits.longest for cell in cells)
    size, name = _time_unit(longest)
    axes = charts.Axes(
        100.0, longest / size, x_title="% of the placed pods wait no longer", y_title=name
    )
    for cell in cells:
        points = [(float(percent), wait / size) for percent, wait in enumerate(cell.wait_quantiles)]
        axes.course(points, colours[cell.config])
    title = "Waits from submission to binding"
    return [f"<h2>{title}</h2>", charts.key(colours), axes.svg(title)]


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * DAY_S:
        return DAY_S, "days"
    return (HOUR_S, "hours") if seconds > 3 * HOUR_S else (1.0, "seconds")
