"""Replays as cells of a sweep, and the report on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubesched.base.logs import silence
from kubesched.lab.sweeps.store import key_of_cell
from kubesched.lab.sweeps.sweep import Keyed, Result
from kubesched.lab.traces.measuring import SAMPLES
from kubesched.lab.traces.outcome import decode, encode
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.report import Failed, Report, make_report
from kubesched.lab.traces.trace import Trace


def play_cell(trace: Trace, cell: Cell) -> bytes:
    """The outcome of one cell as JSON; may run in another process."""
    # The outcome contains what the in-memory scheduler would log about pods.
    silence()
    return encode(play_trace(trace, cell))


def keyed(trace: Trace, cell: Cell) -> Keyed:
    """The cell under the hash of (inputs, configuration, seed, version)."""
    key = key_of_cell(
        trace=trace.digest,
        name=cell.name,
        config=repr(cell.config),
        gates=repr(cell.gates),
        seed=cell.seed,
        samples=SAMPLES,
    )
    return Keyed(key, cell)


def report_of(trace: Trace, cells: Sequence[Cell], results: Iterable[Result]) -> Report:
    """The report on a sweep; `results` are in the order of the cells."""
    outcomes, failed = [], []
    for cell, result in zip(cells, results, strict=True):
        if result.data is None:
            failed.append(Failed(config=cell.name, seed=cell.seed, error=result.error))
        else:
            outcomes.append(decode(result.data))
    return make_report(trace, outcomes, failed)
