"""The nodes as one class of pods sees them, ready for the choice of the best.

Per row, from what depends on that row alone:

    level     the weighted scores that are not normalised
    kind      the raw scores that are normalised, and the traits by which other plugins tell nodes apart

Rows of one kind form a group: they share every verdict and every score but the level, so among them the highest level
wins. Rows that fail a filter which looks at one node only are in no group. Between two pods of a class only the rows that
were logged as changed are computed again; verdicts are computed from current state, so it does not matter how often or in
which order a row was logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.classes.row_sets import Group, blocks_for
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import (
    MAX_NODE_SCORE,
    FilterPlugin,
    RowFilterPlugin,
    RowScorePlugin,
    Scope,
    ScorePlugin,
)
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.score import raw_scores
from kubesched.framework.status import Status
from kubesched.framework.traits import Trait
from kubesched.snapshot.columns import Ints, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

SCALAR_ROWS: Final = 40
"""Up to this many changed rows are recomputed one by one; beyond, a vector pass is cheaper."""
GROUP_LIMIT: Final = 256
"""Groups are gone through one by one for every pod; with more of them, columns are as quick."""
NO_GROUP: Final = -1

Indices = np.ndarray[Any, np.dtype[np.intp]]


class Unfit(Exception):
    """The nodes cannot be kept in groups: too many kinds of them, or a plugin that fails."""


class RawScores:
    """Raw scores of one plugin that are normalised over the feasible nodes."""

    __slots__ = ("cells", "column", "plugin", "weight")

    def __init__(self, plugin: ScorePlugin, weight: int, capacity: int) -> None:
        self.plugin = plugin
        self.weight = weight
        self.column: Ints = np.zeros(capacity, dtype=np.int64)
        self.cells = _cells(self.column)


class ClassIndex:
    """Groups of rows, for one class and one table. Arrays are the table's size: a table that grew needs a new index."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        traits: Sequence[Trait],
    ) -> None:
        """Raises Unfit."""
        self._framework = framework
        self._table = table
        self.traits = tuple(traits)
        skipped_filters, skipped_scores = state.skip_filter_plugins, state.skip_score_plugins
        filters = [p for p in framework.filter if p.name not in skipped_filters]
        scores = [p for p in framework.score if p.name not in skipped_scores]
        self._node_filters = [p for p in filters if p.filter_scope is Scope.NODE]
        self._row_filters = [p for p in filters if p.filter_scope is Scope.ROW]
        weights = framework.score_weights
        self._node_scores = [
            (p, weights[p.name]) for p in scores if p.score_scope is Scope.NODE and not p.normalizes
        ]
        self._row_scores = [
            (p, weights[p.name]) for p in scores if p.score_scope is Scope.ROW and not p.normalizes
        ]
        self.raws = [
            RawScores(p, weights[p.name], table.capacity)
            for p in scores
            if p.score_scope is not Scope.CLUSTER and p.normalizes
        ]
        self._make_scalar_forms(state, pod)
        self._build(state, pod)

    def _make_scalar_forms(self, state: CycleState, pod: Pod) -> None:
        """Verdict and level of a single row, if all plugins have a form for that."""
        table = self._table
        filters = [p for p in self._row_filters if isinstance(p, RowFilterPlugin)]
        scores = [(p, weight) for p, weight in self._row_scores if isinstance(p, RowScorePlugin)]
        self._is_scalar = (
            len(filters) == len(self._row_filters)
            and len(scores) == len(self._row_scores)
            and not any(raw.plugin.score_scope is Scope.ROW for raw in self.raws)
        )
        if not self._is_scalar:
            return
        made = [p.row_filter(state, pod, table) for p in filters]
        self._passes: list[Callable[[int], bool]] = [each for each in made if each is not None]
        scorers = [(p.row_scorer(state, pod, table), weight) for p, weight in scores]
        self._points: list[tuple[Callable[[int], int], int]] = [
            (scorer, weight) for scorer, weight in scorers if scorer is not None
        ]

    # -- from scratch ----------------------------------------------------------------------------------------------

    def _build(self, state: CycleState, pod: Pod) -> None:
        table = self._table
        capacity, whole = table.capacity, slice(0, table.high_water)
        self._cursor, self._node_cursor = table.pod_log.end, table.node_log.end
        self._blocks = blocks_for(capacity)
        self._static_ok: Mask = np.zeros(capacity, dtype=np.bool_)
        self._static_level: Ints = np.zeros(capacity, dtype=np.int64)
        self._level: Ints = np.zeros(capacity, dtype=np.int64)
        self.group_of = np.full(capacity, NO_GROUP, dtype=np.int32)
        self._static_ok_cells = _cells(self._static_ok)
        self._static_level_cells = _cells(self._static_level)
        self._level_cells = _cells(self._level)
        self._group_cells = _cells(self.group_of)
        self.groups: dict[tuple[int, ...], Group] = {}
        self._by_number: list[Group | None] = []
        self._free_numbers: list[int] = []

        view = NodeColumns(table)
        self._static_ok[whole] = self._verdicts(state, pod, view, self._node_filters, view.alive)
        self._static_level[whole] = self._sum(
            state, pod, view, self._node_scores, self._static_ok[whole]
        )
        for raw in self.raws:
            raw.column[whole] = self._raw(state, pod, view, raw.plugin)
        ok = self._verdicts(state, pod, view, self._row_filters, self._static_ok[whole])
        level = self._static_level[whole] + self._sum(state, pod, view, self._row_scores, ok)
        rows = np.flatnonzero(ok)
        self._level[rows] = level[rows]
        self._put_all(rows)

    def _put_all(self, rows: Indices) -> None:
        """Sort rows that are in no group yet into groups and levels."""
        if not len(rows):
            return
        columns = [raw.column[rows] for raw in self.raws]
        columns += [trait.over(rows) for trait in self.traits]
        columns.append(self._level[rows])
        order = np.lexsort(columns)
        table = np.stack(columns)[:, order]
        changes = np.flatnonzero((table[:, 1:] != table[:, :-1]).any(axis=0)) + 1
        starts = [0, *changes.tolist()]
        rows = rows[order]
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            *kind, level = table[:, start].tolist()
            group = self._group(tuple(kind))
            group.put_all(rows[start:end], level, self._blocks)
            self.group_of[rows[start:end]] = group.number

    # -- changed rows ----------------------------------------------------------------------------------------------

    def sync(self, state: CycleState, pod: Pod) -> None:
        """Catch up with the rows that have changed. Raises Unfit."""
        table = self._table
        end = table.pod_log.end
        if end == self._cursor:
            return
        logged = table.pod_log.since(self._cursor)
        if logged is None or len(logged) > max(SCALAR_ROWS, table.high_water // 4):
            if not self._follow_nodes():
                raise Unfit
            self._build(state, pod)
            return
        if self._node_cursor != table.node_log.end:
            self._sync_nodes(state, pod)
        self._cursor = end
        if len(logged) == 1 and self._is_scalar:
            self._renew(logged[0])
            return
        rows = set(logged)
        if len(rows) > SCALAR_ROWS or not self._is_scalar:
            self._renew_together(state, pod, np.fromiter(rows, dtype=np.intp, count=len(rows)))
        else:
            for row in rows:
                self._renew(row)

    def _follow_nodes(self) -> bool:
        return all([trait.follow() for trait in self.traits])

    def _sync_nodes(self, state: CycleState, pod: Pod) -> None:
        """Renew what depends on node objects alone; the rows are in the other log as well."""
        table = self._table
        logged = table.node_log.since(self._node_cursor)
        self._node_cursor = table.node_log.end
        if logged is None or not self._follow_nodes():
            raise Unfit
        rows = np.unique(np.array(logged, dtype=np.intp))
        view = NodeColumns(table, rows)
        ok = self._verdicts(state, pod, view, self._node_filters, view.alive)
        self._static_ok[rows] = ok
        self._static_level[rows] = self._sum(state, pod, view, self._node_scores, ok)
        for raw in self.raws:
            raw.column[rows] = self._raw(state, pod, view, raw.plugin)

    def _renew(self, row: int) -> None:
        """Verdict, level and kind of one row."""
        if not self._static_ok_cells[row]:
            self._remove(row)
            return
        for passes in self._passes:
            if not passes(row):
                self._remove(row)
                return
        level = self._static_level_cells[row]
        for points, weight in self._points:
            score = points(row)
            if not 0 <= score <= MAX_NODE_SCORE:
                raise Unfit
            level += score * weight
        kind = [raw.cells[row] for raw in self.raws]
        kind += [trait.at(row) for trait in self.traits]
        self._put(row, tuple(kind), level)

    def _renew_together(self, state: CycleState, pod: Pod, rows: Indices) -> None:
        view = NodeColumns(self._table, rows)
        ok = self._verdicts(state, pod, view, self._row_filters, self._static_ok[rows])
        level = self._static_level[rows] + self._sum(state, pod, view, self._row_scores, ok)
        for raw in self.raws:
            if raw.plugin.score_scope is Scope.ROW:
                raw.column[rows] = self._raw(state, pod, view, raw.plugin)
        columns = [raw.column[rows].tolist() for raw in self.raws]
        columns += [trait.over(rows).tolist() for trait in self.traits]
        kinds: Iterable[tuple[int, ...]] = (
            zip(*columns, strict=True) if columns else [()] * len(rows)
        )
        for row, passes, each, kind in zip(
            rows.tolist(), ok.tolist(), level.tolist(), kinds, strict=True
        ):
            if passes:
                self._put(row, kind, each)
            else:
                self._remove(row)

    # -- groups ----------------------------------------------------------------------------------------------------

    def _group(self, kind: tuple[int, ...]) -> Group:
        group = self.groups.get(kind)
        if group is None:
            if len(self.groups) >= GROUP_LIMIT:
                raise Unfit
            if self._free_numbers:
                group = Group(kind, self._free_numbers.pop())
                self._by_number[group.number] = group
            else:
                group = Group(kind, len(self._by_number))
                self._by_number.append(group)
            self.groups[kind] = group
        return group

    def _put(self, row: int, kind: tuple[int, ...], level: int) -> None:
        group = self.groups.get(kind)
        number = self._group_cells[row]
        if group is not None and group.number == number:
            before = self._level_cells[row]
            if before != level:
                group.put(row, level, self._blocks)
                group.take(row, before)
                self._level_cells[row] = level
            return
        if number != NO_GROUP:
            self._remove(row)
        if group is None:
            group = self._group(kind)
        group.put(row, level, self._blocks)
        self._level_cells[row] = level
        self._group_cells[row] = group.number

    def _remove(self, row: int) -> None:
        number = self._group_cells[row]
        if number == NO_GROUP:
            return
        group = self._by_number[number]
        assert group is not None, f"row {row} is in a group that is gone"
        group.take(row, self._level_cells[row])
        self._group_cells[row] = NO_GROUP
        if not group.count:
            del self.groups[group.key]
            self._by_number[number] = None
            self._free_numbers.append(number)

    def feasible_rows(self, groups: Sequence[Group]) -> Mask:
        """The rows of some groups, as a mask over all rows in use."""
        passing = np.zeros(len(self._by_number) + 1, dtype=np.bool_)
        passing[[group.number for group in groups]] = True
        passing[NO_GROUP] = False
        found: Mask = passing[self.group_of[: self._table.high_water]]
        return found

    # -- asking plugins --------------------------------------------------------------------------------------------

    def _verdicts(
        self,
        state: CycleState,
        pod: Pod,
        nodes: NodeColumns,
        plugins: list[FilterPlugin],
        passing: Mask,
    ) -> Mask:
        outcome = run_filters(self._framework, state, pod, nodes, plugins, passing.copy())
        if outcome.error is not None:
            raise Unfit
        return outcome.passing

    def _sum(
        self,
        state: CycleState,
        pod: Pod,
        nodes: NodeColumns,
        plugins: list[tuple[ScorePlugin, int]],
        ok: Mask,
    ) -> Ints:
        total = np.zeros(len(nodes), dtype=np.int64)
        for plugin, weight in plugins:
            raw = self._raw(state, pod, nodes, plugin)
            if ((raw.view(np.uint64) > MAX_NODE_SCORE) & ok).any():
                raise Unfit
            total += raw * weight
        return total

    @staticmethod
    def _raw(state: CycleState, pod: Pod, nodes: NodeColumns, plugin: ScorePlugin) -> Ints:
        raw = raw_scores(plugin, state, pod, nodes)
        if isinstance(raw, Status):
            raise Unfit
        return raw

    # -- self-check ------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Every row is in the one set its group and level say, and sets hold nothing else."""
        for kind, group in self.groups.items():
            assert group.key == kind, f"group {group.key} is kept as {kind}"
            assert group.levels == sorted(group.sets), f"levels of group {kind} drifted"
            for level, members in group.members():
                expected = np.flatnonzero((self.group_of == group.number) & (self._level == level))
                assert members.rows().tolist() == expected.tolist(), f"group {kind} drifted"
                assert members.count == len(expected) > 0, f"count of group {kind} drifted"
            assert group.count == np.count_nonzero(self.group_of == group.number)
        grouped = sum(group.count for group in self.groups.values())
        assert grouped == np.count_nonzero(self.group_of != NO_GROUP), "a row is in no group's set"


def _cells(array: np.ndarray[Any, Any]) -> memoryview:
    """Single cells of an array, faster than the array itself gives them."""
    return memoryview(array)  # type: ignore[arg-type]  # arrays offer the buffer protocol
