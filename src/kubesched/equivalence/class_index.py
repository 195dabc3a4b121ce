"""Verdicts and scores of one class for all nodes, grouped for the choice of the best.

Per row, computed from that row alone:

    level        the weighted scores that are not normalised
    raw scores   the scores that are normalised over the feasible nodes, before normalisation
    group key    the raw scores, and the traits by which other plugins tell nodes apart

Rows with equal keys form a group: they share every verdict and every score but the level, so among them the highest level
wins (`ranking`). Rows that fail a filter of NODE or ROW scope are in no group. Between two pods of a class only dirty rows
are computed again; verdicts are computed from current state, so it does not matter how often or in which order a row was
logged.

An index without traits to group by (`traits=None`) has a single group, and its raw scores stay outside the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.layer_stack import Columns, LayerStack, LayerStacks
from kubesched.equivalence.ranking import (
    NO_LEVEL,
    GroupKey,
    SortedRanking,
    TooManyGroups,
    UnsortedRanking,
    level_type,
)
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import MAX_NODE_SCORE, FilterPlugin, ScorePlugin
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.score import raw_scores
from kubesched.framework.status import Status
from kubesched.framework.traits import Trait
from kubesched.snapshot.columns import Indices, Ints, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

SCALAR_ROWS: Final = 28
"""Up to this many dirty rows are recomputed one by one; beyond, a vector pass is cheaper."""
UNSORTED_ROWS: Final = 24
UNSORTED_SHARE: Final = 400
"""With more dirty rows than this, and than one row in so many, a search over all rows beats sorting these in."""
CALM_USES: Final = 16
"""After this many pods in a row that found fewer dirty rows, rows are sorted again."""


class Unfit(Exception):
    """The plan cannot be made or used: there are too many groups, or a plugin failed."""


class IndexedFilter(NamedTuple):
    """A filter of NODE or ROW scope."""

    plugin: FilterPlugin
    rule: Rule[bool]


class IndexedScore(NamedTuple):
    """A score of NODE or ROW scope."""

    plugin: ScorePlugin
    weight: int
    rule: Rule[int]


class RawScores:
    """Raw scores of one plugin that are normalised over the feasible nodes."""

    __slots__ = ("cells", "column", "plugin", "scope", "weight")

    def __init__(self, score: IndexedScore, capacity: int) -> None:
        self.plugin = score.plugin
        self.weight = score.weight
        self.scope = score.rule.depends_on
        self.column: Ints = np.zeros(capacity, dtype=np.int64)
        self.cells = _cells(self.column)

    def copy(self) -> RawScores:
        twin = RawScores.__new__(RawScores)
        twin.plugin, twin.weight, twin.scope = self.plugin, self.weight, self.scope
        twin.column = self.column.copy()
        twin.cells = _cells(twin.column)
        return twin


class ClassIndex:
    """Groups of rows, for one class and one table. Arrays are the table's size: a table that grew needs a new index."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        filters: Sequence[IndexedFilter],
        scores: Sequence[IndexedScore],
        traits: Sequence[Trait] | None,
        stacks: LayerStacks,
    ) -> None:
        """Raises Unfit."""
        self._framework = framework
        self._stacks = stacks
        self._table = table
        self._is_grouped = traits is not None
        # The same for all classes of a profile, whichever scores they leave out: their columns may be in one stack.
        self._level_type = level_type(MAX_NODE_SCORE * sum(framework.score_weights.values()))
        self._node_filters = [f.plugin for f in filters if f.rule.depends_on is Scope.NODE]
        self._row_filters = [f.plugin for f in filters if f.rule.depends_on is Scope.ROW]
        plain = [score for score in scores if not score.plugin.normalizes]
        self._node_scores = [s for s in plain if s.rule.depends_on is Scope.NODE]
        self._row_scores = [s for s in plain if s.rule.depends_on is Scope.ROW]
        self.raws = [RawScores(s, table.capacity) for s in scores if s.plugin.normalizes]
        self._keyed_raws = self.raws if self._is_grouped else []
        self._group_by(traits or ())
        row_filters = [f for f in filters if f.rule.depends_on is Scope.ROW]
        passes = [f.rule.at for f in row_filters if f.rule.at is not None]
        points = [(s.rule.at, s.weight) for s in self._row_scores if s.rule.at is not None]
        self._level_at = _level_at(passes, points)
        self._is_scalar = (
            len(passes) == len(row_filters)
            and len(points) == len(self._row_scores)
            and not any(raw.scope is Scope.ROW for raw in self.raws)
        )
        self._stack: LayerStack | None = None
        self.pending: list[int] = []
        self._stack_key = self._find_stack_key(row_filters)
        self._build(state, pod)

    def _find_stack_key(self, row_filters: Sequence[IndexedFilter]) -> Hashable:
        """Equal for indices that can be in one stack; None if this one cannot be in any."""
        filters, scores = row_filters, self._row_scores
        self.filters = [f.rule.together for f in filters if f.rule.together is not None]
        self.scores = [(s.rule.together, s.weight) for s in scores if s.rule.together is not None]
        is_stackable = self._is_scalar and self._is_grouped and self._has_static_keys
        if not is_stackable or len(self.filters) < len(filters) or len(self.scores) < len(scores):
            return None
        plugins = (*[f.plugin for f in filters], *[(s.plugin, s.weight) for s in scores])
        return plugins, *[rule.key for rule in (*self.filters, *[rule for rule, _ in self.scores])]

    def _group_by(self, traits: Sequence[Trait]) -> None:
        self._traits = tuple(traits)
        self._has_static_keys = all([t.is_static for t in traits]) and all(
            [raw.scope is Scope.NODE for raw in self._keyed_raws]
        )

    @property
    def columns(self) -> Columns:
        return Columns(self.ranking.level, self._static_ok, self._static_level)

    @property
    def has_node_scores(self) -> bool:
        """See `Stackable`."""
        return bool(self._node_scores)

    def move_to(self, columns: Columns) -> None:
        """See `Stackable`."""
        self._static_ok, self._static_level = columns.static_ok, columns.static_level
        self._adopt()
        self.ranking.move_to(self.ranking.group_of, columns.level)

    def _adopt(self) -> None:
        self._static_ok_cells = _cells(self._static_ok)
        self._static_level_cells = _cells(self._static_level)

    # -- from scratch ----------------------------------------------------------------------------------------------

    def _build(self, state: CycleState, pod: Pod) -> None:
        table = self._table
        self.leave_stack()
        capacity, whole = table.capacity, slice(0, table.high_water)
        self._cursor, self._node_cursor = table.pod_log.end, table.node_log.end
        self._static_ok = np.zeros(capacity, dtype=np.bool_)
        self._static_level = np.zeros(capacity, dtype=self._level_type)
        self._adopt()
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
        self.ranking: SortedRanking | UnsortedRanking
        self._is_sorted = self._is_grouped
        if not self._is_grouped:
            self.ranking = UnsortedRanking.of_one_group(
                capacity, rows, level[rows], self._level_type
            )
            return
        ranking = self.ranking = SortedRanking(capacity, self._level_type)
        keys = [raw.column[rows] for raw in self._keyed_raws]
        keys += [trait.over(rows) for trait in self._traits]
        try:
            ranking.put_all(rows, keys, level[rows])
        except TooManyGroups:
            raise Unfit from None

    def split(self, traits: Sequence[Trait], rows: Iterable[int]) -> ClassIndex | None:
        """A copy with other traits, which tell the same rows apart but for some. None while rows are not sorted.

        No plugin is asked, so this costs a fraction of an index from scratch.
        """
        ranking = self.ranking
        if not isinstance(ranking, SortedRanking):
            return None
        copy = ClassIndex.__new__(ClassIndex)
        vars(copy).update(vars(self))
        copy._static_ok, copy._static_level = self._static_ok.copy(), self._static_level.copy()
        copy._adopt()
        copy.raws = [raw.copy() for raw in self.raws]
        copy._keyed_raws = copy.raws
        copy._group_by(traits)
        copy._stack, copy.pending = None, []
        if not copy._has_static_keys:
            copy._stack_key = None
        try:
            copy.ranking = ranking.split(rows, copy._key_of)
        except TooManyGroups:
            raise Unfit from None
        return copy

    @property
    def lag(self) -> int:
        """Entries of the log that `sync` has not seen."""
        return self._table.pod_log.end - self._cursor

    # -- dirty rows ------------------------------------------------------------------------------------------------

    def sync(self, state: CycleState, pod: Pod) -> None:
        """Catch up with the dirty rows. Raises Unfit."""
        table = self._table
        end = table.pod_log.end
        if end == self._cursor:
            return
        lag = end - self._cursor
        if self._stack is not None and self._follow_stack(self._stack, lag):
            return
        logged = table.pod_log.since(self._cursor)
        if logged is None or (len(logged) > SCALAR_ROWS and len(logged) > table.high_water // 4):
            if not self._follow_nodes():
                raise Unfit
            self._build(state, pod)
            return
        nodes_changed = self._node_cursor != table.node_log.end
        if nodes_changed:
            self.pending += self._sync_nodes(state, pod)
        if self.pending:
            logged, self.pending = logged + self.pending, []
        self._cursor = end
        keeps_key = self._has_static_keys and not nodes_changed
        rows = logged if len(logged) == 1 else list(dict.fromkeys(logged))
        if len(rows) > UNSORTED_ROWS or not self._is_sorted:
            self._choose_order(len(rows) if self._stack is None else lag)
        try:
            if len(rows) > SCALAR_ROWS or not self._is_scalar:
                index = np.array(rows, dtype=np.intp)
                self._renew_together(state, pod, index, keeps_key=keeps_key)
            else:
                self._renew(rows, keeps_key=keeps_key)
        except TooManyGroups:
            raise Unfit from None
        if not self._is_sorted and self._stack is None and self._stack_key is not None:
            self._stack = self._stacks.of(self._stack_key)
            self._stack.add(self)

    def _follow_stack(self, stack: LayerStack, lag: int) -> bool:
        """Have the stack evaluate the dirty rows, if they are many, and then the few that are left.

        Returns whether that was all: not if nodes have changed, or the layer need not be in a stack any more.
        """
        table = self._table
        if not stack.refresh():
            self.leave_stack()
            return False
        self._cursor = max(self._cursor, stack.cursor)
        logged = table.pod_log.since(self._cursor)
        if logged is None or self._node_cursor != table.node_log.end or not self._is_much(lag):
            return False
        if len(self.pending) > SCALAR_ROWS:
            return False
        self._calm_uses = 0
        if self.pending:
            logged, self.pending = logged + self.pending, []
        self._cursor = table.pod_log.end
        moved = self._relevel(logged)
        if moved:
            try:
                self._renew(dict.fromkeys(moved), keeps_key=True)
            except TooManyGroups:
                raise Unfit from None
        return True

    def leave_stack(self) -> None:
        """Keep columns of its own."""
        if self._stack is not None:
            self._cursor = max(self._cursor, self._stack.cursor)
            self._stack.remove(self)
            self._stack = None

    def _choose_order(self, changed: int) -> None:
        """Keep rows sorted or not, by how many are dirty between two pods."""
        if not self._is_grouped:
            return
        is_much = self._is_much(changed)
        if not self._is_sorted and is_much:
            self._calm_uses = 0
            return
        ranking = self.ranking
        if isinstance(ranking, SortedRanking):
            if is_much:
                self.ranking, self._calm_uses = UnsortedRanking.of(ranking), 0
                self._is_sorted = False
            return
        self._calm_uses += 1
        if self._calm_uses > CALM_USES:
            self.leave_stack()
            self.ranking, self._is_sorted = ranking.sorted(), True

    def _is_much(self, changed: int) -> bool:
        return changed > UNSORTED_ROWS and changed > self._table.high_water // UNSORTED_SHARE

    def _follow_nodes(self) -> bool:
        return all([trait.follow() for trait in self._traits])

    def _sync_nodes(self, state: CycleState, pod: Pod) -> list[int]:
        """Renew what depends on node objects alone, and return the rows.

        They are in the other log as well, but a stack may have evaluated them before, from what was kept of the nodes.
        """
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
        return logged

    def _relevel(self, rows: Iterable[int]) -> list[int]:
        """In a stack: levels of rows that stay in their groups. Returns the others.

        Nothing but the level is read. Layers that take turns find their columns out of the CPU's caches.
        """
        levels, level_at = self.ranking.level_cells, self._level_at
        static_level = self._static_level_cells if self._node_scores else None
        moved: list[int] = []
        for row in rows:
            # Static verdicts are part of the level.
            if levels[row] == NO_LEVEL or (level := level_at(row)) == NO_LEVEL:
                moved.append(row)
            else:
                levels[row] = level if static_level is None else level + static_level[row]
        return moved

    def _renew(self, rows: Iterable[int], *, keeps_key: bool) -> None:
        """Verdict, level and, unless it is what it was, key of some rows, one by one."""
        ranking, level_at = self.ranking, self._level_at
        static_ok, static_level = self._static_ok_cells, self._static_level_cells
        for row in rows:
            if not static_ok[row] or (level := level_at(row)) == NO_LEVEL:
                ranking.remove(row)
                continue
            level += static_level[row]
            if not keeps_key or not ranking.relevel_one(row, level):
                ranking.put(row, self._key_of(row), level)

    def _key_of(self, row: int) -> GroupKey:
        key = [raw.cells[row] for raw in self._keyed_raws]
        key += [trait.at(row) for trait in self._traits]
        return tuple(key)

    def _renew_together(
        self, state: CycleState, pod: Pod, rows: Indices, *, keeps_key: bool
    ) -> None:
        view = NodeColumns(self._table, rows)
        ok = self._verdicts(state, pod, view, self._row_filters, self._static_ok[rows])
        level = self._static_level[rows] + self._sum(state, pod, view, self._row_scores, ok)
        for raw in self.raws:
            if raw.scope is Scope.ROW:
                raw.column[rows] = self._raw(state, pod, view, raw.plugin)
        ranking = self.ranking
        if keeps_key and isinstance(ranking, UnsortedRanking):
            ok, rows, level = ranking.relevel(rows, ok, level)
            if not len(rows):
                return
        columns = [raw.column[rows].tolist() for raw in self._keyed_raws]
        columns += [trait.over(rows).tolist() for trait in self._traits]
        keys: Iterable[GroupKey] = zip(*columns, strict=True) if columns else [()] * len(rows)
        for row, passes, row_level, key in zip(
            rows.tolist(), ok.tolist(), level.tolist(), keys, strict=True
        ):
            if passes:
                ranking.put(row, key, row_level)
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
        scores: Sequence[IndexedScore],
        ok: Mask,
    ) -> Ints:
        total = np.zeros(len(nodes), dtype=np.int64)
        for plugin, weight, _ in scores:
            raw = self._raw(state, pod, nodes, plugin)
            # Read as unsigned, a negative score is huge: one comparison finds both kinds of error.
            is_wrong = raw.view(np.uint64) > MAX_NODE_SCORE
            if is_wrong.any() and (is_wrong & ok).any():
                raise Unfit
            total += raw * weight
        return total

    @staticmethod
    def _raw(state: CycleState, pod: Pod, nodes: NodeColumns, plugin: ScorePlugin) -> Ints:
        raw = raw_scores(plugin, state, pod, nodes)
        if isinstance(raw, Status):
            raise Unfit
        return np.full(len(nodes), raw, dtype=np.int64) if isinstance(raw, int) else raw

    def check_invariants(self) -> None:
        self.ranking.check_invariants()


