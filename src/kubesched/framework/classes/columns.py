"""Columns of one class, for pods whose plugins do not allow a plan.

Kept are, per row, whether the filters that look at one node only let the pod pass (`ok`), and the weighted sum
of the scores that do the same (`level`). Between two pods of a class only the rows logged as changed are computed
again. Plugins of CLUSTER scope, and normalisation, are computed for every attempt as without classes.

    static_ok     rows passing the NODE-scope filters           changes with node_log
    ok            ... and the ROW-scope filters                 changes with pod_log
    static_level  weighted NODE-scope scores                    changes with node_log
    level         ... plus ROW-scope scores                     changes with pod_log
    key           the level where ok, INFEASIBLE elsewhere: its maximum is the choice when nothing normalises
    raws          raw scores of NODE/ROW plugins that normalise over the feasible nodes
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
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
from kubesched.framework.status import Status, error_status
from kubesched.snapshot.columns import Ints, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

SCALAR_ROWS: Final = 32
"""Up to this many changed rows are recomputed one by one; beyond, a vector pass is cheaper."""
INFEASIBLE: Final = np.iinfo(np.int64).min


class _Stale(Exception):
    """The columns cannot be patched and must be built anew."""


class ClassColumns:
    """The cached columns of one class over one table."""

    def __init__(self, framework: Framework, table: NodeTable) -> None:
        self._framework = framework
        self._table = table
        cached = [p for p in framework.filter if p.filter_scope is not Scope.CLUSTER]
        self._node_filters = [p for p in cached if p.filter_scope is Scope.NODE]
        self._row_filters = [p for p in cached if p.filter_scope is Scope.ROW]
        self.cluster_filters: list[FilterPlugin] = [
            p for p in framework.filter if p.filter_scope is Scope.CLUSTER
        ]
        self._scores = [p for p in framework.score if p.score_scope is not Scope.CLUSTER]
        self.cluster_scores: list[ScorePlugin] = [
            p for p in framework.score if p.score_scope is Scope.CLUSTER
        ]
        self.filter_key: Hashable = None
        """What the kept verdicts depend on besides rows."""
        self._score_key: Hashable = None
        self._filter_cursor = self._filter_node_cursor = 0
        self._score_cursor = self._score_node_cursor = 0

    # -- filters ---------------------------------------------------------------------------------------------------

    def sync_filters(self, state: CycleState, pod: Pod) -> Status | None:
        """Bring `ok` up to date for this pod; returns the error when a plugin failed."""
        table = self._table
        key = (
            table.epoch,
            state.skip_filter_plugins.isdisjoint(self._cached_filter_names)
            or frozenset(state.skip_filter_plugins),
            tuple([p.filter_version(state, pod) for p in self._versioned_filters]),
        )
        try:
            if key != self.filter_key:
                raise _Stale
            self._patch_filters(state, pod)
        except _Stale:
            self.filter_key = key
            return self._build_filters(state, pod)
        return None

    @property
    def _cached_filter_names(self) -> frozenset[str]:
        return self._framework.cached_filter_names

    @property
    def _versioned_filters(self) -> list[FilterPlugin]:
        return self._framework.versioned_filters

    def _build_filters(self, state: CycleState, pod: Pod) -> Status | None:
        table = self._table
        self._score_key = None  # keys are made of verdicts and scores
        view = NodeColumns(table)
        self.static_ok: Mask = np.zeros(table.capacity, dtype=np.bool_)
        self.ok: Mask = np.zeros(table.capacity, dtype=np.bool_)
        hw = table.high_water
        outcome = run_filters(self._framework, state, pod, view, self._node_filters)
        self.static_ok[:hw] = outcome.passing
        if outcome.error is None:
            outcome = run_filters(
                self._framework, state, pod, view, self._row_filters, self.static_ok[:hw].copy()
            )
            self.ok[:hw] = outcome.passing
        if outcome.error is not None:
            self.filter_key = None
            return outcome.error
        self._active_row_filters = [
            p for p in self._row_filters if p.name not in state.skip_filter_plugins
        ]
        rowwise = [p for p in self._active_row_filters if isinstance(p, RowFilterPlugin)]
        self._scalar_filters = rowwise if len(rowwise) == len(self._active_row_filters) else None
        self._filter_cursor, self._filter_node_cursor = table.pod_log.end, table.node_log.end
        return None

    def _patch_filters(self, state: CycleState, pod: Pod) -> None:
        table = self._table
        if self._filter_cursor == table.pod_log.end:
            return
        rows = _since(table.pod_log.since(self._filter_cursor), table)
        node_rows = (
            _since(table.node_log.since(self._filter_node_cursor), table)
            if self._filter_node_cursor != table.node_log.end
            else ()
        )
        self._filter_cursor, self._filter_node_cursor = table.pod_log.end, table.node_log.end
        if node_rows:
            index = np.fromiter(node_rows, dtype=np.intp)
            self.static_ok[index] = self._evaluate(
                state, pod, index, self._node_filters, table.alive[index]
            )
        scalar = self._scalar_filters
        if len(rows) > SCALAR_ROWS or scalar is None:
            index = np.fromiter(rows, dtype=np.intp)
            self.ok[index] = self._evaluate(
                state, pod, index, self._active_row_filters, self.static_ok[index]
            )
            return
        ok, static_ok = self.ok, self.static_ok
        for row in rows:
            ok[row] = static_ok[row] and all([p.row_passes(state, pod, table, row) for p in scalar])

    def _evaluate(
        self,
        state: CycleState,
        pod: Pod,
        index: np.ndarray[Any, np.dtype[np.intp]],
        plugins: list[FilterPlugin],
        passing: Mask,
    ) -> Mask:
        outcome = run_filters(
            self._framework, state, pod, NodeColumns(self._table, index), plugins, passing.copy()
        )
        if outcome.error is not None:
            raise _Stale
        return outcome.passing

    # -- scores ----------------------------------------------------------------------------------------------------

    def sync_scores(self, state: CycleState, pod: Pod) -> Status | None:
        """Bring `level` and `raws` up to date; to be called after PreScore. Returns the error when a plugin failed."""
        table = self._table
        skipped = state.skip_score_plugins
        key = (
            table.epoch,
            frozenset(skipped) if skipped else None,
            tuple([p.score_version(state, pod) for p in self._framework.versioned_scores]),
        )
        try:
            if key != self._score_key:
                raise _Stale
            self._patch_scores(state, pod)
        except _Stale:
            self._score_key = key
            return self._build_scores(state, pod)
        return None

    def _build_scores(self, state: CycleState, pod: Pod) -> Status | None:
        table, weights = self._table, self._framework.score_weights
        hw = table.high_water
        view = NodeColumns(table)
        active = [p for p in self._scores if p.name not in state.skip_score_plugins]
        self.static_level: Ints = np.zeros(table.capacity, dtype=np.int64)
        self.level: Ints = np.zeros(table.capacity, dtype=np.int64)
        self.raws: list[tuple[ScorePlugin, int, Ints]] = []
        self._row_scores = [
            (p, weights[p.name]) for p in active if p.score_scope is Scope.ROW and not p.normalizes
        ]
        self._node_scores = [
            (p, weights[p.name]) for p in active if p.score_scope is Scope.NODE and not p.normalizes
        ]
        for plugin in active:
            raw = raw_scores(plugin, state, pod, view)
            if isinstance(raw, Status):
                self._score_key = None
                return raw
            if plugin.normalizes:
                column = np.zeros(table.capacity, dtype=np.int64)
                column[:hw] = raw
                self.raws.append((plugin, weights[plugin.name], column))
            elif _is_out_of_range(raw, self.ok[:hw]):
                self._score_key = None
                return error_status("a score is out of range")
            else:
                target = self.static_level if plugin.score_scope is Scope.NODE else self.level
                target[:hw] += raw * weights[plugin.name]
        self.level += self.static_level
        self.key: Ints = np.where(self.ok, self.level, INFEASIBLE)
        rowwise = [(p, w) for p, w in self._row_scores if isinstance(p, RowScorePlugin)]
        self._scalar_scores = rowwise if len(rowwise) == len(self._row_scores) else None
        self.active_cluster_scores = [
            p for p in self.cluster_scores if p.name not in state.skip_score_plugins
        ]
        self._score_cursor, self._score_node_cursor = table.pod_log.end, table.node_log.end
        self._note_uniform()
        return None

    def _note_uniform(self) -> None:
        """Raw columns that are zero everywhere and normalise to one value for all need not be added up."""
        self.varying_raws = [
            (p, w, raw) for p, w, raw in self.raws if not (p.uniform_when_zero and not raw.any())
        ]

    def _patch_scores(self, state: CycleState, pod: Pod) -> None:
        table = self._table
        if self._score_cursor == table.pod_log.end:
            return
        rows = _since(table.pod_log.since(self._score_cursor), table)
        node_rows = (
            _since(table.node_log.since(self._score_node_cursor), table)
            if self._score_node_cursor != table.node_log.end
            else ()
        )
        self._score_cursor, self._score_node_cursor = table.pod_log.end, table.node_log.end
        if node_rows:
            index = np.fromiter(node_rows, dtype=np.intp)
            self.static_level[index] = self._sum(state, pod, index, self._node_scores)
        if self.raws and (node_rows or any(p.score_scope is Scope.ROW for p, _, _ in self.raws)):
            self._patch_raws(state, pod, rows)
        scalar = self._scalar_scores
        if len(rows) > SCALAR_ROWS or scalar is None:
            index = np.fromiter(rows, dtype=np.intp)
            total = self.static_level[index] + self._sum(state, pod, index, self._row_scores)
            self.level[index] = total
            self.key[index] = np.where(self.ok[index], total, INFEASIBLE)
            return
        ok, level, static_level, key = self.ok, self.level, self.static_level, self.key
        for row in rows:
            if not ok[row]:  # it becomes feasible only through the log, and is scored then
                key[row] = INFEASIBLE
                continue
            scores = [(w, p.row_score(state, pod, table, row)) for p, w in scalar]
            if not all([0 <= score <= MAX_NODE_SCORE for _, score in scores]):
                raise _Stale
            level[row] = key[row] = static_level[row] + sum([w * score for w, score in scores])

    def _patch_raws(self, state: CycleState, pod: Pod, rows: Iterable[int]) -> None:
        index = np.fromiter(rows, dtype=np.intp)
        view = NodeColumns(self._table, index)
        for plugin, _, column in self.raws:
            raw = raw_scores(plugin, state, pod, view)
            if isinstance(raw, Status):
                raise _Stale
            column[index] = raw
        self._note_uniform()

    def _sum(
        self,
        state: CycleState,
        pod: Pod,
        index: np.ndarray[Any, np.dtype[np.intp]],
        plugins: list[tuple[ScorePlugin, int]],
    ) -> Ints:
        total = np.zeros(len(index), dtype=np.int64)
        view = NodeColumns(self._table, index)
        for plugin, weight in plugins:
            raw = raw_scores(plugin, state, pod, view)
            if isinstance(raw, Status) or _is_out_of_range(raw, self.ok[index]):
                raise _Stale
            total += raw * weight
        return total


def _is_out_of_range(raw: Ints, ok: Mask) -> bool:
    """Is the score of any passing row below 0 or above 100? Read as unsigned, a negative number is a huge one."""
    return bool(((raw.view(np.uint64) > MAX_NODE_SCORE) & ok).any())


def _since(rows: list[int] | None, table: NodeTable) -> dict[int, None]:
    """Distinct changed rows; too many to patch, or no longer known, means build anew."""
    if rows is None or len(rows) > max(SCALAR_ROWS, table.high_water // 4):
        raise _Stale
    return dict.fromkeys(rows)
