"""The walk over the nodes in upstream's order, which ends when enough feasible ones have been found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kubesched.snapshot.columns import Indices, Levels, Mask


class Walk(NamedTuple):
    """Where the walk begins, and how many feasible nodes are wanted."""

    order: Indices
    """Rows in the order of upstream's node list."""
    start: int
    wanted: int

    def first(self, passes: Callable[[Indices], Mask]) -> tuple[Indices, int]:
        """The first rows that pass, as many as are wanted, and how many were examined.

        # Upstream: one surplus feasible node is what ends the search, so that node counts as not examined.
        """
        count, wanted, examined, lacking = len(self.order), self.wanted, 0, self.wanted
        parts: list[Indices] = []
        size = wanted + wanted // 8 + 64
        while examined < count:
            begin = (self.start + examined) % count
            rows = self.order[begin : begin + min(size, count - examined)]
            places = np.flatnonzero(passes(rows))
            if len(places) > lacking:
                parts.append(rows[places[:lacking]])
                examined += int(places[lacking])
                break
            parts.append(rows if len(places) == len(rows) else rows[places])
            lacking -= len(places)
            examined += len(rows)
            size *= 2
        return parts[0] if len(parts) == 1 else np.concatenate(parts), examined


class WalkList:
    """The rows that pass, in the order of the nodes. A walk is a slice of it.

        order     7   2   9   0   5   1        row 9 does not pass
        rows      7   2   0   5   1
        places    0   1   3   4   5            from place 2, 2 wanted: rows 0 and 5; row 1, 3 places on, ends the walk

    To make the list costs as much as to go through all nodes. So it is made when walks have gone through that many since
    a row last began or ceased to pass: no walk gets much dearer by it, however often that happens.
    """

    __slots__ = ("_examined", "_order", "_places", "_rows")

    def __init__(self) -> None:
        self._order: Indices | None = None
        self._rows: Indices | None = None
        self._places = memoryview(b"")
        self._examined = 0
        """By walks without the list."""

    def forget(self) -> None:
        """A row begins or ceases to pass."""
        self._rows = None
        self._examined = 0

    def first(self, walk: Walk, passes: Callable[[Indices], Mask]) -> tuple[Indices, int]:
        """What `Walk.first` finds."""
        order, start, wanted = walk
        if self._order is not order:
            self._order = order
            self.forget()
        rows = self._rows
        if rows is None:
            if self._examined < len(order):
                found, examined = walk.first(passes)
                self._examined += examined
                return found, examined
            places = np.flatnonzero(passes(order))
            rows = self._rows = order[places]
            self._places = memoryview(places.astype(np.int32))  # type: ignore[arg-type]  # arrays offer the buffer protocol
        count = len(rows)
        begin = bisect_left(self._places, start)
        if count <= wanted:
            if begin not in (0, count):
                rows = np.concatenate((rows[begin:], rows[:begin]))
            return rows, len(order)
        end = begin + wanted
        if end < count:
            return rows[begin:end], self._places[end] - start
        end -= count
        rows = np.concatenate((rows[begin:], rows[:end])) if end else rows[begin:]
        return rows, self._places[end] + len(order) - start

    def check_invariants(self, passes: Callable[[Indices], Mask]) -> None:
        if self._rows is not None and self._order is not None:
            expected = self._order[passes(self._order)]
            assert self._rows.tolist() == expected.tolist(), "the list of a walk drifted"


class Walked(NamedTuple):
    """The outcome of a walk: the feasible nodes in its order, and their totals."""

    rows: Indices
    totals: Levels
    examined: int