def _level_at(
    all_passes: Sequence[Callable[[int], bool]],
    all_points: Sequence[tuple[Callable[[int], int], int]],
) -> Callable[[int], int]:
    """What pods on a node make of its level, row by row: NO_LEVEL if it does not pass. Points out of range raise Unfit."""

    def level_at(row: int) -> int:
        for passes in all_passes:
            if not passes(row):
                return NO_LEVEL
        level = 0
        for points, weight in all_points:
            score = points(row)
            if not 0 <= score <= MAX_NODE_SCORE:
                raise Unfit
            level += score * weight
        return level

    if len(all_passes) != 1 or len(all_points) != 2:
        return level_at
    (fits,), ((first, first_weight), (second, second_weight)) = all_passes, all_points

    def usual_level_at(row: int) -> int:
        """Of most pods: NodeResourcesFit with its score, and NodeResourcesBalancedAllocation."""
        if not fits(row):
            return NO_LEVEL
        one, other = first(row), second(row)
        if not (0 <= one <= MAX_NODE_SCORE and 0 <= other <= MAX_NODE_SCORE):
            raise Unfit
        return one * first_weight + other * second_weight

    return usual_level_at


def _cells(array: np.ndarray[Any, Any]) -> memoryview:
    """Single cells of an array, faster than the array itself gives them."""
    return memoryview(array)  # type: ignore[arg-type]  # arrays offer the buffer protocol
