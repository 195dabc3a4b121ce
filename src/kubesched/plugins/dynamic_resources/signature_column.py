"""Node signatures as a column: nodes with equal entries are evaluated once per pod.

Between two pods usually one pool changes, and so one row. Only rows whose node changed, or whose
pools had a device allocated or freed, are recomputed; after a slice change all rows are checked.
500 nodes with 10 devices each: 0.8 ms for a whole scheduling attempt, 5.6 ms node by node, 40 ms
without caching pools (see `structured.node_pools` for the definition of a signature).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.node_pools import PoolIndex
from kubesched.plugins.dynamic_resources.structured.pools import PoolID, Slices
from kubesched.plugins.helper.grouping import leave_group

UNREADABLE: Final = -1
"""Entry of nodes whose slices cannot be read; such nodes are never grouped."""


class SignatureColumn:
    """Follows one table. Call `sync` before reading; entries of dead rows are undefined."""

    def __init__(
        self, table: NodeTable, pools: PoolIndex, slices: Slices, allocated: AllocatedState
    ) -> None:
        self._table = table
        self._pools = pools
        self._slices = slices
        self._allocated = allocated
        self._cursor = self._epoch = self._slices_version = -1
        self._pools_of_row: dict[int, tuple[PoolID, ...]] = {}
        self._rows_of_pool: dict[PoolID, dict[int, None]] = {}
        self.by_row: Ints = np.zeros(0, dtype=np.int64)

    def sync(self) -> Ints:
        """Bring the column up to date and return it."""
        table, allocated = self._table, self._allocated
        rows: list[int] | None = None
        if (self._epoch, self._slices_version) == (table.epoch, self._slices.version):
            rows = table.node_log.since(self._cursor)
        if rows is None:
            self.by_row = np.zeros(table.capacity, dtype=np.int64)
            rows = list(range(table.high_water))
        else:
            for pool in allocated.changed_pools:
                rows.extend(self._rows_of_pool.get(pool, ()))
        allocated.changed_pools.clear()
        self._cursor, self._epoch = table.node_log.end, table.epoch
        self._slices_version = self._slices.version
        for row in dict.fromkeys(rows):
            self._refresh(row)
        return self.by_row

    def of(self, node_name: str) -> int:
        """A node's entry as of the last `sync`."""
        row = self._table.row_of.get(node_name)
        return UNREADABLE if row is None else int(self.by_row[row])

    def node(self, node_name: str) -> Node | None:
        row = self._table.row_of.get(node_name)
        return None if row is None else self._table.nodes[row]

    def _refresh(self, row: int) -> None:
        node = self._table.nodes[row]
        pools: tuple[PoolID, ...] = ()
        signature = UNREADABLE
        if node is not None:
            try:
                known = self._pools.of(node)
            except AllocationError:
                pass  # reported when a pod with claims is evaluated on the node
            else:
                pools, signature = tuple([pool.id for pool in known.pools]), known.signature
        self.by_row[row] = signature
        before = self._pools_of_row.get(row, ())
        if pools == before:
            return
        for pool in before:
            leave_group(self._rows_of_pool, pool, row)
        for pool in pools:
            self._rows_of_pool.setdefault(pool, {})[row] = None
        self._pools_of_row[row] = pools
