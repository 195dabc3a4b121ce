"""The verdicts on all nodes by row, as immutable columns.

Cached failures are updated row by row, while messages and preemption may still hold older verdicts.
So an update is a copy, of four bytes per row, with the number of rows per status beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.columns import Ids, Indices
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.status import Code, NodeToStatus, Status

NO_VERDICT: Final = -1
"""The id of a row without a node."""

_NO_ROWS: Final[Indices] = np.zeros(0, dtype=np.intp)
_NO_IDS: Final[Ids] = np.zeros(0, dtype=np.int32)


class RowStatuses(NodeStatusColumns):
    """A verdict for every row that has a node."""

    __slots__ = ("_by_row", "_counts")

    def __init__(
        self, table: NodeTable, by_row: Ids, statuses: Sequence[Status], counts: list[int]
    ) -> None:
        """`counts` is the number of rows per status; a status without rows may keep its slot."""
        super().__init__(table, _NO_ROWS, _NO_IDS, statuses)
        self._by_row = by_row
        self._counts = counts

    @classmethod
    def of(cls, table: NodeTable, verdicts: NodeToStatus) -> RowStatuses | None:
        """The same verdicts by row; None if some of them are by name."""
        if not isinstance(verdicts, NodeStatusColumns) or verdicts.are_named:
            return None
        by_row: Ids = np.full(table.high_water, NO_VERDICT, dtype=np.int32)
        by_row[verdicts.rows] = verdicts.ids
        counts = np.bincount(verdicts.ids, minlength=len(verdicts.statuses)).tolist()
        twin = cls(table, by_row, verdicts.statuses, counts)
        twin.absent_status = verdicts.absent_status
        twin._position = verdicts._position
        return twin

    @property
    def statuses(self) -> Sequence[Status]:
        return [s for s, count in zip(self._statuses, self._counts, strict=True) if count]

    @property
    def rows(self) -> Indices:
        return np.flatnonzero(self._by_row != NO_VERDICT)

    @property
    def ids(self) -> Ids:
        return self._by_row[self.rows]

    def _number_at(self, row: int) -> int | None:
        if row >= len(self._by_row):
            return None
        number = int(self._by_row[row])
        return None if number == NO_VERDICT else number

    def set(self, node_name: str, status: Status) -> None:
        super().set(node_name, status)
        self._by_row, self._counts = _NO_IDS, [0] * len(self._counts)

    def _row_count(self) -> int:
        return sum(self._counts)

    def _sizes(self) -> Iterable[tuple[Status, int]]:
        return zip(self._statuses, self._counts, strict=True)

    def replaced(self, rows: Indices, ids: Ids, statuses: Sequence[Status]) -> RowStatuses:
        """A copy with new verdicts on some rows, or self if nothing differs.

        Row `rows[i]` has status `statuses[ids[i]]`, or no longer has a node. After node changes the
        result is always a copy, because lookups are valid for one set of nodes.
        """
        assert not self.are_named, "verdicts by name do not follow rows"
        distinct, counts = list(self._statuses), list(self._counts)
        numbers = _numbers_among(distinct, counts, statuses)
        after = np.append(numbers, np.int32(NO_VERDICT))[ids]
        by_row: Ids = np.full(
            max(len(self._by_row), self._table.high_water), NO_VERDICT, dtype=np.int32
        )
        by_row[: len(self._by_row)] = self._by_row
        before = by_row[rows]
        changed = np.flatnonzero(before != after)
        if not len(changed) and self._position == self._table.node_log.end:
            return self
        for number, change in ((before[changed], -1), (after[changed], 1)):
            for at, size in enumerate(np.bincount(number + 1, minlength=len(counts) + 1)[1:]):
                counts[at] += change * int(size)
        by_row[rows] = after
        copy = RowStatuses(self._table, by_row, distinct, counts)
        copy.absent_status = self.absent_status
        return copy


def _numbers_among(distinct: list[Status], counts: list[int], statuses: Sequence[Status]) -> Ids:
    """The numbers of some statuses among the distinct ones; adds missing statuses.

    A new status takes the slot of one without rows, if there is any.
    """
    known = {_content(s): at for at, s in enumerate(distinct) if counts[at]}
    free = [at for at, count in enumerate(counts) if not count]
    numbers: list[int] = []
    for status in statuses:
        number = known.get(_content(status))
        if number is None:
            if free:
                number = free.pop()
                distinct[number] = status
            else:
                number = len(distinct)
                distinct.append(status)
                counts.append(0)
            known[_content(status)] = number
        numbers.append(number)
    return np.array(numbers, dtype=np.int32)


def _content(status: Status) -> tuple[Code, tuple[str, ...], str]:
    return status.code, status.reasons, status.plugin
