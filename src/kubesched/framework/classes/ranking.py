"""Rows in groups of one kind each, and which of them are the best.

A row's kind is what sets it apart for plugins that look beyond one node; within a group only the level counts. There are
two ways to keep the order, with the same answers:

    sorted    every group has its rows in sets by level. A changed row moves between sets; finding the best costs next to
              nothing. Right when few rows change between two pods of a class, which is the rule.
    loose     rows are just written down, and the best are looked for when asked. Right when many classes take turns, so
              that each finds many rows changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kubesched.framework.classes.row_sets import (
    BLOCK_BITS,
    IN_BLOCK,
    RowSet,
    blocks_for,
    nth_of,
)
from kubesched.snapshot.columns import Ids, Ints, Mask

NO_GROUP: Final = -1
GROUP_LIMIT: Final = 256
"""Groups are gone through one by one for every pod; with more of them, columns are as quick."""
_NOWHERE: Final = np.iinfo(np.int64).min // 2
"""Less than any total, with room for a level on top."""

Indices = np.ndarray[Any, np.dtype[np.intp]]
Kind = tuple[int, ...]


class TooManyGroups(Exception):
    """The nodes are of too many kinds."""


class Ties:
    """Rows that share the best total: sets without common rows, or all of them in order."""

    __slots__ = ("count", "listed", "sets")

    def __init__(self, count: int, sets: Sequence[RowSet], listed: Indices | None = None) -> None:
        self.count = count
        self.sets = sets
        self.listed = listed

    def nth(self, n: int) -> int:
        """The n-th of them in ascending order, counted from 0."""
        return nth_of(self.sets, n) if self.listed is None else int(self.listed[n])

    def rows(self) -> Indices:
        """All of them in ascending order."""
        if self.listed is not None:
            return self.listed
        return np.sort(np.concatenate([each.rows() for each in self.sets]))


class Group:
    """Rows of one kind. `levels` and `sets` are for the sorted way."""

    __slots__ = ("count", "kind", "levels", "number", "sample", "sets")

    def __init__(self, kind: Kind, number: int) -> None:
        self.kind = kind
        self.number = number
        self.count = 0
        self.levels: list[int] = []
        """The levels that occur, in ascending order."""
        self.sets: dict[int, RowSet] = {}
        self.sample = 0
        """A row that was in the group when somebody last looked."""


class Ranking(ABC):
    """Which rows are in which group, at which level. Arrays span the table's capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.group_of: Ids = np.full(capacity, NO_GROUP, dtype=np.int32)
        self.level: Ints = np.zeros(capacity, dtype=np.int64)
        self._adopt()
        self.groups: dict[Kind, Group] = {}
        self.by_number: list[Group | None] = []
        self._free_numbers: list[int] = []

    def _adopt(self) -> None:
        self._group_cells = memoryview(self.group_of)  # type: ignore[arg-type]  # arrays offer the buffer protocol
        self._level_cells = memoryview(self.level)  # type: ignore[arg-type]  # as above

    def _group(self, kind: Kind) -> Group:
        group = self.groups.get(kind)
        if group is None:
            if len(self.groups) >= GROUP_LIMIT:
                raise TooManyGroups
            if self._free_numbers:
                group = Group(kind, self._free_numbers.pop())
                self.by_number[group.number] = group
            else:
                group = Group(kind, len(self.by_number))
                self.by_number.append(group)
            self.groups[kind] = group
        return group

    def _drop(self, group: Group) -> None:
        del self.groups[group.kind]
        self.by_number[group.number] = None
        self._free_numbers.append(group.number)

    @abstractmethod
    def put(self, row: int, kind: Kind, level: int) -> None:
        """A row is (now) of that kind and level."""

    @abstractmethod
    def relevel_one(self, row: int, level: int) -> bool:
        """A row whose kind is what it was is (now) of that level; False when it is in no group."""

    @abstractmethod
    def remove(self, row: int) -> None:
        """A row is in no group (any more)."""

    @abstractmethod
    def live_groups(self) -> list[Group]:
        """The groups that have rows, with their counts."""

    @abstractmethod
    def best(self, groups: Sequence[Group], points: Sequence[int]) -> Ties:
        """The rows of these groups with the most points, the group's and the row's level together."""

    def sample(self, group: Group) -> int:
        """Some row of a group that has any."""
        row = group.sample
        if self._group_cells[row] != group.number:
            row = group.sample = self._find_sample(group)
        return row

    @abstractmethod
    def _find_sample(self, group: Group) -> int: ...

    def rows_of(self, groups: Sequence[Group], high_water: int) -> Mask:
        """The rows of some groups, as a mask over all rows in use."""
        chosen = np.zeros(len(self.by_number) + 1, dtype=np.bool_)
        chosen[[group.number for group in groups]] = True
        chosen[NO_GROUP] = False
        found: Mask = chosen[self.group_of[:high_water]]
        return found


