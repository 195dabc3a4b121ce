"""Compares configurations over seeds.

A configuration's figures are means over the seeds with a 95 % interval (Student's t). Two
configurations are compared seed by seed: the same seed draws the same ties, so differences are
paired and their interval is narrower than the difference of two intervals. A difference is
significant if its interval excludes zero; one seed shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from kubesched.base.version import __version__
from kubesched.lab.traces.outcome import Outcome, Record
from kubesched.lab.traces.trace import Trace

DIGITS = 6

_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t quantiles for 1 to 30 degrees of freedom; 1.96 beyond is at most 4 % too narrow."""


class Interval(Record):
    """A mean and its 95 % interval; None with only one seed."""

    mean: float
    low: float | None
    high: float | None


class Difference(Interval):
    """Difference of one figure: other configuration minus the first, seed by seed."""

    shown: bool


class Configuration(Record):
    """One configuration over its seeds."""

    name: str
    seeds: list[int]
    figures: dict[str, Interval]


class Comparison(Record):
    """A configuration compared with the first one."""

    first: str
    other: str
    seeds: list[int]
    """Seeds that both have."""
    same_placements: bool
    """Whether every pod went to the same node under all of these seeds."""
    figures: dict[str, Difference]


class Failed(Record):
    """A cell without a result."""

    config: str
    seed: int
    error: str


class Report(Record):
    """The output of `kubesched replay -o json`."""

    trace: str
    format: str
    digest: str
    version: str
    notes: list[str]
    configurations: list[Configuration]
    comparisons: list[Comparison]
    failed: list[Failed]
    cells: list[Outcome]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of an outcome, its display, and which direction is better."""

    key: str
    title: str
    unit: str
    """`s`, `share` or `count`."""
    of: Callable[[Outcome], float | None]


def figures_of(outcomes: Sequence[Outcome]) -> list[Figure]:
    """The figures that these outcomes have, in report order."""
    resources = list(dict.fromkeys(name for outcome in outcomes for name in outcome.utilisation))
    figures = [
        Figure("placed", "placed", "count", attrgetter("placed")),
        Figure("unplaced", "unplaced", "count", attrgetter("unplaced")),
        Figure("waitP50", "wait p50", "s", attrgetter("waits.p50")),
        Figure("waitP90", "wait p90", "s", attrgetter("waits.p90")),
        Figure("waitP99", "wait p99", "s", attrgetter("waits.p99")),
        Figure("evictions", "evictions", "count", attrgetter("evictions")),
        Figure("nodesUsed", "nodes used, mean", "count", attrgetter("nodes_used")),
        Figure("nodesUsedMost", "nodes used, most", "count", attrgetter("nodes_used_most")),
        *(_of_resource("utilisation", name) for name in resources),
        *(_of_resource("fragmentation", name) for name in resources),
        Figure(
            "gpuFragmentation", "GPU fragmentation (FGD)", "share", attrgetter("gpu_fragmentation")
        ),
    ]
    return [figure for figure in figures if _values(figure, outcomes)]


def _of_resource(what: str, resource: str) -> Figure:
    def of(outcome: Outcome) -> float | None:
        values: dict[str, float] = getattr(outcome, what)
        return values.get(resource)

    return Figure(f"{what}/{resource}", f"{what} of {resource}", "share", of)


def make_report(trace: Trace, outcomes: Sequence[Outcome], failed: Sequence[Failed]) -> Report:
    """`outcomes` in the order of configurations and seeds."""
    figures = figures_of(outcomes)
    by_config: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_config.setdefault(outcome.config, []).append(outcome)
    names = list(by_config)
    return Report(
        trace=trace.name,
        format=trace.format,
        digest=trace.digest,
        version=__version__,
        notes=[
            *trace.notes,
            *dict.fromkeys(note for outcome in outcomes for note in outcome.notes),
        ],
        configurations=[_configuration(name, by_config[name], figures) for name in names],
        comparisons=[
            _comparison(by_config[names[0]], by_config[name], figures) for name in names[1:]
        ],
        failed=list(failed),
        cells=list(outcomes),
    )


def _configuration(
    name: str, outcomes: Sequence[Outcome], figures: Sequence[Figure]
) -> Configuration:
    return Configuration(
        name=name,
        seeds=[outcome.seed for outcome in outcomes],
        figures={
            figure.key: interval(_values(figure, outcomes))
            for figure in figures
            if _values(figure, outcomes)
        },
    )


def _comparison(
    first: Sequence[Outcome], other: Sequence[Outcome], figures: Sequence[Figure]
) -> Comparison:
    by_seed = {outcome.seed: outcome for outcome in first}
    pairs = [(by_seed[outcome.seed], outcome) for outcome in other if outcome.seed in by_seed]
    return Comparison(
        first=first[0].config,
        other=other[0].config,
        seeds=[b.seed for _, b in pairs],
        same_placements=all(a.placements == b.placements for a, b in pairs),
        figures={
            figure.key: difference(values)
            for figure in figures
            if (values := _paired(figure, pairs))
        },
    )


def _values(figure: Figure, outcomes: Iterable[Outcome]) -> list[float]:
    return [value for outcome in outcomes if (value := figure.of(outcome)) is not None]


def _paired(figure: Figure, pairs: Iterable[tuple[Outcome, Outcome]]) -> list[float]:
    differences = []
    for a, b in pairs:
        before, after = figure.of(a), figure.of(b)
        if before is not None and after is not None:
            differences.append(after - before)
    return differences


def interval(values: Sequence[float]) -> Interval:
    """The mean of at least one value, and its confidence interval."""
    count = len(values)
    mean = sum(values) / count
    if count == 1:
        return Interval(mean=round(mean, DIGITS), low=None, high=None)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    half = (_T_975[count - 2] if count <= 31 else 1.96) * math.sqrt(variance / count)
    return Interval(
        mean=round(mean, DIGITS), low=round(mean - half, DIGITS), high=round(mean + half, DIGITS)
    )


def difference(values: Sequence[float]) -> Difference:
    """Paired differences: significant if zero is outside their interval."""
    bounds = interval(values)
    shown = (
        bounds.low is not None and bounds.high is not None and (bounds.low > 0 or bounds.high < 0)
    )
    return Difference(mean=bounds.mean, low=bounds.low, high=bounds.high, shown=shown)


def to_json(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def shown_number(figure: Figure, value: float, *, signed: bool = False) -> str:
    """Format a figure: shares as percentages, seconds in a suitable unit."""
    size, unit = 1.0, ""
    if figure.unit == "share":
        size, unit = 0.01, " %"
    elif figure.unit == "s":
        steps = ((120, 1, " s"), (7200, 60, " min"), (172_800, 3600, " h"))
        known = ((size, unit) for limit, size, unit in steps if abs(value) < limit)
        size, unit = next(known, (86_400, " d"))
    rounded = round(value / size, 1) + 0.0  # never -0
    text = f"{rounded:,.1f}{unit}"
    text = text if figure.unit == "share" else text.replace(".0", "")
    return f"+{text}" if signed and rounded > 0 else text
