"""Rows in groups, and which of them are the best.

A row's group key is what sets it apart for plugins that look beyond one node; within a group only the level counts. There
are two ways to keep the order, with the same answers:

    sorted      every group has its rows in sets by level. A changed row moves between sets; finding the best costs next
                to nothing. Best when few rows change between two pods of a class, which is the rule.
    unsorted    rows are only written down, and the best are searched for when needed. Best when many classes take turns,
                so that each finds many dirty rows, and where rows cannot be grouped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.equivalence.row_sets import (
    BLOCK_BITS,
    IN_BLOCK,
    ROW_SPAN_BITS,
    RowSet,
    blocks_for,
    nth_of,
)
from kubesched.equivalence.walk import Walk, WalkList
from kubesched.snapshot.columns import Ids, Indices, Ints, Levels, Mask

NO_GROUP: Final = -1
GROUP_LIMIT: Final = 256
"""Groups are visited one by one for every pod; with more of them, columns are as fast."""
NO_LEVEL: Final = -1
"""The level of rows in no group; others are not negative."""

_NOWHERE: Final = np.iinfo(np.int64).min // 2
"""Less than any total, with room for a level on top."""

_CODE_LIMIT: Final = 1 << 62

GroupKey = tuple[int, ...]
Codes = npt.NDArray[np.uint16]
LevelType = type[np.int16] | type[np.int64]


def level_type(highest: int) -> LevelType:
    """Levels in as little memory as possible: layers that take turns find them in the CPU's caches."""
    return np.int16 if highest <= np.iinfo(np.int16).max else np.int64


class TooManyGroups(Exception):
    """The nodes differ in too many ways to be grouped."""


class Ties:
    """Rows that share the best total: sets without common rows, but for some rows, or all of them in order."""

    __slots__ = ("_flipped", "_listed", "_sets", "count")

    def __init__(
        self,
        count: int,
        sets: Sequence[RowSet],
        listed: Indices | None = None,
        flipped: Sequence[int] = (),
    ) -> None:
        """`flipped` are members of the sets that do not count, and other rows that do."""
        self.count = count
        self._sets = sets
        self._listed = listed
        self._flipped = flipped

    @classmethod
    def of(cls, rows: Indices) -> Ties:
        """Rows in ascending order."""
        return cls(len(rows), (), rows)

    @classmethod
    def of_highest(cls, totals: Levels) -> Ties:
        """The rows with the highest total. `argmax` is the faster reduction."""
        return cls.of((totals == totals[totals.argmax()]).nonzero()[0])

    def nth(self, n: int) -> int:
        """The n-th of them in ascending order, counted from 0."""
        if self._listed is not None:
            return int(self._listed[n])
        return nth_of(self._sets, n, self._flipped)


class LevelSets(dict[int, RowSet]):
    """The rows at each level. A set of many rows is made when it is first read: most are far from the best level."""

    __slots__ = ("unread",)

    def __init__(self) -> None:
        super().__init__()
        self.unread: dict[int, Callable[[], RowSet]] = {}
        """Level -> makes its set."""

    def __missing__(self, level: int) -> RowSet:
        rows = self[level] = self.unread.pop(level)()
        return rows

    def copy(self) -> LevelSets:
        twin = LevelSets()
        twin.update({level: rows.copy() for level, rows in self.items()})
        twin.unread = self.unread.copy()
        return twin


class Group:
    """Rows with one key. `levels` and `sets` are used by sorted rankings only."""

    __slots__ = ("count", "key", "levels", "number", "sample", "sets")

    def __init__(self, key: GroupKey, number: int) -> None:
        self.key = key
        self.number = number
        self.count = 0
        self.levels: list[int] = []
        """The levels that occur, in ascending order."""
        self.sets = LevelSets()
        self.sample = 0
        """A row that was in the group when it was last looked up."""

    def copy(self) -> Group:
        twin = Group(self.key, self.number)
        twin.count, twin.levels, twin.sample = self.count, self.levels.copy(), self.sample
        twin.sets = self.sets.copy()
        return twin


