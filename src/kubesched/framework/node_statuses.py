"""Verdicts on many nodes as columns: a `NodeToStatus` without an object per node.

Thousands of nodes reject an unschedulable pod for a handful of reasons. Each node has a small
integer that refers to one of a few statuses; messages and preemption work on these integers. Node
names are resolved only for lookups by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kubesched.framework.nodes.columns import Ids, Indices, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.status import Code, NodeToStatus, Status

NO_VERDICT: Final = -1
"""The id of a row without a node."""


class NodeStatusColumns(NodeToStatus):
    """A verdict per row. Lookups by name or row are valid until the set of nodes changes."""

    __slots__ = (
        "_histogram",
        "_position",
        "_table",
        "_unnamed",
        "are_named",
        "ids",
        "rows",
        "statuses",
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
        self.rows = rows
        self.ids = ids
        """Per row, the index of its status in `statuses`."""
        self.statuses = statuses
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
        self.are_named = bool(self._explicit)
        """True if some verdict was given by node name instead of by row."""

    @property
    def explicit(self) -> Mapping[str, Status]:
        """Every verdict by node name. Builds an entry per node: avoid on the hot path."""
        if self._unnamed:
            self._check_rows()
            names, statuses = self._table.names, self.statuses
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
            indices = np.flatnonzero(self.rows == row)
            if len(indices):
                return self.statuses[int(self.ids[indices[0]])]
        return self._explicit.get(node_name, self.absent_status)

    def set(self, node_name: str, status: Status) -> None:
        _ = self.explicit
        self._explicit[node_name] = status
        self.are_named = True
        self.rows, self.ids = self.rows[:0], self.ids[:0]
        self._histogram = None

    def __len__(self) -> int:
        return len(self.rows) + len(self._explicit) if self._unnamed else len(self._explicit)

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
        sizes = np.bincount(self.ids, minlength=len(self.statuses)).tolist()
        for status, size in zip(self.statuses, sizes, strict=True):
            if size:
                for reason in status.all_reasons:
                    counts[reason] += size
        return counts

    def mark_code(self, code: Code, marked: Mask) -> None:
        """Set `marked` to whether the verdict has that code, for rows with a verdict only."""
        self._check_rows()
        has_code = np.array([status.code is code for status in self.statuses], dtype=np.bool_)
        if len(self.rows):
            marked[self.rows] = has_code[self.ids]
        row_of = self._table.row_of
        for name, status in self._explicit.items():
            row = row_of.get(name)
            if row is not None:
                marked[row] = status.code is code

    def replaced(self, rows: Indices, ids: Ids, statuses: Sequence[Status]) -> NodeStatusColumns:
        """A copy with new verdicts on some rows, or self if nothing differs.

        Row `rows[i]` has status `statuses[ids[i]]`, or no longer has a node (NO_VERDICT). After
        node changes the result is always a copy, because lookups are valid for one set of nodes.
        """
        assert not self.are_named, "verdicts by name do not follow rows"
        table, distinct = self._table, list(self.statuses)
        known = {_content(status): number for number, status in enumerate(distinct)}
        numbers = []
        for status in statuses:
            numbers.append(known.setdefault(_content(status), len(distinct)))
            if numbers[-1] == len(distinct):
                distinct.append(status)
        after = np.array([*numbers, NO_VERDICT], dtype=np.int32)[ids]
        by_row: Ids = np.full(table.high_water, NO_VERDICT, dtype=np.int32)
        by_row[self.rows] = self.ids
        if self._position == table.node_log.end and np.array_equal(by_row[rows], after):
            return self
        by_row[rows] = after
        left = np.flatnonzero(by_row != NO_VERDICT)
        is_used = np.bincount(by_row[left], minlength=len(distinct)) > 0
        renumbered = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
        used = [distinct[number] for number in np.flatnonzero(is_used).tolist()]
        copy = NodeStatusColumns(table, left, renumbered[by_row[left]], used)
        copy.absent_status = self.absent_status
        return copy


def _content(status: Status) -> tuple[Code, tuple[str, ...], str]:
    return status.code, status.reasons, status.plugin


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
