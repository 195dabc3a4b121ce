"""The node table as a checkpoint of a recording holds it: what does not follow from the objects alone.

Columns and indexes are built from nodes and pods. Decisions also depend on the rows that nodes got,
on their order, on the order of pods on a node, and on what two indexes remember of the past
(`ports`, `images`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubesched.api.core_v1 import Node
from kubesched.api.meta import ObjectMeta
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.ports import SavedPort


class SavedTable(msgspec.Struct):
    """Rows, their order and their pods."""

    rows: list[str]
    """The node of every row; empty for a free one."""
    free: list[int]
    """Free rows in the order in which they became free; the last is taken first."""
    zones: dict[str, list[int]]
    pods: list[list[str]]
    """UIDs of the pods on every row, in order."""
    ghosts: dict[str, list[str]]
    """The same by name for nodes that do not exist."""
    ports: list[SavedPort]
    image_sizes: dict[str, int]

    @classmethod
    def of(cls, table: NodeTable) -> SavedTable:
        return cls(
            rows=list(table.names),
            free=table.free_rows,
            zones=table.order.zones(),
            pods=[list(pods) for pods in table.pods],
            ghosts={name: list(pods) for name, pods in table.ghosts.items()},
            ports=table.ports.save(),
            image_sizes=table.images.sizes(),
        )

    def place_nodes(self, table: NodeTable, nodes: Mapping[str, Node]) -> None:
        """Fill an empty table such that every node gets its row again."""
        for row, name in enumerate(self.rows):
            table.set_node(nodes[name] if name else _placeholder(row))
        for row in self.free:
            table.remove_node(_placeholder(row).metadata.name)
        table.order.begin_anew(self.zones)

    def restore_memory(self, table: NodeTable) -> None:
        """To be called when all pods are on their nodes."""
        table.ports.restore(self.ports)
        table.images.restore_sizes(self.image_sizes)


def _placeholder(row: int) -> Node:
    """Holds a row free; no real node has such a name."""
    return Node(metadata=ObjectMeta(name=f"/{row}"))
