"""The nodes as one class of pods sees them, ready for the choice of the best.

Per row, from what depends on that row alone:

    level     the weighted scores that are not normalised
    kind      the raw scores that are normalised, and the traits by which other plugins tell nodes apart

Rows of one kind form a group: they share every verdict and every score but the level, so among them the highest level
wins (`ranking`). Rows that fail a filter which looks at one node only are in no group. Between two pods of a class only the rows that
were logged as changed are computed again; verdicts are computed from current state, so it does not matter how often or in
which order a row was logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.classes.ranking import (
    Kind,
    LooseRanking,
    SortedRanking,
    TooManyGroups,
)
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

SCALAR_ROWS: Final = 28
"""Up to this many changed rows are recomputed one by one; beyond, a vector pass is cheaper."""
LOOSE_ROWS: Final = 24
LOOSE_SHARE: Final = 400
"""With more changed rows than this, and than one in so many, looking through all rows costs less than sorting these in."""
CALM_USES: Final = 16
"""After this many pods in a row that found fewer rows changed, they are sorted again."""

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
        self._kinds_are_static = all(t.is_static for t in self.traits) and all(
            raw.plugin.score_scope is Scope.NODE for raw in self.raws
        )
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
        self._static_ok: Mask = np.zeros(capacity, dtype=np.bool_)
        self._static_level: Ints = np.zeros(capacity, dtype=np.int64)
        self._static_ok_cells = _cells(self._static_ok)
        self._static_level_cells = _cells(self._static_level)
        self.ranking: SortedRanking | LooseRanking = SortedRanking(capacity)
        self._calm_uses = 0

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
        kinds = [raw.column[rows] for raw in self.raws]
        kinds += [trait.over(rows) for trait in self.traits]
        try:
            self.ranking.put_all(rows, kinds, level[rows])
        except TooManyGroups:
            raise Unfit from None

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
        nodes_changed = self._node_cursor != table.node_log.end
        if nodes_changed:
            self._sync_nodes(state, pod)
        self._cursor = end
        keeps_kind = self._kinds_are_static and not nodes_changed
        rows = logged if len(logged) == 1 else list(dict.fromkeys(logged))
        if len(rows) > LOOSE_ROWS or isinstance(self.ranking, LooseRanking):
            self._choose_way(len(rows))
        try:
            if len(rows) > SCALAR_ROWS or not self._is_scalar:
                index = np.array(rows, dtype=np.intp)
                self._renew_together(state, pod, index, keeps_kind=keeps_kind)
            else:
                for row in rows:
                    self._renew(row, keeps_kind=keeps_kind)
        except TooManyGroups:
            raise Unfit from None

    def _choose_way(self, changed: int) -> None:
        """Keep rows sorted, or loose, by how many change between two pods."""
        is_much = changed > max(LOOSE_ROWS, self._table.high_water // LOOSE_SHARE)
        ranking = self.ranking
        if isinstance(ranking, SortedRanking):
            if is_much:
                self.ranking, self._calm_uses = LooseRanking(ranking), 0
            return
        self._calm_uses = 0 if is_much else self._calm_uses + 1
        if self._calm_uses > CALM_USES:
            self.ranking = ranking.sorted()

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

    def _renew(self, row: int, *, keeps_kind: bool) -> None:
        """Verdict, level and, unless it is what it was, kind of one row."""
        ranking = self.ranking
        if not self._static_ok_cells[row]:
            ranking.remove(row)
            return
        for passes in self._passes:
            if not passes(row):
                ranking.remove(row)
                return
        level = self._static_level_cells[row]
        for points, weight in self._points:
            score = points(row)
            if not 0 <= score <= MAX_NODE_SCORE:
                raise Unfit
            level += score * weight
        if keeps_kind and ranking.relevel_one(row, level):
            return
        kind = [raw.cells[row] for raw in self.raws]
        kind += [trait.at(row) for trait in self.traits]
        ranking.put(row, tuple(kind), level)

    def _renew_together(
        self, state: CycleState, pod: Pod, rows: Indices, *, keeps_kind: bool
    ) -> None:
        view = NodeColumns(self._table, rows)
        ok = self._verdicts(state, pod, view, self._row_filters, self._static_ok[rows])
        level = self._static_level[rows] + self._sum(state, pod, view, self._row_scores, ok)
        for raw in self.raws:
            if raw.plugin.score_scope is Scope.ROW:
                raw.column[rows] = self._raw(state, pod, view, raw.plugin)
        ranking = self.ranking
        if keeps_kind and isinstance(ranking, LooseRanking):
            ok, rows, level = ranking.relevel(rows, ok, level)
            if not len(rows):
                return
        columns = [raw.column[rows].tolist() for raw in self.raws]
        columns += [trait.over(rows).tolist() for trait in self.traits]
        kinds: Iterable[Kind] = zip(*columns, strict=True) if columns else [()] * len(rows)
        for row, passes, each, kind in zip(
            rows.tolist(), ok.tolist(), level.tolist(), kinds, strict=True
        ):
            if passes:
                ranking.put(row, kind, each)
            else:
                ranking.remove(row)

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

    def check_invariants(self) -> None:
        if isinstance(self.ranking, SortedRanking):
            self.ranking.check_invariants()


def _cells(array: np.ndarray[Any, Any]) -> memoryview:
    """Single cells of an array, faster than the array itself gives them."""
    return memoryview(array)  # type: ignore[arg-type]  # arrays offer the buffer protocol
