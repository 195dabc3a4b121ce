"""The groups of one class over the shared ranking of a row layer, for one decision.

Pods with equal specs but different labels see the same nodes, except for the few on which pods of their own app are
counted. These rows are taken out of the shared groups and put into groups of their own:

```
 shared ranking       zone a: level 140 {0, 2, 5}, level 120 {7}      zone b: level 150 {1, 4}
 pods of the app      on rows 2 and 4
                          |
 groups of the class  zone a, 0 pods: {0, 5}, {7}    zone b, 0 pods: {1}    zone a, 1 pod: {2}    zone b, 1 pod: {4}
```

Nothing is copied: a group without some rows is the shared group and a list of these rows. Rows that fail because of nominated
pods are left out in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kubesched.equivalence.ranking import NO_GROUP, Group, GroupKey, SortedRanking, Ties
from kubesched.equivalence.row_sets import RowSet, nth_of
from kubesched.framework.traits import Trait
from kubesched.snapshot.columns import Levels, Mask


class Part(Group):
    """A shared group without some of its rows, or a few rows that differ from all shared groups."""

    __slots__ = ("out", "rows", "top", "top_count", "top_set")

    def __init__(self, key: GroupKey, number: int) -> None:
        super().__init__(key, number)
        self.top = 0
        """The highest level of its rows."""
        self.top_count = 0
        self.top_set: RowSet | None = None
        """The shared set of the rows at that level ..."""
        self.out: list[int] = []
        """... without these."""
        self.rows: list[int] = []
        """All rows of a group that is not shared."""


class Overlay:
    """Answers as a ranking of the whole class would. Valid until a row changes."""

    def __init__(
        self,
        base: SortedRanking,
        rows: Iterable[int],
        traits: Sequence[Trait],
        refused: Iterable[int] = (),
    ) -> None:
        """The rows are told apart by the traits; the refused ones are in no group."""
        self._base = base
        self.level: Levels = base.level
        self._parts: list[Group] = []
        """The groups that are not shared groups as they stand."""
        self._hidden: dict[int, list[int]] = {}
        """Group number -> rows taken out of it."""
        for row in refused:
            group = base.group_at(row)
            if group is not None:
                self._hidden.setdefault(group.number, []).append(row)
        own: dict[GroupKey, Part] = {}
        for row in rows:
            group = base.group_at(row)
            if group is None:
                continue
            self._hidden.setdefault(group.number, []).append(row)
            key = (group.number, *[trait.at(row) for trait in traits])
            part = own.get(key)
            if part is None:
                part = own[key] = Part((*group.key, *key), NO_GROUP)
                part.sample = row
            part.rows.append(row)
        for part in own.values():
            self._finish(part)
            self._parts.append(part)
        for number, hidden in self._hidden.items():
            rest = self._without(number, hidden)
            if rest is not None:
                self._parts.append(rest)

    def _finish(self, part: Part) -> None:
        level_of = self._base.level_at
        levels = [level_of(row) for row in part.rows]
        part.count, part.top = len(levels), max(levels)
        part.top_count = levels.count(part.top)

    def _without(self, number: int, hidden: list[int]) -> Part | None:
        """The rest of a shared group; None if nothing is left."""
        group = self._base.by_number[number]
        assert group is not None, f"rows are in group {number}, which is gone"
        if group.count == len(hidden):
            return None
        part = Part(group.key, number)
        part.count = group.count - len(hidden)
        level_of = self._base.level_at
        levels = [level_of(row) for row in hidden]
        for level in reversed(group.levels):
            rows = group.sets[level]
            left = rows.count - levels.count(level)
            if left:
                part.top, part.top_count, part.top_set = level, left, rows
                part.out = [row for row, its in zip(hidden, levels, strict=True) if its == level]
                break
        assert part.top_set is not None, f"group {number} has rows but no level"
        part.sample = nth_of((part.top_set,), 0, part.out)
        return part

    # -- as a ranking ----------------------------------------------------------------------------------------------

    def live_groups(self) -> list[Group]:
        hidden = self._hidden
        shared = [group for group in self._base.live_groups() if group.number not in hidden]
        return shared + self._parts

    def sample(self, group: Group) -> int:
        return group.sample if isinstance(group, Part) else self._base.sample(group)

    def best(self, groups: Sequence[Group], points: Sequence[int]) -> Ties:
        totals = [
            own + (group.top if isinstance(group, Part) else group.levels[-1])
            for own, group in zip(points, groups, strict=True)
        ]
        highest = max(totals)
        sets: list[RowSet] = []
        flipped: set[int] = set()
        count = 0
        for group, total in zip(groups, totals, strict=True):
            if total != highest:
                continue
            if not isinstance(group, Part):
                rows = group.sets[group.levels[-1]]
                sets.append(rows)
                count += rows.count
                continue
            count += group.top_count
            if group.top_set is not None:
                sets.append(group.top_set)
                flipped.symmetric_difference_update(group.out)
            else:
                level_of, top = self._base.level_at, group.top
                flipped.symmetric_difference_update(
                    [row for row in group.rows if level_of(row) == top]
                )
        if not sets:
            return Ties(count, (), np.array(sorted(flipped), dtype=np.intp))
        return Ties(count, sets, flipped=tuple(flipped))

    def rows_of(self, groups: Sequence[Group], high_water: int) -> Mask:
        shared = [group for group in groups if group.number != NO_GROUP]
        mask = self._base.rows_of(shared, high_water)
        for hidden in self._hidden.values():
            mask[hidden] = False
        for group in groups:
            if isinstance(group, Part) and group.rows:
                mask[group.rows] = True
        return mask