class SortedRanking(Ranking):
    """Groups with sets of rows by level."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._blocks = blocks_for(capacity)

    def put_all(self, rows: Indices, kinds: list[Ints], level: Ints) -> None:
        """Many rows that are in no group yet; `kinds` has an array per part of the kind."""
        if not len(rows):
            return
        self.level[rows] = level
        columns = [*kinds, level]
        order = np.lexsort(columns)
        table = np.stack(columns)[:, order]
        changes = np.flatnonzero((table[:, 1:] != table[:, :-1]).any(axis=0)) + 1
        starts = [0, *changes.tolist()]
        rows = rows[order]
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            *kind, each = table[:, start].tolist()
            group = self._group(tuple(kind))
            members = rows[start:end]
            group.sets[each] = RowSet.of(members, self._blocks)
            insort(group.levels, each)
            group.count += len(members)
            self.group_of[members] = group.number

    def put(self, row: int, kind: Kind, level: int) -> None:
        group = self.groups.get(kind)
        number = self._group_cells[row]
        if group is not None and group.number == number:
            self._shift(group, row, level)
            return
        if number != NO_GROUP:
            self.remove(row)
        if group is None:
            group = self._group(kind)
        self._add(group, row, level)
        self._level_cells[row] = level
        self._group_cells[row] = group.number

    def relevel_one(self, row: int, level: int) -> bool:
        number = self._group_cells[row]
        if number == NO_GROUP:
            return False
        group = self.by_number[number]
        assert group is not None, f"row {row} is in a group that is gone"
        self._shift(group, row, level)
        return True

    def _shift(self, group: Group, row: int, level: int) -> None:
        """From one set of the group to another. Spelled out: this happens for every pod."""
        before = self._level_cells[row]
        if before == level:
            return
        self._level_cells[row] = level
        sets = group.sets
        rows = sets.get(level)
        if rows is None:
            rows = sets[level] = RowSet(self._blocks)
            insort(group.levels, level)
        block, bit = row >> BLOCK_BITS, 1 << (row & IN_BLOCK)
        rows.masks[block] |= bit
        rows.counts[block] += 1
        rows.count += 1
        rows = sets[before]
        if rows.count == 1:
            del sets[before]
            del group.levels[bisect_left(group.levels, before)]
        else:
            rows.masks[block] ^= bit
            rows.counts[block] -= 1
            rows.count -= 1

    def _add(self, group: Group, row: int, level: int) -> None:
        rows = group.sets.get(level)
        if rows is None:
            rows = group.sets[level] = RowSet(self._blocks)
            insort(group.levels, level)
        rows.add(row)
        group.count += 1

    @staticmethod
    def _take(group: Group, row: int, level: int) -> None:
        rows = group.sets[level]
        if rows.count == 1:
            del group.sets[level]
            del group.levels[bisect_left(group.levels, level)]
        else:
            rows.remove(row)
        group.count -= 1

    def remove(self, row: int) -> None:
        number = self._group_cells[row]
        if number == NO_GROUP:
            return
        group = self.by_number[number]
        assert group is not None, f"row {row} is in a group that is gone"
        self._take(group, row, self._level_cells[row])
        self._group_cells[row] = NO_GROUP
        if not group.count:
            self._drop(group)

    def live_groups(self) -> list[Group]:
        return list(self.groups.values())

    def best(self, groups: Sequence[Group], points: Sequence[int]) -> Ties:
        if len(groups) == 1:
            group = groups[0]
            rows = group.sets[group.levels[-1]]
            return Ties(rows.count, (rows,))
        totals = [each + group.levels[-1] for each, group in zip(points, groups, strict=True)]
        highest = max(totals)
        winners = [
            group.sets[group.levels[-1]]
            for group, total in zip(groups, totals, strict=True)
            if total == highest
        ]
        return Ties(sum([each.count for each in winners]), winners)

    def _find_sample(self, group: Group) -> int:
        return group.sets[group.levels[-1]].any()

    def check_invariants(self) -> None:
        """Every row is in the one set its group and level say, and sets hold nothing else."""
        for kind, group in self.groups.items():
            assert group.kind == kind, f"group {group.kind} is kept as {kind}"
            assert group.levels == sorted(group.sets), f"levels of group {kind} drifted"
            for level, members in group.sets.items():
                expected = np.flatnonzero((self.group_of == group.number) & (self.level == level))
                assert members.rows().tolist() == expected.tolist(), f"group {kind} drifted"
                assert members.count == len(expected) > 0, f"count of group {kind} drifted"
            assert group.count == np.count_nonzero(self.group_of == group.number)
        grouped = sum(group.count for group in self.groups.values())
        assert grouped == np.count_nonzero(self.group_of != NO_GROUP), "a row is in no group's set"


class LooseRanking(Ranking):
    """Nothing but the arrays: the best are looked for when asked."""

    def __init__(self, before: SortedRanking) -> None:
        """Takes the arrays over."""
        super().__init__(0)
        self.capacity = before.capacity
        self.group_of, self.level = before.group_of, before.level
        self._adopt()
        for number, group in enumerate(before.by_number):
            if group is None:
                self._free_numbers.append(number)
                self.by_number.append(None)
            else:
                fresh = Group(group.kind, number)
                self.groups[group.kind] = fresh
                self.by_number.append(fresh)

    def put(self, row: int, kind: Kind, level: int) -> None:
        group = self.groups.get(kind)
        if group is None:
            group = self._group_among_live(kind)
        self._group_cells[row] = group.number
        self._level_cells[row] = level

    def _group_among_live(self, kind: Kind) -> Group:
        """A new group; those that have run empty since make room first."""
        if len(self.groups) >= GROUP_LIMIT:
            self.live_groups()
            for group in [each for each in self.groups.values() if not each.count]:
                self._drop(group)
        return self._group(kind)

    def relevel(self, rows: Indices, ok: Mask, level: Ints) -> tuple[Mask, Indices, Ints]:
        """Many rows whose kind is what it was; returns those that were in no group and now have to be in one."""
        is_new = self.group_of[rows] == NO_GROUP
        self.level[rows] = level
        self.group_of[rows[~ok]] = NO_GROUP
        is_new &= ok
        return ok[is_new], rows[is_new], level[is_new]

    def relevel_one(self, row: int, level: int) -> bool:
        if self._group_cells[row] == NO_GROUP:
            return False
        self._level_cells[row] = level
        return True

    def remove(self, row: int) -> None:
        self._group_cells[row] = NO_GROUP

    def live_groups(self) -> list[Group]:
        counts = np.bincount(self.group_of + 1, minlength=len(self.by_number) + 1).tolist()
        for group in self.groups.values():
            group.count = counts[group.number + 1]
        return [group for group in self.groups.values() if group.count]

    def best(self, groups: Sequence[Group], points: Sequence[int]) -> Ties:
        by_number = np.full(len(self.by_number) + 1, _NOWHERE, dtype=np.int64)
        for group, each in zip(groups, points, strict=True):
            by_number[group.number] = each
        totals = self.level + by_number.take(self.group_of)
        rows = np.flatnonzero(totals == totals.max())
        return Ties(len(rows), (), rows)

    def _find_sample(self, group: Group) -> int:
        return int((self.group_of == group.number).argmax())

    def sorted(self) -> SortedRanking:
        """The same rows in sets."""
        ranking = SortedRanking(self.capacity)
        rows = np.flatnonzero(self.group_of != NO_GROUP)
        kinds = [(0,) * self._width if g is None else g.kind for g in self.by_number]
        parts = np.array(kinds, dtype=np.int64).reshape(len(kinds), self._width)
        columns = [parts[:, at].take(self.group_of[rows]) for at in range(self._width)]
        ranking.put_all(rows, columns, self.level[rows])
        return ranking

    @property
    def _width(self) -> int:
        return len(next(iter(self.groups), ()))
