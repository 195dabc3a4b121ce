"""Node table state in a checkpoint of a recording: the part that the objects do not determine.

Columns and indexes are built from nodes and pods. Decisions also depend on the row of each node,
the node order, the order of pods on a node, and the history in two indexes (`ports`, `images`).
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
    """Free rows in the order they became free; the last one is reused first."""
    zones: dict[str, list[int]]
    pods: list[list[str]]
    """UIDs of the pods on every row, in order."""
    ghosts: dict[str, list[str]]
    """Pod UIDs by node name, for nodes that do not exist."""
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
        """Fill an empty table, giving every node its saved row."""
        for row, name in enumerate(self.rows):
            table.set_node(nodes[name] if name else _placeholder(row))
        for row in self.free:
            table.remove_node(_placeholder(row).metadata.name)
        table.order.begin_anew(self.zones)

    def restore_memory(self, table: NodeTable) -> None:
        """Restore the indexes' history. Call after all pods are on their nodes."""
        table.ports.restore(self.ports)
        table.images.restore_sizes(self.image_sizes)


def _placeholder(row: int) -> Node:
    """Occupies a free row; no real node has this name."""
    return Node(metadata=ObjectMeta(name=f"/{row}"))
