"""Resources by node as a matrix of doubles: what is offered and what is given away.

Several resources of all nodes are then one array operation, and integers are converted once instead of for every pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.plugins.node_resources.scored_resources import nonzero_use, nonzero_use_at
from kubesched.plugins.row_mirror import RowMirror
from kubesched.snapshot.columns import Ints, Mask, Rows
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns, WhatIfColumns

Floats = npt.NDArray[np.float64]

EXACT_BELOW: Final = 2**45
"""For amounts below this, `amount * 100 / capacity` in doubles truncates to the true integer quotient.

Both numbers are exact doubles (100 * 2**45 < 2**53), and a quotient below an integer n <= 100 stays at least
1 / capacity below it, which is more than a double's rounding error there. Beyond, and below zero, where sums have
overflowed, scores are computed from integers, node by node.
"""
_MATRICES_LIMIT: Final = 8
_BLOCK: Final = 8192
"""Nodes computed at once: beyond, intermediate results would leave the processor's cache and cost three times as much."""


class Amounts:
    """Matrices of shape (resources, nodes of a view), cut out when asked for. Not to be written to."""

    __slots__ = ("_absent", "_capacity", "_free", "_rows", "_used", "is_exact")

    def __init__(
        self, rows: Rows, capacity: Floats, used: Floats, free: Floats, absent: Mask | None
    ) -> None:
        self._rows = rows
        self._capacity = capacity
        self._used = used
        self._free = free
        self._absent = absent
        self.is_exact = True
        """Doubles give the right integers (see `EXACT_BELOW`)."""

    def blocks(self, length: int) -> Iterator[tuple[slice, Amounts]]:
        """The view's nodes in parts that fit the cache, and where each part lies in the view."""
        for start in range(0, length, _BLOCK):
            where = slice(start, min(start + _BLOCK, length))
            rows = self._rows
            if isinstance(rows, slice):
                first = rows.start or 0
                part: Rows = slice(first + where.start, first + where.stop)
            else:
                part = rows[where]
            yield where, Amounts(part, self._capacity, self._used, self._free, self._absent)

    @property
    def capacity(self) -> Floats:
        """1.0 where the node offers none, so that dividing is safe."""
        return _cut(self._capacity, self._rows)

    @property
    def used(self) -> Floats:
        return _cut(self._used, self._rows)

    @property
    def free(self) -> Floats:
        """`capacity - used`."""
        return _cut(self._free, self._rows)

    @property
    def absent(self) -> Mask | None:
        """Where the node offers none and leaves the resource out; None when every node offers all."""
        return None if self._absent is None else _cut(self._absent, self._rows)


def _cut(matrix: np.ndarray[Any, Any], rows: Rows) -> np.ndarray[Any, Any]:
    return matrix[:, rows] if isinstance(rows, slice) else matrix.take(rows, axis=1)


class ResourceMatrix(RowMirror):
    """The amounts of some resources, row by row."""

    __slots__ = (
        "_absent",
        "_capacity",
        "_free",
        "_is_exact",
        "_lacking",
        "_lines",
        "_nonzero",
        "_used",
    )

    def __init__(self, table: NodeTable, lines: tuple[int, ...], *, nonzero: bool) -> None:
        """`nonzero`: count defaults for containers that request no CPU or memory."""
        super().__init__(table)
        self._lines = lines
        self._nonzero = nonzero

    def over(self, nodes: NodeColumns) -> Amounts:
        if isinstance(nodes, WhatIfColumns):
            return self._of_view(nodes)
        self.sync()
        absent = self._absent if self._lacking else None
        amounts = Amounts(nodes.rows, self._capacity, self._used, self._free, absent)
        amounts.is_exact = self._is_exact
        return amounts

    def _of_view(self, nodes: NodeColumns) -> Amounts:
        offered = np.stack([nodes.allocatable(line) for line in self._lines])
        used = np.stack([self._use(nodes, line) for line in self._lines])
        none = offered == 0
        capacity = np.where(none, 1.0, offered.astype(np.float64))
        amounts = Amounts(
            slice(None),
            capacity,
            used.astype(np.float64),
            capacity - used,
            none if none.any() else None,
        )
        amounts.is_exact = _all_exact(offered) and _all_exact(used)
        return amounts

    def _use(self, nodes: NodeColumns, line: int) -> Ints:
        return nonzero_use(nodes, line) if self._nonzero else nodes.requested(line)

    def _rebuild(self) -> None:
        table = self.table
        whole = self._of_view(NodeColumns(table, slice(0, table.capacity)))
        self._capacity, self._used, self._free = whole.capacity, whole.used, whole.free
        self._is_exact = whole.is_exact
        self._absent: Mask = np.zeros(self._capacity.shape, dtype=np.bool_)
        if whole.absent is not None:
            np.logical_and(whole.absent, table.alive, out=self._absent)
        self._lacking = int(np.count_nonzero(self._absent))

    def _patch(self, row: int) -> None:
        table = self.table
        for at, line in enumerate(self._lines):
            offered = table.allocatable[line].cells[row]
            used = (
                nonzero_use_at(table, line, row)
                if self._nonzero
                else table.requested[line].cells[row]
            )
            self._capacity[at, row] = offered or 1.0
            self._used[at, row] = used
            self._free[at, row] = (offered or 1) - used
            lacks = offered == 0 and bool(table.alive[row])
            if lacks != self._absent[at, row]:
                self._absent[at, row] = lacks
                self._lacking += 1 if lacks else -1
            if not (0 <= offered < EXACT_BELOW and 0 <= used < EXACT_BELOW):
                self._is_exact = False


def _all_exact(amounts: Ints) -> bool:
    return bool(amounts.min(initial=0) >= 0 and amounts.max(initial=0) < EXACT_BELOW)


class ResourceMatrices:
    """The matrices a plugin uses: one per combination of resources that pods compare."""

    __slots__ = ("_by_lines", "_nonzero")

    def __init__(self, *, nonzero: bool) -> None:
        self._nonzero = nonzero
        self._by_lines: dict[tuple[int, ...], ResourceMatrix] = {}

    def over(self, nodes: NodeColumns, lines: tuple[int, ...]) -> Amounts:
        found = self._by_lines.get(lines)
        if found is None or found.table is not nodes.table:
            if len(self._by_lines) >= _MATRICES_LIMIT:
                self._by_lines.clear()
            found = ResourceMatrix(nodes.table, lines, nonzero=self._nonzero)
            self._by_lines[lines] = found
        return found.over(nodes)
