"""Columns over node rows: growable integers, interned values, and logs of changed rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kubesched.api.core_v1 import Node

Ints = npt.NDArray[np.int64]
Levels = npt.NDArray[np.int16 | np.int32 | np.int64]
"""Scores, in an integer type that holds them: passes over large columns cost by the byte."""
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Rows = slice | Indices
"""The rows of a computation: a slice (cheap, a view) or an index array (a gather)."""

ABSENT: Final = -1
"""Interned id of a node without a value. Indexes the last slot, which lookup tables reserve."""

SPARE_VALUES: Final = 1024
"""Values without a row that a column may keep, besides one for each value that has any."""

V = TypeVar("V", bound=Hashable)


def extremes(scores: Levels) -> tuple[int, int]:
    """The lowest and highest of a column; `argmin`/`argmax` are faster than `min`/`max`."""
    return int(scores[scores.argmin()]), int(scores[scores.argmax()])


class IntColumn:
    """One int64 per row: `array` for vectors, `cells` (twice as fast) for single cells."""

    __slots__ = ("array", "cells")

    def __init__(self, capacity: int) -> None:
        self._bind(np.zeros(capacity, dtype=np.int64))

    def _bind(self, array: Ints) -> None:
        self.array = array
        self.cells = memoryview(array)  # type: ignore[arg-type]  # arrays offer the buffer protocol

    def add(self, row: int, amount: int) -> None:
        try:
            self.cells[row] += amount
        except ValueError:
            # Upstream: sums of absurd quantities wrap around silently.
            self.cells[row] = (self.cells[row] + amount + 2**63) % 2**64 - 2**63

    def grow(self, capacity: int) -> None:
        bigger = np.zeros(capacity, dtype=np.int64)
        bigger[: len(self.array)] = self.array
        self._bind(bigger)


class InternedColumn(Generic[V]):
    """A value derived from each node, as a small id per row.

    Rules over nodes are evaluated once per distinct value and then looked up: `table[column.ids]`.
    `None` means no value and has id -1, which indexes the last slot of a lookup table. An id keeps
    its meaning until `generation` changes, and then the table's `epoch` does, too.
    """

    def __init__(self, derive: Callable[[Node], V | None], capacity: int) -> None:
        self.derive = derive
        self.ids: Indices = np.full(capacity, ABSENT, dtype=np.intp)
        """In the type that indexes arrays: others are converted at every lookup."""
        self.values: list[V] = []
        self._index: dict[V, int] = {}
        self._populations: list[int] = []
        self.present = 0
        """Rows that have a value."""
        self.in_use = 0
        """Values that at least one row currently has."""
        self.generation = 0
        """Increases when ids get another meaning."""

    def id_of(self, value: V) -> int:
        """The id of a value, or ABSENT if no node has it; that of others may be known or not."""
        return self._index.get(value, ABSENT)

    def set_row(self, row: int, node: Node | None) -> None:
        value = None if node is None else self.derive(node)
        known = ABSENT if value is None else self._id(value)
        before = int(self.ids[row])
        if known != before:
            self.ids[row] = known
            if before != ABSENT:
                self._populate(before, -1)
            if known != ABSENT:
                self._populate(known, 1)

    def _id(self, value: V) -> int:
        known = self._index.get(value)
        if known is None:
            known = len(self.values)
            self._index[value] = known
            self.values.append(value)
            self._populations.append(0)
        return known

    def _populate(self, value_id: int, change: int) -> None:
        left = self._populations[value_id] = self._populations[value_id] + change
        self.present += change
        if left == (1 if change > 0 else 0):
            self.in_use += change

    def clear(self, nowhere: Indices) -> None:
        """Remove the values of all rows; `nowhere` holds ABSENT for every row."""
        self.ids = nowhere
        self._keep([])
        self.present = self.in_use = 0

    def forget_unused(self) -> bool:
        """Forget the values that no row has, if these are most; True if ids changed their meaning.

        Nodes that come and go with values of their own (host names) would fill the column.
        """
        if len(self.values) <= 2 * self.in_use + SPARE_VALUES:
            return False
        used = [at for at, number in enumerate(self._populations) if number]
        renumbered = np.full(len(self.values) + 1, ABSENT, dtype=np.intp)
        renumbered[used] = np.arange(len(used))
        self.ids = renumbered.take(self.ids)
        self._keep(used)
        return True

    def _keep(self, value_ids: list[int]) -> None:
        self.values = [self.values[at] for at in value_ids]
        self._populations = [self._populations[at] for at in value_ids]
        self._index = {value: at for at, value in enumerate(self.values)}
        self.generation += 1

    def grow(self, capacity: int) -> None:
        bigger = np.full(capacity, ABSENT, dtype=np.intp)
        bigger[: len(self.ids)] = self.ids
        self.ids = bigger


class RowLog:
    """An append-only list of changed rows that each consumer reads with its own cursor.

    Consumers recompute rows from current state, so duplicates and reused rows are harmless. When
    the log reaches its limit, the older half is dropped; consumers with an older cursor rebuild.
    """

    def __init__(self, bound: int = 8192) -> None:
        self._rows = array("q")
        self._base = 0
        self.bound = bound
        self.end = 0
        """The cursor of an up-to-date consumer."""

    def append(self, row: int) -> None:
        rows = self._rows
        rows.append(row)
        self.end += 1
        if len(rows) > self.bound:
            cut = len(rows) // 2
            del rows[:cut]
            self._base += cut

    def extend(self, rows: Collection[int]) -> None:
        """Append many rows."""
        self._rows.extend(rows)
        self.end += len(rows)
        if len(self._rows) > self.bound:
            cut = len(self._rows) - (self.bound + 1) // 2
            del self._rows[:cut]
            self._base += cut

    def since(self, cursor: int) -> list[int] | None:
        """Rows logged at or after `cursor`, oldest first; None if some of them were dropped."""
        start = cursor - self._base
        return None if start < 0 else self._rows[start:].tolist()

    def index_since(self, cursor: int) -> Indices | None:
        """Like `since`, as an index array; ten times faster for a thousand rows."""
        start = cursor - self._base
        return None if start < 0 else np.frombuffer(self._rows[start:], dtype=np.int64)