class Ranking(ABC):
    """Which rows are in which group, at which level. Arrays span the table's capacity."""

    def __init__(self, capacity: int, level_type: LevelType = np.int64) -> None:
        self.capacity = capacity
        self.group_of: Ids = np.full(capacity, NO_GROUP, dtype=np.int32)
        self.level: Levels = np.zeros(capacity, dtype=level_type)
        self._adopt()
        self.groups: dict[GroupKey, Group] = {}
        self.by_number: list[Group | None] = []
        self._free_numbers: list[int] = []
        self._walk_list = WalkList()

    def move_to(self, group_of: Ids, level: Levels) -> None:
        """Use these arrays from now on, which have the same content."""
        self.group_of, self.level = group_of, level
        self._adopt()

    def _adopt(self) -> None:
        self._group_cells = memoryview(self.group_of)  # type: ignore[arg-type]  # arrays offer the buffer protocol
        self.level_cells = memoryview(self.level)  # type: ignore[arg-type]  # as above

    def _group(self, key: GroupKey) -> Group:
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= GROUP_LIMIT:
                raise TooManyGroups
            if self._free_numbers:
                group = Group(key, self._free_numbers.pop())
                self.by_number[group.number] = group
            else:
                group = Group(key, len(self.by_number))
                self.by_number.append(group)
            self.groups[key] = group
        return group

    def _drop(self, group: Group) -> None:
        del self.groups[group.key]
        self.by_number[group.number] = None
        self._free_numbers.append(group.number)

    @abstractmethod
    def put(self, row: int, key: GroupKey, level: int) -> None:
        """Set a row's key and level."""

    @abstractmethod
    def relevel_one(self, row: int, level: int) -> bool:
        """Set the level of a row that keeps its key; False when it is in no group."""

    @abstractmethod
    def remove(self, row: int) -> None:
        """Take a row out of its group, if it is in one."""

    @abstractmethod
    def live_groups(self) -> list[Group]:
        """The groups that have rows, with their counts."""

    @abstractmethod
    def best(self, groups: Sequence[Group], points: Sequence[int]) -> Ties:
        """The rows of these groups with the most points, the group's and the row's level together."""

    def group_at(self, row: int) -> Group | None:
        number = self._group_cells[row]
        return None if number == NO_GROUP else self.by_number[number]

    def level_at(self, row: int) -> int:
        """The level of a row that is in a group."""
        return self.level_cells[row]

    def with_rows_apart(
        self,
        rows: Iterable[int],
        key_of: Callable[[int], GroupKey],
        refused: Indices | None = None,
    ) -> UnsortedRanking:
        """An unsorted copy for one decision in which the key of some rows is longer by what `key_of` returns.

        The refused rows are in no group.
        """
        copy = UnsortedRanking(0)
        copy.capacity = copy._end = self.capacity
        copy.move_to(self.group_of.copy(), self.level.copy())
        copy.by_number, copy._free_numbers = [None] * len(self.by_number), [*self._free_numbers]
        for group in self.groups.values():
            twin = copy.groups[group.key] = Group(group.key, group.number)
            copy.by_number[group.number], twin.count = twin, group.count
        for row in rows:
            shared = self.group_at(row)
            if shared is not None:
                copy.put(row, (*shared.key, *key_of(row)), self.level_cells[row])
        if refused is not None:
            copy.remove_all(refused)
        copy.level[copy.group_of == NO_GROUP] = NO_LEVEL
        return copy

    def sample(self, group: Group) -> int:
        """Some row of a group that has any."""
        row = group.sample
        if self._group_cells[row] != group.number:
            row = group.sample = self._find_sample(group)
        return row

    def part(self, group: Group, count: int) -> Group:
        """Some of the rows of a group. Any row of the group may stand for them."""
        part = Group(group.key, group.number)
        part.count, part.sample = count, self.sample(group)
        return part

    @abstractmethod
    def _find_sample(self, group: Group) -> int: ...

    def check_invariants(self) -> None:
        for key, group in self.groups.items():
            count = np.count_nonzero(self.group_of == group.number)
            assert group.count == count, f"count of group {key} drifted"
        self._walk_list.check_invariants(self._in_some_group)

    def rows_of(self, groups: Sequence[Group], high_water: int) -> Mask:
        """The rows of some groups, as a mask over all rows in use."""
        mask: Mask = self.membership(groups)[self.group_of[:high_water]]
        return mask

    def walk(self, walk: Walk) -> tuple[Indices, int]:
        """The rows in some group that a walk finds first, and how many were examined."""
        return self._walk_list.first(walk, self._in_some_group)

    def _in_some_group(self, rows: Indices) -> Mask:
        mask: Mask = self.group_of.take(rows) != NO_GROUP
        return mask

    def membership(self, groups: Sequence[Group]) -> Mask:
        """By group number, and for rows in no group: is it one of these?"""
        chosen = np.zeros(len(self.by_number) + 1, dtype=np.bool_)
        chosen[[group.number for group in groups]] = True
        chosen[NO_GROUP] = False
        return chosen


