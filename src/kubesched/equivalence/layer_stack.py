"""Row layers of many shapes, kept up to date together.

Where pods of many shapes take turns, the layer of each finds the rows that all others have changed. Layers whose plugins can
answer for several pods at once (`Rule.together`) are stacked: their columns are the lines of shared matrices, and every few
pods the dirty rows are evaluated for all of them with one array operation per step of a formula.

```
 dirty rows           0     3     7        (since the last time, at most 8)
 shape 100m, 500Mi    140   138   -
 shape 101m, 500Mi    139   138   -        one evaluation, shapes by rows
 shape 102m, 500Mi    139   137   140
                            |
 next pod of a shape: its line of the matrices, and the few rows that have become dirty since, one by one
```

A row that begins or ceases to pass for some shape is only noted down here (`pending`): the layer moves it when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from kubesched.equivalence.ranking import NO_LEVEL
from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.rules import ManyPods, Together
from kubesched.snapshot.columns import Indices, Levels, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

Array = np.ndarray[Any, Any]

STACKED_ROWS: Final = 8
"""More dirty rows than this are evaluated for all layers at once; fewer, one by one for the layer that is used."""

CELLS_LIMIT: Final = 1 << 16
"""Dirty rows times layers: with more, which take milliseconds, each layer is rebuilt when it is used."""


_UNSIGNED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""By bytes per item."""


class Columns(NamedTuple):
    """What a layer keeps per row; in a stack with a line for each layer."""

    level: Levels
    """NO_LEVEL for rows in no group."""
    static_ok: Mask
    static_level: Levels

    def mapped(self, change: Callable[[Array], Array]) -> Columns:
        return Columns(*[change(column) for column in self.arrays])

    @property
    def arrays(self) -> list[Array]:
        return list(self)


class Stackable(Protocol):
    """A layer in a stack."""

    filters: list[Together]
    scores: list[tuple[Together, int]]
    """With their weights."""
    pending: list[int]
    """Rows that begin or cease to pass."""

    @property
    def has_node_scores(self) -> bool:
        """May static levels be other than zero?"""

    @property
    def columns(self) -> Columns: ...

    def move_to(self, columns: Columns) -> None:
        """Use these columns, which have the same content as those in use, from now on."""


class LayerStack:
    """Layers with equal rules but for their numbers, over one layout of the node table."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._members: list[Stackable] = []
        self._columns: Columns | None = None
        self._filters: list[ManyPods] = []
        self._scores: list[tuple[ManyPods, int]] = []
        self._has_node_scores = False
        self._is_joined = False
        self.cursor = table.pod_log.end
        """All layers are up to date with the log until here, but for their pending rows."""

    def add(self, layer: Stackable) -> None:
        """A layer that is up to date."""
        at, columns = len(self._members), self._columns
        if columns is None or at == len(columns.level):
            columns = self._columns = _with_room(columns, layer.columns, 2 * at or 8)
            for line, member in enumerate(self._members):
                member.move_to(_line(columns, line))
        if not at:
            self.cursor = self._table.pod_log.end
        self._members.append(layer)
        self._is_joined = False
        self._move(layer, at)

    def remove(self, layer: Stackable) -> None:
        """The layer takes its columns along."""
        at = next(at for at, member in enumerate(self._members) if member is layer)
        layer.move_to(layer.columns.mapped(lambda column: column.copy()))
        last = self._members.pop()
        self._is_joined = False
        if last is not layer:
            self._members[at] = last
            self._move(last, at)

    def _move(self, layer: Stackable, line: int) -> None:
        assert self._columns is not None, "a stack with layers has columns"
        columns = _line(self._columns, line)
        for new, old in zip(columns.arrays, layer.columns.arrays, strict=True):
            new[:] = old
        layer.move_to(columns)

    def refresh(self) -> bool:
        """Evaluate the dirty rows if they are many; False if there are too many, or a plugin's answer is out of range."""
        table = self._table
        end = table.pod_log.end
        if end - self.cursor <= STACKED_ROWS:
            return True
        logged, count = table.pod_log.since(self.cursor), len(self._members)
        if logged is None or len(logged) * count > CELLS_LIMIT or self._columns is None:
            return False
        if not self._is_joined:
            self._join()
        rows = np.array([*dict.fromkeys(logged)], dtype=np.intp)
        nodes = NodeColumns(table, rows)
        level = self._evaluate(nodes, rows)
        if level is None:
            return False
        levels = self._columns.level[:count]
        before = levels.take(rows, axis=1)
        verdicts = [passes(nodes) for passes in self._filters]
        # Usually every row was in a group of every layer, and stays there.
        if before.min() == NO_LEVEL or not all([verdict.all() for verdict in verdicts]):
            is_grouped = before != NO_LEVEL
            level[~is_grouped] = NO_LEVEL
            passing: Mask = self._columns.static_ok[:count].take(rows, axis=1)
            for verdict in verdicts:
                passing &= verdict
            lines, places = np.nonzero(passing != is_grouped)
            for line, row in zip(lines.tolist(), rows[places].tolist(), strict=True):
                self._members[line].pending.append(row)
        levels[:, rows] = level
        self.cursor = end
        return True

    def _evaluate(self, nodes: NodeColumns, rows: Indices) -> Levels | None:
        """The levels at some rows, layers by rows; None if a plugin's answer is out of range."""
        assert self._columns is not None, "a stack with layers has columns"
        count = len(self._members)
        if self._has_node_scores:
            level: Levels = self._columns.static_level[:count].take(rows, axis=1)
        else:  # most of what is kept per layer and row is far away in memory
            level = np.zeros((count, len(rows)), dtype=self._columns.level.dtype)
        for points_of, weight in self._scores:
            points = points_of(nodes)
            # Read as unsigned, a negative score is huge.
            if points.view(_UNSIGNED[points.itemsize]).max() > MAX_NODE_SCORE:
                return None
            if weight != 1:  # in the type of the levels: points may be of a narrower one
                points = points * level.dtype.type(weight)
            level += points
        return level

    def _join(self) -> None:
        members = self._members
        self._has_node_scores = any([member.has_node_scores for member in members])
        self._filters = [
            rules[0].join([rule.numbers for rule in rules])
            for rules in zip(*[member.filters for member in members], strict=True)
        ]
        self._scores = [
            (rules[0][0].join([rule.numbers for rule, _ in rules]), rules[0][1])
            for rules in zip(*[member.scores for member in members], strict=True)
        ]
        self._is_joined = True


def _line(columns: Columns, at: int) -> Columns:
    return columns.mapped(lambda column: column[at])


def _with_room(columns: Columns | None, like: Columns, lines: int) -> Columns:
    """Matrices with so many lines, of which the first have the old content."""
    wider = like.mapped(lambda column: np.zeros((lines, len(column)), dtype=column.dtype))
    if columns is not None:
        for new, old in zip(wider.arrays, columns.arrays, strict=True):
            new[: len(old)] = old
    return wider


class LayerStacks:
    """The stacks of a table, by what the rules of their layers have in common."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._epoch = table.epoch
        self._stacks: dict[Hashable, LayerStack] = {}

    def of(self, key: Hashable) -> LayerStack:
        """The stack for layers with that key."""
        if self._epoch != self._table.epoch:
            self._epoch, self._stacks = self._table.epoch, {}
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._stacks[key] = LayerStack(self._table)
        return stack
