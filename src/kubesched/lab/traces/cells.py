"""Replays as cells of a sweep."""

from __future__ import annotations

from kubesched.base.logs import silence
from kubesched.lab.sweeps.store import key_of_cell
from kubesched.lab.sweeps.sweep import Keyed
from kubesched.lab.traces.measuring import SAMPLES
from kubesched.lab.traces.outcome import encode
from kubesched.lab.traces.player import Cell, play_trace
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
