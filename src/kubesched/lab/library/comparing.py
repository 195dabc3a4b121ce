"""Configurations compared on a trace: each with each seed, differences seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from os import PathLike
from typing import Any

import numpy as np

from kubesched.base.errors import KubeschedError
from kubesched.base.logs import silence
from kubesched.framework.interfaces import Plugin
from kubesched.insight.state.cluster import registry_with
from kubesched.lab.library.cluster import Config, configuration, gates_from
from kubesched.lab.library.objects import InputError
from kubesched.lab.library.tables import Table
from kubesched.lab.sweeps.executors import Executor, parse
from kubesched.lab.sweeps.store import ResultStore
from kubesched.lab.sweeps.sweep import run_sweep
from kubesched.lab.traces.cells import keyed, report_of
from kubesched.lab.traces.outcome import encode
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.reading import load_trace
from kubesched.lab.traces.report import Report
from kubesched.lab.traces.trace import Trace

_NAMELESS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


TraceSource = Trace | str | PathLike[str] | Sequence[str] | Callable[[int], Trace]
"""A trace, its files, or a function that makes one from a seed."""


class Compared:
    """Figures of the configurations; `report` is what `kubesched replay -o json` prints."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @property
    def figures(self) -> Table:
        """Mean and 95 % interval of every figure, by configuration."""
        rows = [
            (configuration.name, name, figure.mean, figure.low, figure.high)
            for configuration in self.report.configurations
            for name, figure in configuration.figures.items()
        ]
        return _table(("config", "figure"), rows)

    @property
    def differences(self) -> Table:
        """Each configuration minus the first, seed by seed; `shown` if 0 is outside."""
        rows = [
            (comparison.other, name, figure.mean, figure.low, figure.high, float(figure.shown))
            for comparison in self.report.comparisons
            for name, figure in comparison.figures.items()
        ]
        return _table(("config", "figure"), rows, shown=True)

    def __repr__(self) -> str:
        names = ", ".join(found.name for found in self.report.configurations)
        return f"Compared({names} on {self.report.trace})"

    def _repr_html_(self) -> str:
        shown = self.differences if self.report.comparisons else self.figures
        notes = "".join(f"<p>note: {escape(note)}</p>" for note in self.report.notes)
        return f"<p>{escape(repr(self))}</p>{shown._repr_html_()}{notes}"


def compare(
    configs: Sequence[Config] | Mapping[str, Config],
    trace: TraceSource,
    *,
    seeds: int | Sequence[int] = 1,
    plugins: Sequence[type[Plugin]] = (),
    feature_gates: str = "",
    executor: str = "local:1",
    results: str | None = None,
) -> Compared:
    """Play a trace under each configuration with each of `seeds` (so many, or these).

    A function as `trace` makes one from a seed. Unnamed configurations are called A, B and so on.
    `executor` is where to play: `local:N` processes, `dask:ADDRESS`; there, classes of `plugins`
    are imported by their module's name. `results` is a folder that keeps outcomes, so that they
    are not played again.

    Raises:
        ConfigError, TraceError: a configuration or the trace cannot be read.
        InputError: there is nothing to play.
        KubeschedError: a cell failed; the message names it.
    """
    is_list = isinstance(configs, list | tuple)
    named = dict(zip(_NAMELESS, configs, strict=False)) if is_list else configs
    if not isinstance(named, Mapping) or not named or len(named) != len(configs):
        raise InputError(f"compare: 1 to {len(_NAMELESS)} configurations are needed")
    numbers, where = seeds_of(seeds), executor_of(executor)
    source = trace if callable(trace) else trace_from(trace)
    traces = {seed: trace_from(source, seed) for seed in numbers}
    gates = gates_from(feature_gates)
    registry_with(plugins)
    cells = [
        Cell(name=name, config=configuration(config, gates), gates=gates, seed=seed)
        for name, config in named.items()
        for seed in numbers
    ]
    shared = (traces, tuple(plugins))
    work = [keyed(traces[cell.seed], cell) for cell in cells]
    found = run_sweep(_play, shared, work, where, ResultStore(results))
    report = report_of(traces[numbers[0]], cells, found)
    for failed in report.failed:
        raise KubeschedError(f"{failed.config} with seed {failed.seed}: {failed.error}")
    return Compared(report)


def trace_from(source: TraceSource, seed: int = 0) -> Trace:
    """Raises InputError if the source is none, TraceError if it cannot be read."""
    made: object = source(seed) if callable(source) else source
    if not isinstance(made, Trace) and isinstance(made, str | PathLike | Sequence):
        made = load_trace(*([made] if isinstance(made, str | PathLike) else made))
    if not isinstance(made, Trace):
        raise InputError(f"trace: {made!r} is no trace, file of one, or function that makes one")
    return made


def seeds_of(seeds: int | Sequence[int]) -> list[int]:
    """The seeds themselves. Raises InputError if there are none."""
    numbers = list(range(seeds) if isinstance(seeds, int) else seeds)
    if not numbers or {*map(type, numbers)} != {int} or len({*numbers}) != len(numbers):
        raise InputError(f"seeds {seeds}: a number from 1 on, or different seeds, are needed")
    return numbers


def executor_of(text: str) -> Executor:
    """Raises InputError if there is no such executor."""
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"executor {error}") from None


def _play(shared: tuple[dict[int, Trace], tuple[type[Plugin], ...]], cell: Cell) -> bytes:
    """The outcome of one cell; may run in another process."""
    silence()
    traces, plugins = shared
    trace = traces[cell.seed]
    return encode(play_trace(trace, cell, registry_with(plugins) if plugins else None))


def _table(
    names: tuple[str, ...], rows: Sequence[tuple[Any, ...]], *, shown: bool = False
) -> Table:
    numbers = ("mean", "low", "high", *(("shown",) if shown else ()))
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    for at, name in enumerate(numbers, len(names)):
        values = [np.nan if row[at] is None else row[at] for row in rows]
        columns[name] = np.array(values, dtype=np.float64)
    return Table(columns)
