"""Allocatable and requested amounts as a matrix of doubles, resources by nodes.

A formula over several resources of all nodes is then one array operation, and integers are
converted once instead of for every pod. One matrix serves all plugins that compare the same
resources; it is kept with its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import Indices, Ints, Mask, Rows
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.plugins.helper.row_mirror import RowMirror
from kubesched.plugins.node_resources.scored_resources import (
    EXACT_BELOW,
    nonzero_cells,
    nonzero_use,
)

Floats = npt.NDArray[np.float64]

_MATRICES_LIMIT: Final = 8
BLOCK: Final = 8192
"""Nodes per array operation: larger temporaries miss the cache and cost three times as much."""


class Amounts:
    """Read-only matrices of shape (resources, nodes of a view), extracted on first use."""

    def __init__(
        self, rows: Rows, capacity: Floats, used: Floats, spare: Floats, absent: Mask | None
    ) -> None:
        self._rows = rows
        self._capacity = capacity
        self._used = used
        self._spare = spare
        self._absent = absent
        self.is_exact = True
        """True if doubles give the exact integers (see `EXACT_BELOW`)."""

    def scored(self, length: int, score: Callable[[Amounts], np.ndarray[Any, Any]]) -> Ints:
        """Scores of all nodes of the view, computed in blocks that fit the CPU cache."""
        if length <= BLOCK:
            return score(self).astype(np.int64)
        scores = np.empty(length, dtype=np.int64)
        for where, part in self._blocks(length):
            scores[where] = score(part)
        return scores

    def _blocks(self, length: int) -> Iterator[tuple[slice, Amounts]]:
        """The view's nodes in blocks that fit the CPU cache, with their positions in the view."""
        for start in range(0, length, BLOCK):
            where = slice(start, min(start + BLOCK, length))
            rows = self._rows
            if isinstance(rows, slice):
                first = rows.start or 0
                part: Rows = slice(first + where.start, first + where.stop)
            else:
                part = rows[where]
            yield where, Amounts(part, self._capacity, self._used, self._spare, self._absent)

    @property
    def capacity(self) -> Floats:
        """Allocatable amounts, 1.0 where the node offers none, so that division is safe."""
        return _cut(self._capacity, self._rows)

    @property
    def used(self) -> Floats:
        """Amounts requested by pods."""
        return _cut(self._used, self._rows)

    @property
    def spare(self) -> Floats:
        """100 times the unused capacity, with defaults for containers without requests."""
        return _cut(self._spare, self._rows)

    @property
    def absent(self) -> Mask | None:
        """Where the node lacks the resource, which is left out; None if every node offers all."""
        return None if self._absent is None else _cut(self._absent, self._rows)


def _cut(matrix: np.ndarray[Any, Any], rows: Rows) -> np.ndarray[Any, Any]:
    return matrix[:, rows] if isinstance(rows, slice) else matrix.take(rows, axis=1)


class ResourceMatrix(RowMirror):
    """The amounts of some resources, row by row."""

    def __init__(self, table: NodeTable, resources: tuple[int, ...]) -> None:
        super().__init__(table)
        self._resources = resources
        self._absent: Mask = np.zeros((0, 0), dtype=np.bool_)

    def over(self, nodes: NodeColumns) -> Amounts:
        if isinstance(nodes, WhatIfColumns):
            return self._of_view(nodes)
        self.sync()
        absent = self._absent if self._lacking else None
        amounts = Amounts(nodes.rows, self._capacity, self._used, self._spare, absent)
        amounts.is_exact = self._is_exact
        return amounts

    def _of_view(self, nodes: NodeColumns) -> Amounts:
        offered = np.stack([nodes.allocatable(resource) for resource in self._resources])
        used = np.stack([nodes.requested(resource) for resource in self._resources])
        nonzero = np.stack([nonzero_use(nodes, resource) for resource in self._resources])
        none = offered == 0
        capacity = offered.astype(np.float64)
        capacity[none] = 1.0
        spare = (capacity - nonzero.astype(np.float64)) * float(MAX_NODE_SCORE)
        amounts = Amounts(
            slice(None), capacity, used.astype(np.float64), spare, none if none.any() else None
        )
        amounts.is_exact = _all_exact(offered) and _all_exact(used) and _all_exact(nonzero)
        return amounts

    def _rebuild(self) -> None:
        """Works in blocks: full-size temporaries cost more in page faults than in arithmetic."""
        shape = len(self._resources), self.table.capacity
        if self._absent.shape != shape:
            self._capacity, self._used, self._spare = (np.empty(shape) for _ in range(3))
            self._absent = np.zeros(shape, dtype=np.bool_)
        # Single cells are accessed through memoryviews, which is twice as fast.
        self._cells = [
            (
                self.table.allocatable[resource].cells,
                self.table.requested[resource].cells,
                nonzero_cells(self.table, resource),
                _cells(self._capacity[at]),
                _cells(self._used[at]),
                _cells(self._spare[at]),
            )
            for at, resource in enumerate(self._resources)
        ]
        self._is_exact = True
        for start in range(0, self.table.capacity, BLOCK):
            self._write(slice(start, min(start + BLOCK, self.table.capacity)))
        self._lacking = int(np.count_nonzero(self._absent))

    def _patch_rows(self, rows: Indices) -> None:
        self._write(rows)
        self._lacking = int(np.count_nonzero(self._absent))

    def _write(self, rows: Rows) -> None:
        part = self._of_view(NodeColumns(self.table, rows))
        self._capacity[:, rows], self._used[:, rows] = part.capacity, part.used
        self._spare[:, rows] = part.spare
        lacks = part.absent
        self._absent[:, rows] = False if lacks is None else lacks & self.table.alive[rows]
        self._is_exact = self._is_exact and part.is_exact

    def _patch(self, row: int) -> None:
        for at, (offers, requests, nonzeros, capacity, used, spare) in enumerate(self._cells):
            offered, requested, nonzero = offers[row], requests[row], nonzeros[row]
            capacity[row] = offered or 1.0
            used[row] = requested
            spare[row] = ((offered or 1) - nonzero) * MAX_NODE_SCORE
            if (not offered or self._lacking) and self._absent[at, row] != (
                lacks := offered == 0 and bool(self.table.alive[row])
            ):
                self._absent[at, row] = lacks
                self._lacking += 1 if lacks else -1
            if not (
                0 <= offered < EXACT_BELOW
                and 0 <= requested < EXACT_BELOW
                and 0 <= nonzero < EXACT_BELOW
            ):
                self._is_exact = False


def _cells(column: Floats) -> memoryview[float]:
    return memoryview(column)  # type: ignore[arg-type]  # arrays offer the buffer protocol


def _all_exact(amounts: Ints) -> bool:
    return bool(amounts.min(initial=0) >= 0 and amounts.max(initial=0) < EXACT_BELOW)


class ResourceMatrices:
    """The matrices of a table: one per combination of resources that pods compare."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._by_resources: dict[tuple[int, ...], ResourceMatrix] = {}

    def over(self, nodes: NodeColumns, resources: tuple[int, ...]) -> Amounts:
        matrix = self._by_resources.get(resources)
        if matrix is None:
            if len(self._by_resources) >= _MATRICES_LIMIT:
                self._by_resources.clear()
            matrix = self._by_resources[resources] = ResourceMatrix(self._table, resources)
        return matrix.over(nodes)


def resource_amounts(nodes: NodeColumns, resources: tuple[int, ...]) -> Amounts:
    """Allocatable and requested amounts of some resources on the nodes of a view."""
    return nodes.table.derived(ResourceMatrices).over(nodes, resources)
