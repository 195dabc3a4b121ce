"""What nodes offer, as divisors: doubles without zeros, kept until some node changes."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kubesched.snapshot.columns import Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

Floats = npt.NDArray[np.float64]

EXACT_BELOW: Final = 2**45
"""For capacities below this, `amount * 100 / capacity` in doubles truncates to the true integer quotient.

Both numbers are exact doubles (100 * 2**45 < 2**53), and a quotient below an integer n <= 100 stays at least
1 / capacity below it, which is more than a double's rounding error there.
"""


class Divisor(NamedTuple):
    """Allocatable amounts of one resource over some nodes."""

    amounts: Floats
    """1.0 where the node offers none, so that dividing is safe."""
    absent: Mask | None
    """Nodes that offer none and so leave the resource out; None when all offer some."""
    is_exact: bool
    """Percentages may be computed in doubles (see `EXACT_BELOW`)."""


class AllocatableColumns:
    """Divisors by resource line."""

    __slots__ = ("_lines", "_table", "_version")

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._version = (-1, -1)
        self._lines: dict[int, Divisor] = {}

    def over(self, nodes: NodeColumns, line: int) -> Divisor:
        whole = self._whole(nodes.table, line)
        rows = nodes.rows
        absent = None if whole.absent is None else whole.absent[rows]
        return Divisor(whole.amounts[rows], absent, whole.is_exact)

    def _whole(self, table: NodeTable, line: int) -> Divisor:
        version = (table.node_log.end, table.epoch)
        if version != self._version or table is not self._table:
            self._table, self._version = table, version
            self._lines.clear()
        found = self._lines.get(line)
        if found is None:
            found = self._lines[line] = _divisor(table, line)
        return found


def _divisor(table: NodeTable, line: int) -> Divisor:
    offered = table.allocatable[line].array
    none = offered == 0
    absent = none & table.alive
    return Divisor(
        np.where(none, 1.0, offered.astype(np.float64)),
        absent if absent.any() else None,
        int(offered.max(initial=0)) < EXACT_BELOW,
    )
