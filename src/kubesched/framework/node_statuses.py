"""Verdicts on many nodes as columns: a `NodeToStatus` without an object per node.

Thousands of nodes reject an unschedulable pod for a handful of reasons. Each node has a small
integer that refers to one of a few statuses; messages and preemption work on these integers. Node
names are resolved only for lookups by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kubesched.framework.nodes.columns import Ids, Indices, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.status import Code, NodeToStatus, Status


class NodeStatusColumns(NodeToStatus):
    """A verdict per row. Lookups by name or row are valid until the set of nodes changes."""

    __slots__ = (
        "_are_named",
        "_histogram",
        "_ids",
        "_position",
        "_rows",
        "_statuses",
        "_table",
        "_unnamed",
    )

    def __init__(
        self,
        table: NodeTable,
        rows: Indices,
        ids: Ids,
        statuses: Sequence[Status],
        others: NodeToStatus | None = None,
    ) -> None:
        """`rows[i]` has status `statuses[ids[i]]`; `others` holds verdicts on all other nodes."""
        super().__init__(None if others is None else others.explicit)
        if others is not None:
            self.absent_status = others.absent_status
        self._table = table
        self._position = table.node_log.end
        self._rows = rows
        self._ids = ids
        self._statuses = statuses
        self._unnamed = True
        self._histogram: tuple[int, list[str]] | None = None
        if self._explicit:
            held = set(rows.tolist())
            row_of = table.row_of
            self._explicit = {
                name: status
                for name, status in self._explicit.items()
                if row_of.get(name) not in held
            }
        self._are_named = bool(self._explicit)

    @property
    def statuses(self) -> Sequence[Status]:
        """The distinct statuses behind the rows."""
        return self._statuses

    @property
    def rows(self) -> Indices:
        return self._rows

    @property
    def ids(self) -> Ids:
        """Per row, the index of its status in `statuses`."""
        return self._ids

    @property
    def are_named(self) -> bool:
        """True if some verdict was given by node name instead of by row."""
        return self._are_named

    @property
    def explicit(self) -> Mapping[str, Status]:
        """Every verdict by node name. Builds an entry per node: avoid on the hot path."""
        if self._unnamed:
            self._check_rows()
            names, statuses = self._table.names, self._statuses
            for row, status in zip(self.rows.tolist(), self.ids.tolist(), strict=True):
                self._explicit[names[row]] = statuses[status]
            self._unnamed = False
        return self._explicit

    def _check_rows(self) -> None:
        assert self._position == self._table.node_log.end, (
            "nodes have changed since these verdicts were made"
        )

    def get(self, node_name: str) -> Status:
        row = self._table.row_of.get(node_name) if self._unnamed else None
        if row is not None:
            self._check_rows()
            number = self._number_at(row)
            if number is not None:
                return self._statuses[number]
        return self._explicit.get(node_name, self.absent_status)

    def _number_at(self, row: int) -> int | None:
        indices = np.flatnonzero(self._rows == row)
        return int(self._ids[indices[0]]) if len(indices) else None

    def set(self, node_name: str, status: Status) -> None:
        _ = self.explicit
        self._explicit[node_name] = status
        self._are_named = True
        self._rows, self._ids = self._rows[:0], self._ids[:0]
        self._histogram = None

    def __len__(self) -> int:
        return self._row_count() + len(self._explicit) if self._unnamed else len(self._explicit)

    def _row_count(self) -> int:
        return len(self._rows)

    def _sizes(self) -> Iterable[tuple[Status, int]]:
        """Number of rows per status."""
        sizes = np.bincount(self._ids, minlength=len(self._statuses)).tolist()
        return zip(self._statuses, sizes, strict=True)

    def histogram(self, node_count: int) -> list[str]:
        if self._histogram is None or self._histogram[0] != node_count:
            self._histogram = (node_count, super().histogram(node_count))
        return self._histogram[1]

    def _count_reasons(self) -> Counter[str]:
        if not self._unnamed:
            return super()._count_reasons()
        counts: Counter[str] = Counter()
        for status in self._explicit.values():
            counts.update(status.all_reasons)
        for status, size in self._sizes():
            if size:
                for reason in status.all_reasons:
                    counts[reason] += size
        return counts

    def mark_code(self, code: Code, marked: Mask) -> None:
        """Set `marked` to whether the verdict has that code, for rows with a verdict only."""
        self._check_rows()
        has_code = np.array([status.code is code for status in self._statuses], dtype=np.bool_)
        if self._row_count():
            marked[self.rows] = has_code[self.ids]
        row_of = self._table.row_of
        for name, status in self._explicit.items():
            row = row_of.get(name)
            if row is not None:
                marked[row] = status.code is code


def rows_with_code(statuses: NodeToStatus, table: NodeTable, code: Code) -> Indices:
    """Rows of the nodes whose verdict has that code, in node order."""
    marked = np.full(table.high_water, statuses.absent_status.code is code, dtype=np.bool_)
    if isinstance(statuses, NodeStatusColumns):
        statuses.mark_code(code, marked)
    else:
        for name, status in statuses.explicit.items():
            row = table.row_of.get(name)
            if row is not None:
                marked[row] = status.code is code
    order = table.order_rows
    return order[marked[order]].astype(np.intp)