class SortedRanking(Ranking):
    """Groups with sets of rows by level."""

    def __init__(self, capacity: int, level_type: LevelType = np.int64) -> None:
        super().__init__(capacity, level_type)
        self._blocks = blocks_for(capacity)

    def put_all(self, rows: Indices, keys: list[Ints], level: Levels) -> None:
        """Many rows that are in no group yet; `keys` has an array per part of the key."""
        if not len(rows):
            return
        self._walk_list.forget()
        self.level[rows] = level
        columns = [*keys, level]
        codes = _codes_of(columns)
        order = np.argsort(codes, kind="stable")
        codes, rows = codes[order], rows[order]
        starts = np.array([0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()])
        counts = np.diff(starts, append=len(rows))
        numbers: list[int] = []
        parts = zip(*[column[order[starts]].tolist() for column in columns], strict=True)
        for start, count, (*key, row_level) in zip(
            starts.tolist(), counts.tolist(), parts, strict=True
        ):
            group = self._group(tuple(key))
            members = rows[start : start + count]
            group.sets.unread[row_level] = partial(RowSet.of, members, self._blocks)
            insort(group.levels, row_level)
            group.count += count
            numbers.append(group.number)
        self.group_of[rows] = np.repeat(numbers, counts)

    def split(self, rows: Iterable[int], key_of: Callable[[int], GroupKey]) -> SortedRanking:
        """A copy with other keys: each group keeps its rows, except for some that are grouped by their own keys.

        The new keys must tell the groups apart.
        """
        copy = SortedRanking(0)
        copy.capacity, copy._blocks = self.capacity, self._blocks
        copy.move_to(self.group_of.copy(), self.level.copy())
        copy.by_number, copy._free_numbers = [None] * len(self.by_number), [*self._free_numbers]
        for group in self.groups.values():
            copy.groups[group.key] = copy.by_number[group.number] = group.copy()
        apart = [(row, self.level_cells[row]) for row in rows if self.group_at(row) is not None]
        for row, _ in apart:
            copy.remove(row)
        groups, copy.groups = copy.groups.values(), {}
        for group in groups:
            group.key = key_of(copy.sample(group))
            assert group.key not in copy.groups, f"two groups have the key {group.key}"
            copy.groups[group.key] = group
        for row, level in apart:
            copy.put(row, key_of(row), level)
        return copy

    def put(self, row: int, key: GroupKey, level: int) -> None:
        group = self.groups.get(key)
        number = self._group_cells[row]
        if group is not None and group.number == number:
            self._shift(group, row, level)
            return
        if number == NO_GROUP:
            self._walk_list.forget()
        else:
            self._leave(row)
        if group is None:
            group = self._group(key)
        self._add(group, row, level)
        self.level_cells[row] = level
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
        before = self.level_cells[row]
        if before == level:
            return
        self.level_cells[row] = level
        sets = group.sets
        rows = sets.get(level)
        if rows is None:
            rows = self._set_at(group, level)
        block, span, bit = row >> BLOCK_BITS, row >> ROW_SPAN_BITS, 1 << (row & IN_BLOCK)
        rows.masks[block] |= bit
        rows.counts[block] += 1
        rows.spans[span] += 1
        rows.count += 1
        rows = sets[before]
        if rows.count == 1:
            del sets[before]
            del group.levels[bisect_left(group.levels, before)]
        else:
            rows.masks[block] ^= bit
            rows.counts[block] -= 1
            rows.spans[span] -= 1
            rows.count -= 1

    def _add(self, group: Group, row: int, level: int) -> None:
        rows = group.sets.get(level)
        if rows is None:
            rows = self._set_at(group, level)
        rows.add(row)
        group.count += 1

    def _set_at(self, group: Group, level: int) -> RowSet:
        """A set that is new, or was not read before."""
        sets = group.sets
        if level not in sets.unread:
            sets[level] = RowSet(self._blocks)
            insort(group.levels, level)
        return sets[level]

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
        if self._group_cells[row] != NO_GROUP:
            self._walk_list.forget()
            self._leave(row)

    def _leave(self, row: int) -> None:
        group = self.group_at(row)
        assert group is not None, f"row {row} is in a group that is gone"
        self._take(group, row, self.level_cells[row])
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
        totals = [
            group_points + group.levels[-1]
            for group_points, group in zip(points, groups, strict=True)
        ]
        highest = max(totals)
        winners = [
            group.sets[group.levels[-1]]
            for group, total in zip(groups, totals, strict=True)
            if total == highest
        ]
        return Ties(sum([rows.count for rows in winners]), winners)

    def _find_sample(self, group: Group) -> int:
        return group.sets[group.levels[-1]].any()

    def check_invariants(self) -> None:
        """Every row is in the one set its group and level say, and sets hold nothing else."""
        super().check_invariants()
        for key, group in self.groups.items():
            assert group.key == key, f"group {group.key} is kept as {key}"
            known = sorted([*group.sets, *group.sets.unread])
            assert group.levels == known, f"levels of group {key} drifted"
            for level in known:
                members = group.sets[level]
                expected = np.flatnonzero((self.group_of == group.number) & (self.level == level))
                assert members.rows().tolist() == expected.tolist(), f"group {key} drifted"
                assert members.count == len(expected) > 0, f"count of group {key} drifted"
        grouped = sum(group.count for group in self.groups.values())
        assert grouped == np.count_nonzero(self.group_of != NO_GROUP), "a row is in no group's set"


