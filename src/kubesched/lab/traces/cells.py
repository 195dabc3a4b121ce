"""Replays as cells of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kubesched.lab.sweeps.store import key_of_cell
from kubesched.lab.sweeps.sweep import Keyed
from kubesched.lab.traces.measuring import SAMPLES
from kubesched.lab.traces.player import Cell, is_own
from kubesched.lab.traces.report import RECORDED
from kubesched.lab.traces.trace import Trace


def keyed(trace: Trace, cell: Cell) -> Keyed:
    """The cell under the hash of (inputs, configuration, seed, version)."""
    key = key_of_cell(
        trace=trace.digest,
        name=cell.name,
        config=repr(cell.config),
        gates=repr(cell.gates),
        seed=cell.seed,
        samples=SAMPLES,
        as_recorded=cell.as_recorded,
    )
    return Keyed(key, cell)


def with_recorded(trace: Trace, cells: Sequence[Cell]) -> list[Cell]:
    """The cells, plus the unmodelled recording if it is among them.

    A single recording is played record by record. With other cells it is modelled like them, so
    that differences come from the configurations; the unmodelled recording is added for reference.
    """
    own = [cell for cell in cells if is_own(trace, cell)]
    if not own:
        return list(cells)
    if len(cells) == 1:
        return [replace(own[0], as_recorded=True)]
    return [replace(own[0], name=RECORDED, as_recorded=True), *cells]
