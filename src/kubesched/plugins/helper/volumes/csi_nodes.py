"""CSINode objects as columns over node rows.

A CSINode belongs to the node of the same name and may be created before or after it. Columns are
built on first use; after that only the rows of changed nodes and CSINodes are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import numpy as np

from kubesched.api.storage_v1 import CSINode
from kubesched.framework.handle import Lister
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.volumes.csi_migration import InTreePlugin, hands_over
from kubesched.plugins.helper.volumes.wiring import changed_key

NO_LIMIT: Final = np.iinfo(np.int64).max

Derive = Callable[[CSINode | None], int]


class CsiNodeColumns:
    """Values derived from each node's CSINode, or from its absence."""

    def __init__(self, table: NodeTable, lister: Lister[CSINode]) -> None:
        self._table = table
        self._lister = lister
        self._columns: dict[Hashable, tuple[Derive, Ints]] = {}
        self._changed: set[str] = set()
        self._cursor = self._epoch = -1
        self.close: Callable[[], None] = lister.subscribe(self._note)

    def limits(self, nodes: NodeColumns, driver: str) -> Ints:
        """Maximum number of volumes of a driver per node; NO_LIMIT where none is set."""
        return self._over(nodes, ("limit", driver), lambda node: limit_of(node, driver))

    def limited(self, nodes: NodeColumns) -> Mask:
        """Nodes where any driver has a limit."""
        return self._over(nodes, "limited", lambda node: int(has_limits(node))).astype(np.bool_)

    def present(self, nodes: NodeColumns) -> Mask:
        """Nodes that have a CSINode."""
        return self._over(nodes, "present", lambda node: int(node is not None)).astype(np.bool_)

    def lists(self, nodes: NodeColumns, driver: str) -> Mask:
        """Nodes where the driver is installed."""
        column = self._over(nodes, ("lists", driver), lambda node: int(has_driver(node, driver)))
        return column.astype(np.bool_)

    def handed_over(self, nodes: NodeColumns, plugin: InTreePlugin) -> Mask:
        """Nodes where an in-tree plugin is migrated to its CSI driver."""
        column = self._over(
            nodes, ("handed over", plugin.name), lambda node: int(hands_over(node, plugin))
        )
        return column.astype(np.bool_)

    def _over(self, nodes: NodeColumns, key: Hashable, derive: Derive) -> Ints:
        self._sync()
        known = self._columns.get(key)
        if known is None:
            column = np.zeros(self._table.capacity, dtype=np.int64)
            known = self._columns[key] = (derive, column)
            for row in range(self._table.high_water):
                column[row] = derive(self._csi_node(row))
        return known[1][nodes.rows]

    def _sync(self) -> None:
        table = self._table
        end = table.node_log.end
        if self._cursor == end and self._epoch == table.epoch and not self._changed:
            return
        rows = table.node_log.since(self._cursor) if self._epoch == table.epoch else None
        if rows is None:
            self._columns.clear()
        elif self._columns:
            mine = [row for name in self._changed if (row := table.row_of.get(name)) is not None]
            for row in dict.fromkeys((*rows, *mine)):
                node = self._csi_node(row)
                for derive, column in self._columns.values():
                    column[row] = derive(node)
        self._changed.clear()
        self._cursor, self._epoch = end, table.epoch

    def _csi_node(self, row: int) -> CSINode | None:
        return self._lister.get("", self._table.names[row])

    def _note(self, old: CSINode | None, new: CSINode | None) -> None:
        self._changed.add(changed_key(old, new))


def limit_of(node: CSINode | None, driver: str) -> int:
    """The count in the driver's last entry that has one."""
    limit = NO_LIMIT
    for listed in () if node is None else node.spec.drivers or ():
        if listed.name == driver and listed.allocatable is not None:
            limit = limit if listed.allocatable.count is None else listed.allocatable.count
    return limit


def has_limits(node: CSINode | None) -> bool:
    return node is not None and any(
        listed.allocatable is not None and listed.allocatable.count is not None
        for listed in node.spec.drivers or ()
    )


def has_driver(node: CSINode | None, driver: str) -> bool:
    return node is not None and any(listed.name == driver for listed in node.spec.drivers or ())
