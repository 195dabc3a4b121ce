"""Verdicts and scores of one class for all nodes, cached as columns over rows.

Answers of plugins with a rule of NODE or ROW scope are computed by the same functions as in a full
evaluation, and recomputed for dirty rows only:

    FilterColumns    passes        True if all these filters pass the node
    ScoreColumns     level         sum of the weighted scores without normalization, plus 1;
                                   0 if the node fails
                     raw scores    of plugins that normalize over the feasible nodes

    dirty rows  3, 7      node changed?   filters and scores of NODE scope
                          always          those of ROW scope, added to the cached others

Verdicts are computed from current state, so it does not matter how often or in which order a row
was logged. All other plugins are *asked* for every pod, about the nodes that pass the cached
filters. PreFilter and PreScore of cached plugins are not rerun either: what they store is the same
for every pod (45 instead of 55 µs per decision of one template, benchmarks/decisions.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.basis import Basis, Rules, is_kept
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import RowRule
from kubesched.framework.interfaces import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    FilterPlugin,
    ScorePlugin,
)
from kubesched.framework.nodes.columns import Ints, Levels, Mask, Rows
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.pre_filter import PreFilterOutcome, run_pre_filter
from kubesched.framework.runtime.score import final_scores, raw_scores, run_pre_score
from kubesched.framework.runtime.timing import PRE_FILTER
from kubesched.framework.status import Status

FEW_ROWS: Final = 16
"""Up to this many dirty rows are computed one by one, by plugins that give a `RowRule`."""
PASSING: Final = 1
"""The level of a node that passes with score 0. A node that fails has level 0."""
_NO_SCORES: Final[Ints] = np.zeros(0, dtype=np.int64)


class Unfit(Exception):
    """A cached plugin failed: only a full evaluation can report what that means."""


class _Scratch(CycleState):
    """A copy of an attempt's state that records writes."""

    def __init__(self, state: CycleState) -> None:
        super().__init__()
        self.class_memo = state.class_memo
        self.adopt(state.entries())
        self.written: dict[str, Any] = {}

    def write(self, key: str, value: object) -> None:
        super().write(key, value)
        self.written[key] = value


