"""Free amounts of each resource, and free pod slots, as columns.

Kept current row by row, so that finding the nodes short of a resource is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from kubesched.plugins.helper.row_mirror import RowMirror
from kubesched.plugins.node_resources import int64
from kubesched.snapshot.columns import IntColumn, Ints
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns, WhatIfColumns

PODS: Final = -1
"""The pod slots, in place of a resource index."""


class Headroom(RowMirror):
    """The free amounts of one table. Dead rows read as unlimited, so that they never count as short."""

    __slots__ = ("_left",)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._left: dict[int, IntColumn] = {}

    def over(self, nodes: NodeColumns, resource: int) -> Ints:
        """What is left of a resource (or of `PODS`) on each node of a live view; call `sync` first."""
        column = self._left.get(resource)
        if column is None:
            column = self._left[resource] = self._column(resource)
        return column.array[nodes.rows]

    def _rebuild(self) -> None:
        self._left = {resource: self._column(resource) for resource in self._left}

    def _column(self, resource: int) -> IntColumn:
        table = self.table
        left = IntColumn(table.capacity)
        np.copyto(left.array, _left(NodeColumns(table, slice(0, table.capacity)), resource))
        left.array[~table.alive] = int64.MAX
        return left

    def _patch(self, row: int) -> None:
        table = self.table
        is_alive = table.alive[row]
        for resource, left in self._left.items():
            if not is_alive:
                amount = int64.MAX
            elif resource == PODS:
                amount = table.allowed_pods.cells[row] - table.pod_count.cells[row]
            else:
                amount = (
                    table.allocatable[resource].cells[row] - table.requested[resource].cells[row]
                )
            left.cells[row] = int64.wrap(amount)


def headroom(nodes: NodeColumns) -> Callable[[int], Ints]:
    """The free amounts of a view, by resource (or `PODS`). To be used before the table changes."""
    if isinstance(nodes, WhatIfColumns):
        return partial(_left, nodes)
    kept = nodes.table.derived(Headroom)
    kept.sync()
    return partial(kept.over, nodes)


def _left(nodes: NodeColumns, resource: int) -> Ints:
    if resource == PODS:
        return nodes.allowed_pods - nodes.pod_count
    return nodes.allocatable(resource) - nodes.requested(resource)


def least(amounts: Ints) -> int:
    """The smallest amount. `argmin` is twice as fast as `min` on int64."""
    return int(amounts[amounts.argmin()]) if len(amounts) else int64.MAX
