"""The verdicts on all nodes by row, with cheap copies that differ in a few rows.

Cached failures are updated row by row, while messages and preemption may still hold older verdicts.
So verdicts are immutable, and a copy shares all unchanged pieces of 4,096 rows:

    rows        0 .. 4095     4096 .. 8191     8192 .. 12287
    before      piece a       piece b          piece c
    after       piece a       piece d          piece c            a row of the second piece changed
    sizes       {Insufficient cpu: 9000, Too many pods: 12}       number of rows per status

Added and removed nodes are rows with and without a verdict, so a copy costs the same in a cluster
of a thousand nodes and of a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.columns import Ids, Indices, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.status import Code, NodeToStatus, Status

NO_VERDICT: Final = -1
"""The id of a row without a node."""
PIECE_BITS: Final = 12
PIECE: Final = 1 << PIECE_BITS
"""Rows per piece."""

_NO_ROWS: Final[Indices] = np.zeros(0, dtype=np.intp)
_NO_IDS: Final[Ids] = np.zeros(0, dtype=np.int32)


class RowStatuses(NodeStatusColumns):
    """A verdict for every row that has a node."""

    __slots__ = ("_counts", "_pieces")

    def __init__(
        self, table: NodeTable, pieces: list[Ids], statuses: Sequence[Status], counts: list[int]
    ) -> None:
        """`counts` is the number of rows per status; a status without rows may keep its slot."""
        super().__init__(table, _NO_ROWS, _NO_IDS, statuses)
        self._pieces = pieces
        self._counts = counts

    @classmethod
    def of(cls, table: NodeTable, verdicts: NodeToStatus) -> RowStatuses | None:
        """The same verdicts by row; None if some of them are by name."""
        if not isinstance(verdicts, NodeStatusColumns) or verdicts.are_named:
            return None
        count = -(-table.high_water // PIECE)
        ids: Ids = np.full(count * PIECE, NO_VERDICT, dtype=np.int32)
        ids[verdicts.rows] = verdicts.ids
        counts = np.bincount(verdicts.ids, minlength=len(verdicts.statuses)).tolist()
        pieces = [piece.copy() for piece in np.split(ids, count)] if count else []
        twin = cls(table, pieces, verdicts.statuses, counts)
        twin.absent_status = verdicts.absent_status
        twin._position = verdicts._position
        return twin

    @property
    def statuses(self) -> Sequence[Status]:
        return [s for s, count in zip(self._statuses, self._counts, strict=True) if count]

    @property
    def rows(self) -> Indices:
        return np.flatnonzero(self._all_ids() != NO_VERDICT)

    @property
    def ids(self) -> Ids:
        ids = self._all_ids()
        return ids[np.flatnonzero(ids != NO_VERDICT)]

    def _all_ids(self) -> Ids:
        return np.concatenate(self._pieces) if self._pieces else _NO_IDS

    def _number_at(self, row: int) -> int | None:
        if row >= len(self._pieces) * PIECE:
            return None
        number = int(self._pieces[row >> PIECE_BITS][row & PIECE - 1])
        return None if number == NO_VERDICT else number

    def has_code(self, rows: Indices, code: Code) -> Mask:
        """See `NodeStatusColumns`; rows in ascending order."""
        self._check_rows()
        has_code = [status.code is code for status in (*self._statuses, self.absent_status)]
        return np.array(has_code, dtype=np.bool_)[self._ids_at(rows)]

    def set(self, node_name: str, status: Status) -> None:
        super().set(node_name, status)
        self._pieces, self._counts = [], [0] * len(self._counts)

    def _row_count(self) -> int:
        return sum(self._counts)

    def _sizes(self) -> Iterable[tuple[Status, int]]:
        return zip(self._statuses, self._counts, strict=True)

    def status_at(self, row: int) -> Status | None:
        """The verdict on a row; None if it has no node."""
        if row >= len(self._pieces) << PIECE_BITS:
            return None
        number = self._pieces[row >> PIECE_BITS].item(row & PIECE - 1)
        return None if number == NO_VERDICT else self._statuses[number]

    # -- copies ------------------------------------------------------------------------------------

    def replaced(self, rows: Indices, ids: Ids, statuses: Sequence[Status]) -> RowStatuses:
        """A copy with new verdicts on some ascending rows, or self if nothing differs.

        Row `rows[i]` has status `statuses[ids[i]]`, or no longer has a node. After node changes the
        result is always a copy, because lookups are valid for one set of nodes.
        """
        assert not self.are_named, "verdicts by name do not follow rows"
        distinct, counts = list(self._statuses), list(self._counts)
        numbers = _numbers_among(distinct, counts, statuses)
        after = np.append(numbers, np.int32(NO_VERDICT))[ids]
        before = self._ids_at(rows)
        changed = np.flatnonzero(before != after)
        if not len(changed) and self._position == self._table.node_log.end:
            return self
        for number, change in ((before[changed], -1), (after[changed], 1)):
            for at, size in enumerate(np.bincount(number + 1, minlength=len(counts) + 1)[1:]):
                counts[at] += change * int(size)
        pieces = self._pieces_with(rows[changed], after[changed])
        copy = RowStatuses(self._table, pieces, distinct, counts)
        copy.absent_status = self.absent_status
        return copy

    def _ids_at(self, rows: Indices) -> Ids:
        ids: Ids = np.full(len(rows), NO_VERDICT, dtype=np.int32)
        for piece, start, end in _by_piece(rows):
            if piece < len(self._pieces):
                ids[start:end] = self._pieces[piece][rows[start:end] & PIECE - 1]
        return ids

    def _pieces_with(self, rows: Indices, ids: Ids) -> list[Ids]:
        pieces = self._pieces.copy()
        if len(rows):
            while len(pieces) <= rows[-1] >> PIECE_BITS:
                pieces.append(np.full(PIECE, NO_VERDICT, dtype=np.int32))
        for piece, start, end in _by_piece(rows):
            pieces[piece] = pieces[piece].copy()
            pieces[piece][rows[start:end] & PIECE - 1] = ids[start:end]
        return pieces


def _by_piece(rows: Indices) -> list[tuple[int, int, int]]:
    """(piece, start, end): the pieces that contain the ascending rows, and their row ranges."""
    if not len(rows):
        return []
    pieces = rows >> PIECE_BITS
    starts = [0, *(np.flatnonzero(pieces[1:] != pieces[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(rows)]
    return [(int(pieces[start]), start, end) for start, end in zip(starts, ends, strict=True)]


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