class _RowColumns(ABC):
    """Columns that follow the table's changes."""

    def __init__(self, framework: Framework, table: NodeTable, rules: Sequence[Rule]) -> None:
        self._framework = framework
        self._table = table
        self._nodes_read = 0
        self._is_new = True
        self.basis = Basis(table, rules)
        self._entries: dict[str, Any] = {}
        """What PreFilter or PreScore of the cached plugins stores for every pod."""
        self._skipped: Set[str] = frozenset()
        """The cached plugins that PreFilter or PreScore skips."""

    def _sync(self, state: CycleState, pod: Pod) -> None:
        """Recompute dirty rows. Raises Unfit."""
        basis, table = self.basis, self._table
        lag, end = basis.lag, table.node_log.end
        if not lag and not self._is_new:
            return
        is_few = lag <= FEW_ROWS and self._nodes_read == end and not self._is_new
        if is_few and (rows := basis.dirty_rows()) is not None:
            self._renew_few(state, pod, rows)
        elif (
            self._is_new
            or (index := basis.dirty_index()) is None
            or (nodes := table.node_log.since(self._nodes_read)) is None
            or lag > max(FEW_ROWS, table.high_water // 2)
        ):
            everything = slice(0, table.high_water)
            self._renew_nodes(state, pod, everything)
            self._renew(state, pod, everything)
        else:
            if nodes:
                self._renew_nodes(state, pod, np.array(nodes, dtype=np.intp))
            if lag <= FEW_ROWS:
                self._renew_few(state, pod, index.tolist())
            else:
                self._renew(state, pod, index)
        basis.settle()
        self._nodes_read, self._is_new = end, False

    @abstractmethod
    def _renew_nodes(self, state: CycleState, pod: Pod, rows: Rows) -> None:
        """Recompute what depends on node objects alone."""

    @abstractmethod
    def _renew(self, state: CycleState, pod: Pod, rows: Rows) -> None:
        """Recompute what also depends on the pods on the nodes."""

    @abstractmethod
    def _renew_few(self, state: CycleState, pod: Pod, rows: Sequence[int]) -> None:
        """Like `_renew`, one row after the other where plugins have a form for it."""


class FilterColumns(_RowColumns):
    """The rows that pass the cached filters."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        rules: Rules,
    ) -> None:
        """For a pod that passed PreFilter. Raises Unfit."""
        kept = {name: rule for name, rule in rules.items() if is_kept(rule)}
        super().__init__(framework, table, list(kept.values()))
        self.asked_pre_filters = [p for p in framework.pre_filter if p.name not in kept]
        scratch, skipped = _Scratch(state), state.skip_filter_plugins
        again = [p for p in framework.pre_filter if p.name in kept]
        outcome = run_pre_filter(framework, scratch, pod, NodeColumns(table), again)
        if outcome.status is not None or outcome.node_names is not None:
            raise Unfit
        self._entries, self._skipped = scratch.written, frozenset(scratch.skip_filter_plugins)
        self.asked = [plugin for plugin in framework.filter if plugin.name not in kept]
        """The filters that run for every pod."""
        active = [p for p in framework.filter if p.name in kept and p.name not in skipped]
        self._node_filters = [p for p in active if kept[p.name].depends_on is Scope.NODE]
        self._row_filters = [p for p in active if kept[p.name].depends_on is Scope.ROW]
        rules_of = [(p, kept[p.name]) for p in self._row_filters]
        self._row_forms = [rule.at for _, rule in rules_of if isinstance(rule, RowRule)]
        self._array_filters = [p for p, rule in rules_of if not isinstance(rule, RowRule)]
        self.node_passes: Mask = np.zeros(table.capacity, dtype=np.bool_)
        """Rows that pass the filters of NODE scope."""
        self.passes: Mask = np.zeros(table.capacity, dtype=np.bool_)
        """Rows that pass all filters."""
        self._node_cells, self.passes_cells = _cells(self.node_passes), _cells(self.passes)

    def pre_filter(self, state: CycleState, pod: Pod) -> PreFilterOutcome | None:
        """Run PreFilter of the uncached plugins, and add the cached result of the others.

        None if one of them rejects the pod: those behind it do not run then, and PostFilter plugins
        may notice.
        """
        state.adopt(self._entries)
        if not self.asked_pre_filters and not self._framework.tries_resizes:
            state.skip_filter_plugins = self._skipped
            state.points_reached |= PRE_FILTER
            return PreFilterOutcome()
        nodes = NodeColumns(self._table)
        outcome = run_pre_filter(self._framework, state, pod, nodes, self.asked_pre_filters)
        if outcome.status is not None:
            for key in self._entries:
                state.delete(key)
            return None
        state.skip_filter_plugins = self._skipped | state.skip_filter_plugins
        return outcome

    def passing(self, state: CycleState, pod: Pod) -> Mask:
        """The rows that pass, up to date. Read-only. Raises Unfit."""
        self._sync(state, pod)
        return self.passes[: self._table.high_water]

    def decide_alone(self, skipped: Set[str]) -> bool:
        """True if no uncached filter runs for a pod for which PreFilter skips these."""
        return all(plugin.name in skipped for plugin in self.asked)

    def _renew_nodes(self, state: CycleState, pod: Pod, rows: Rows) -> None:
        passing = self._table.alive[rows].copy()
        self.node_passes[rows] = self._verdicts(state, pod, rows, self._node_filters, passing)

    def _renew(self, state: CycleState, pod: Pod, rows: Rows) -> None:
        passing = self.node_passes[rows].copy()
        self.passes[rows] = self._verdicts(state, pod, rows, self._row_filters, passing)

    def _verdicts(
        self, state: CycleState, pod: Pod, rows: Rows, plugins: list[FilterPlugin], passing: Mask
    ) -> Mask:
        view = NodeColumns(self._table, rows)
        outcome = run_filters(self._framework, state, pod, view, plugins, passing)
        if outcome.error is not None or outcome.has_hidden_errors:
            raise Unfit
        return outcome.passing

    def _renew_few(self, state: CycleState, pod: Pod, rows: Sequence[int]) -> None:
        before: Mapping[int, bool] | memoryview = self._node_cells
        passes, forms = self.passes_cells, self._row_forms
        if self._array_filters:  # first: a row form that rejects would hide their errors
            index = np.array(rows, dtype=np.intp)
            passing = self.node_passes[index]
            passing = self._verdicts(state, pod, index, self._array_filters, passing)
            before = dict(zip(rows, passing.tolist(), strict=True))
        for row in rows:
            is_passing = before[row]
            for passes_at in forms:
                is_passing = is_passing and passes_at(row)
            passes[row] = is_passing


class _KeptScore(NamedTuple):
    plugin: ScorePlugin
    weight: int
    rule: Rule


class RawScores:
    """Raw scores of one plugin that normalizes them over the feasible nodes."""

    __slots__ = ("_capacity", "column", "plugin", "rule", "uniform", "weight")

    def __init__(self, score: _KeptScore, capacity: int) -> None:
        self.plugin, self.weight, self.rule = score
        self._capacity = capacity
        self.column: Ints = _NO_SCORES
        """Empty while `uniform` says all: most classes have no taints or preferences to score."""
        self.uniform: int | None = 0
        """The score if it is the same for all nodes: normalization then keeps them equal."""

    def put(self, rows: Rows, scores: Ints | int, *, are_all: bool) -> None:
        """Store the scores of some rows, or of all relevant rows."""
        if are_all:
            self.uniform = scores if isinstance(scores, int) else int(scores[0])
            self.column = _NO_SCORES
        if self.uniform is not None:
            if np.all(np.equal(scores, self.uniform)):
                return
            self.column = np.full(self._capacity, self.uniform, dtype=np.int64)
            self.uniform = None
        self.column[rows] = scores


class ScoreColumns(_RowColumns):
    """Scores of the rows that pass."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        rules: Rules,
        feasible: NodeColumns,
        filters: FilterColumns,
    ) -> None:
        """For a pod after PreScore. Raises Unfit."""
        kept = {name: rule for name, rule in rules.items() if is_kept(rule)}
        super().__init__(framework, table, list(kept.values()))
        self.asked_pre_scores = [p for p in framework.pre_score if p.name not in kept]
        scratch, skipped = _Scratch(state), state.skip_score_plugins
        again = [p for p in framework.pre_score if p.name in kept]
        if run_pre_score(framework, scratch, pod, feasible, again) is not None:
            raise Unfit
        self._entries, self._skipped = scratch.written, frozenset(scratch.skip_score_plugins)
        self._filters = filters
        weights = framework.score_weights
        self.asked = [plugin for plugin in framework.score if plugin.name not in kept]
        """The scores that are computed for every pod."""
        active = [
            _KeptScore(p, weights[p.name], kept[p.name])
            for p in framework.score
            if p.name in kept and p.name not in skipped
        ]
        plain = [score for score in active if not score.plugin.normalizes]
        self._node_scores = [s for s in plain if s.rule.depends_on is Scope.NODE]
        self._row_scores = [s for s in plain if s.rule.depends_on is Scope.ROW]
        self.raws = [RawScores(s, table.capacity) for s in active if s.plugin.normalizes]
        highest = MAX_NODE_SCORE * sum(weights.values()) + PASSING
        kind = self.kind = np.int16 if highest <= np.iinfo(np.int16).max else np.int64
        """The integer type of totals."""
        self._node_level: Levels = np.zeros(table.capacity, dtype=kind)
        self._level: Levels = np.zeros(table.capacity, dtype=kind)
        self._cells = _cells(self._node_level), _cells(self._level)
        rules_of = [(s, s.rule) for s in self._row_scores]
        self._row_forms = [(r.at, s.weight) for s, r in rules_of if isinstance(r, RowRule)]
        self._array_scores = [s for s, rule in rules_of if not isinstance(rule, RowRule)]
        self._has_row_raws = any(raw.rule.depends_on is Scope.ROW for raw in self.raws)

    def pre_score(self, state: CycleState, pod: Pod, feasible: NodeColumns) -> Status | None:
        """Run PreScore of the uncached plugins, and add the cached result of the others."""
        state.adopt(self._entries)
        failed = run_pre_score(self._framework, state, pod, feasible, self.asked_pre_scores)
        state.skip_score_plugins = self._skipped | state.skip_score_plugins
        return failed

    def decide_alone(self, skipped: Set[str]) -> bool:
        """True if levels are all that differs for a pod for which PreScore skips these."""
        is_uniform = all(raw.uniform is not None for raw in self.raws)
        return is_uniform and all(plugin.name in skipped for plugin in self.asked)

    def levels(self, state: CycleState, pod: Pod) -> Levels:
        """The level per row, up to date if the filters are. Read-only. Raises Unfit."""
        self._sync(state, pod)
        return self._level[: self._table.high_water]

    def _renew_nodes(self, state: CycleState, pod: Pod, rows: Rows) -> None:
        scored = _where(self._filters.node_passes, rows)
        self._node_level[scored] = self._sum(state, pod, scored, self._node_scores)
        self._renew_raws(state, pod, scored, Scope.NODE, are_all=isinstance(rows, slice))

    def _renew(self, state: CycleState, pod: Pod, rows: Rows) -> None:
        scored = _where(self._filters.passes, rows)
        if scored is not rows:
            self._level[rows] = 0
        points = self._sum(state, pod, scored, self._row_scores)
        self._level[scored] = self._node_level[scored] + points + PASSING
        self._renew_raws(state, pod, scored, Scope.ROW, are_all=isinstance(rows, slice))

    def _sum(
        self, state: CycleState, pod: Pod, rows: Rows, scores: Sequence[_KeptScore]
    ) -> Levels | int:
        view = NodeColumns(self._table, rows)
        total: Ints | int = 0
        for plugin, weight, _ in scores if len(view) else ():
            raw = _raw(plugin, state, pod, view)
            if isinstance(raw, int):
                is_valid = MIN_NODE_SCORE <= raw <= MAX_NODE_SCORE
            else:
                is_valid = not isinstance(final_scores(plugin, state, pod, raw, view), Status)
            if not is_valid:
                raise Unfit
            total = total + raw * weight
        return total if isinstance(total, int) else total.astype(self.kind)

    def _renew_raws(
        self, state: CycleState, pod: Pod, rows: Rows, scope: Scope, *, are_all: bool
    ) -> None:
        view = NodeColumns(self._table, rows)
        for raw in self.raws if len(view) else ():
            if raw.rule.depends_on is scope:
                raw.put(rows, _raw(raw.plugin, state, pod, view), are_all=are_all)

    def _renew_few(self, state: CycleState, pod: Pod, rows: Sequence[int]) -> None:
        node_level, levels = self._cells
        passes, forms = self._filters.passes_cells, self._row_forms
        for row in rows:
            level = 0
            if passes[row]:
                level = PASSING + node_level[row]
                for score_at, weight in forms:
                    score = score_at(row)
                    if not MIN_NODE_SCORE <= score <= MAX_NODE_SCORE:
                        raise Unfit
                    level += score * weight
            levels[row] = level
        if not (self._array_scores or self._has_row_raws):
            return
        scored = [row for row in dict.fromkeys(rows) if passes[row]]
        index = np.array(scored, dtype=np.intp)
        view = NodeColumns(self._table, index)
        for plugin, weight, _ in self._array_scores if scored else ():
            raw = _raw(plugin, state, pod, view)
            # Numbers of Python, as above: each array operation would cost a microsecond.
            column = [raw] * len(scored) if isinstance(raw, int) else raw.tolist()
            for row, score in zip(scored, column, strict=True):
                if not MIN_NODE_SCORE <= score <= MAX_NODE_SCORE:
                    raise Unfit
                levels[row] += score * weight
        if self._has_row_raws:
            self._renew_raws(state, pod, index, Scope.ROW, are_all=False)


def _raw(plugin: ScorePlugin, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | int:
    raw = raw_scores(plugin, state, pod, nodes)
    if isinstance(raw, Status):
        raise Unfit
    return raw if isinstance(raw, int) else raw.astype(np.int64, copy=False)


def _where(mask: Mask, rows: Rows) -> Rows:
    """The rows that are in the mask; the others are not scored."""
    among = mask[rows]
    if np.count_nonzero(among) == len(among):  # a quarter of the time of `all`
        return rows
    return among.nonzero()[0] if isinstance(rows, slice) else rows[among]


def _cells(column: np.ndarray[Any, Any]) -> memoryview:
    """A memoryview for single cells, faster than indexing the array."""
    return memoryview(column)  # type: ignore[arg-type]  # arrays offer the buffer protocol
