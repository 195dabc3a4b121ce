"""Replays as cells of a sweep."""

from __future__ import annotations

import asyncio

from kubesched.logs import silence
from kubesched.sweeps.store import key_of_cell
from kubesched.sweeps.sweep import Keyed
from kubesched.traces.measuring import SAMPLES
from kubesched.traces.outcome import encode
from kubesched.traces.player import Cell, play_trace
from kubesched.traces.trace import Trace


def play_cell(trace: Trace, cell: Cell) -> bytes:
    """The outcome of one cell as JSON; in this process or another."""
    # What a scheduler in memory logs about pods is in the outcome.
    silence()
    return encode(asyncio.run(play_trace(trace, cell)))


def keyed(trace: Trace, cell: Cell) -> Keyed:
    """The cell under the hash of (inputs, configuration, seed, version)."""
    key = key_of_cell(
        trace=trace.digest,
        name=cell.name,
        config=repr(cell.config),
        gates=repr(cell.gates),
        seed=cell.seed,
        prices=dict(cell.prices) if cell.prices is not None else None,
        samples=SAMPLES,
    )
    return Keyed(key, cell)
