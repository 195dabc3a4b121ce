"""Prints the report of `kubesched replay` as text."""

from __future__ import annotations

from kubesched.app.cli import terminal
from kubesched.lab.traces.report import (
    Comparison,
    Configuration,
    Difference,
    Figure,
    Report,
    figures_of,
    shown_number,
)


def print_report(report: Report) -> None:
    """The figures of every configuration, then the differences to the first, then failures."""
    terminal.heading(f"{report.trace} ({report.format})")
    figures = figures_of(report.cells)
    if report.configurations:
        headers = ["", *(_named(configuration) for configuration in report.configurations)]
        rows = [
            [
                figure.title,
                *(_value(figure, configuration) for configuration in report.configurations),
            ]
            for figure in figures
        ]
        terminal.table(headers, rows)
    for comparison in report.comparisons:
        _print_comparison(comparison, figures)
    for failed in report.failed:
        print()
        terminal.sentence(f"failed: {failed.config}, seed {failed.seed}: {failed.error}")
    terminal.notes(report.notes)


def _named(configuration: Configuration) -> str:
    count = len(configuration.seeds)
    return f"{configuration.name} ({count} seeds)" if count > 1 else configuration.name


def _value(figure: Figure, configuration: Configuration) -> str:
    measured = configuration.figures.get(figure.key)
    if measured is None:
        return "-"
    text = shown_number(figure, measured.mean)
    if measured.low is None or measured.high is None or measured.low == measured.high:
        return text
    return f"{text} ± {shown_number(figure, (measured.high - measured.low) / 2)}"


def _print_comparison(comparison: Comparison, figures: list[Figure]) -> None:
    print()
    terminal.heading(f"{comparison.other} beside {comparison.first}")
    if comparison.same_placements:
        terminal.sentence("Nothing shown: every pod went to the same node.")
        return
    rows = [
        [figure.title, *_difference(figure, comparison.figures[figure.key])]
        for figure in figures
        if figure.key in comparison.figures
    ]
    terminal.table(["", "DIFFERENCE", "95 % INTERVAL", ""], rows)
    if len(comparison.seeds) < 2:
        terminal.sentence("One seed shows nothing about others: use --seeds.")


def _difference(figure: Figure, found: Difference) -> tuple[str, str, str]:
    mean = shown_number(figure, found.mean, signed=True)
    if found.low is None or found.high is None:
        return mean, "-", "nothing shown"
    low = shown_number(figure, found.low, signed=True)
    high = shown_number(figure, found.high, signed=True)
    verdict = "shown" if found.shown else "nothing shown"
    return mean, f"{low} to {high}", verdict