def _codes_of(columns: Sequence[Levels]) -> Ints | Codes:
    """A number for each row, equal for rows that are equal in all columns. Small numbers are sorted fastest."""
    codes: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for column in columns:
        values = column - column.min()
        size = int(values.max()) + 1
        if span * size > _CODE_LIMIT:
            values = np.unique(values, return_inverse=True)[1]
            codes = np.unique(codes, return_inverse=True)[1]
            span, size = int(codes.max()) + 1, int(values.max()) + 1
        codes = codes * size + values
        span *= size
    return codes.astype(np.uint16) if span <= 1 << 16 else codes


class UnsortedRanking(Ranking):
    """Only the arrays: the best rows are searched for when needed. Rows in no group have NO_LEVEL."""

    def __init__(self, capacity: int, level_type: LevelType = np.int64) -> None:
        super().__init__(capacity, level_type)
        self.level.fill(NO_LEVEL)
        self._end = capacity
        """No row from here on is in a group."""

    @classmethod
    def of(cls, ranking: SortedRanking) -> UnsortedRanking:
        """Takes over the arrays of a sorted ranking, which must not be used any more."""
        unsorted = cls(0)
        unsorted.capacity = ranking.capacity
        unsorted.move_to(ranking.group_of, ranking.level)
        is_grouped = unsorted.group_of != NO_GROUP
        unsorted.level[~is_grouped] = NO_LEVEL
        unsorted._end = unsorted.capacity - int(is_grouped[::-1].argmax())
        for number, group in enumerate(ranking.by_number):
            if group is None:
                unsorted._free_numbers.append(number)
                unsorted.by_number.append(None)
            else:
                fresh = unsorted.groups[group.key] = Group(group.key, number)
                fresh.count = group.count
                unsorted.by_number.append(fresh)
        return unsorted

    @classmethod
    def of_one_group(
        cls, capacity: int, rows: Indices, level: Ints, level_type: LevelType
    ) -> UnsortedRanking:
        """Rows that nothing but their level tells apart."""
        unsorted = cls(capacity, level_type)
        group = unsorted._group(())
        group.count = len(rows)
        unsorted.group_of[rows] = group.number
        unsorted.level[rows] = level
        return unsorted

    def put(self, row: int, key: GroupKey, level: int) -> None:
        if self._group_cells[row] == NO_GROUP:
            self._walk_list.forget()
        else:
            self._leave(row)
        group = self.groups.get(key)
        if group is None:
            group = self._group_among_live(key)
        group.count += 1
        self._group_cells[row] = group.number
        self.level_cells[row] = level
        self._end = max(self._end, row + 1)

    def _group_among_live(self, key: GroupKey) -> Group:
        """The group of a key. For a new one, those that have run empty since make room first."""
        if key not in self.groups and len(self.groups) >= GROUP_LIMIT:
            for group in [group for group in self.groups.values() if not group.count]:
                self._drop(group)
        return self._group(key)

    def relevel(self, rows: Indices, ok: Mask, level: Ints) -> tuple[Mask, Indices, Ints]:
        """Set the levels of rows that keep their key; returns those that were in no group and now belong into one."""
        is_new = self.group_of[rows] == NO_GROUP
        self.level[rows] = np.where(is_new, NO_LEVEL, level)
        if not ok.all():
            self.remove_all(rows[~ok])
        is_new &= ok
        return ok[is_new], rows[is_new], level[is_new]

    def relevel_one(self, row: int, level: int) -> bool:
        if self._group_cells[row] == NO_GROUP:
            return False
        self.level_cells[row] = level
        return True

    def remove(self, row: int) -> None:
        if self._group_cells[row] != NO_GROUP:
            self._walk_list.forget()
            self._leave(row)

    def _leave(self, row: int) -> None:
        group = self.group_at(row)
        assert group is not None, f"row {row} is in a group that is gone"
        group.count -= 1
        self._group_cells[row] = NO_GROUP
        self.level_cells[row] = NO_LEVEL

    def remove_all(self, rows: Indices) -> None:
        """Take several rows, each named once, out of their groups."""
        self._walk_list.forget()
        counts = np.bincount(self.group_of[rows] + 1, minlength=len(self.by_number) + 1).tolist()
        for group in self.groups.values():
            group.count -= counts[group.number + 1]
        self.group_of[rows] = NO_GROUP
        self.level[rows] = NO_LEVEL

    def live_groups(self) -> list[Group]:
        return [group for group in self.groups.values() if group.count]

    def best(self, groups: Sequence[Group], points: Sequence[int]) -> Ties:
        if len(groups) == 1:
            level = self.level[: self._end]
            if len(self.live_groups()) > 1:
                is_asked = self.group_of[: self._end] == groups[0].number
                level = np.where(is_asked, level, NO_LEVEL)
            return Ties.of_highest(level)
        by_number = np.full(len(self.by_number) + 1, _NOWHERE, dtype=np.int64)
        for group, group_points in zip(groups, points, strict=True):
            by_number[group.number] = group_points
        totals = self.level[: self._end] + by_number.take(self.group_of[: self._end])
        return Ties.of_highest(totals)

    def _find_sample(self, group: Group) -> int:
        return int((self.group_of == group.number).argmax())

    def check_invariants(self) -> None:
        super().check_invariants()
        is_nowhere = self.level == NO_LEVEL
        assert (is_nowhere == (self.group_of == NO_GROUP)).all(), "a row in no group has a level"

        assert is_nowhere[self._end :].all(), "a row is beyond the end"

    def sorted(self) -> SortedRanking:
        """The same rows in sets."""
        ranking = SortedRanking(self.capacity, self.level.dtype.type)
        rows = np.flatnonzero(self.group_of != NO_GROUP)
        keys = [(0,) * self._width if g is None else g.key for g in self.by_number]
        parts = np.array(keys, dtype=np.int64).reshape(len(keys), self._width)
        columns = [parts[:, at].take(self.group_of[rows]) for at in range(self._width)]
        ranking.put_all(rows, columns, self.level[rows])
        return ranking

    @property
    def _width(self) -> int:
        return len(next(iter(self.groups), ()))
