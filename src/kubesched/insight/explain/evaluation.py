"""Evaluates every plugin on every node, without stopping at the first rejection.

The scheduler stops evaluating a node once a filter rejects it, and a pod once PreFilter does. Here
each plugin runs on its own, through the same runtime, over all nodes at once. Results stay in
columns, so 100,000 nodes cost array operations; only displayed nodes become records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.columns import Ids, Indices, Ints, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.nominated import filter_contested, rivals_of
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.score import final_scores, raw_scores, run_pre_score
from kubesched.framework.status import Status, unresolvable

PASSES = -1


@dataclass(slots=True)
class Rejections:
    """One plugin's verdicts: per table row an index into `statuses`, or `PASSES`."""

    plugin: str
    ids: Ids
    statuses: list[Status]
    rivals: bool = False
    """True if the plugin rejects only because of pods nominated to the node."""


@dataclass(slots=True)
class PluginScores:
    """One plugin's scores of the feasible nodes."""

    plugin: str
    raw: Ints
    normalized: Ints
    weighted: Ints


@dataclass(slots=True)
class Evaluation:
    """The matrix of nodes and plugins for one pod. Valid until the table changes."""

    table: NodeTable
    pod: PodInfo
    state: CycleState
    rows: Indices
    """Rows of all nodes, in node order."""
    rejections: list[Rejections] = field(default_factory=list)
    pod_statuses: list[Status] = field(default_factory=list)
    """Rejections by PreFilter plugins, which apply to every node."""
    feasible: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """Rows of the feasible nodes, in node order."""
    scores: list[PluginScores] = field(default_factory=list)
    totals: Ints | None = None
    """Total per feasible row; None without score plugins or if scoring failed."""

    @property
    def failure_counts(self) -> Ints:
        """Number of reasons against each table row."""
        counts = np.zeros(self.table.high_water, dtype=np.int64)
        for rejections in self.rejections:
            sizes = np.array(
                [*(len(status.all_reasons) for status in rejections.statuses), 0], dtype=np.int64
            )
            counts += sizes[rejections.ids]  # PASSES selects the last entry
        return counts

    def statuses_at(self, row: int) -> list[tuple[Rejections, Status]]:
        """The rejections of one node, in plugin order."""
        return [
            (rejections, rejections.statuses[at])
            for rejections in self.rejections
            if (at := int(rejections.ids[row])) != PASSES
        ]


def evaluate(framework: Framework, pod: PodInfo) -> Evaluation:
    """Run every PreFilter, Filter, PreScore and Score plugin of the profile on every node."""
    table = framework.handle.table
    table.refresh()
    state = CycleState()
    evaluation = Evaluation(table, pod, state, table.order_rows.astype(np.intp))
    _filter(framework, evaluation)
    if len(evaluation.feasible):
        _score(framework, evaluation)
    return evaluation


def _filter(framework: Framework, evaluation: Evaluation) -> None:
    view = NodeColumns(evaluation.table)
    passing = view.alive.copy()
    barred, narrowed = _pre_filter(framework, evaluation, view)
    if evaluation.pod_statuses:
        passing[:] = False
    for plugin in framework.filter:
        if plugin.name not in barred and plugin.name not in evaluation.state.skip_filter_plugins:
            _run_filter(framework, evaluation, plugin, view, passing)
    for name, kept in narrowed.items():
        _narrow(evaluation, name, kept, view, passing)
    if not barred:
        _with_nominated_pods(framework, evaluation, view, passing)
    evaluation.feasible = evaluation.rows[passing[evaluation.rows]]


def _run_filter(
    framework: Framework,
    evaluation: Evaluation,
    plugin: FilterPlugin,
    view: NodeColumns,
    passing: Mask,
) -> None:
    """Run one plugin. If it fails on some nodes, run it again on the others."""
    table, state, pod = evaluation.table, evaluation.state, evaluation.pod.pod
    while True:
        outcome = run_filters(framework, state, pod, view, [plugin])
        if outcome.error is None:
            break
        broken = view.alive if outcome.broken is None else view.alive & outcome.broken
        failed = np.zeros(table.high_water, dtype=np.bool_)
        failed[view.row_indices()[broken]] = True
        _add(evaluation, plugin.name, failed, outcome.error)
        passing &= ~failed
        left = view.row_indices()[view.alive & ~broken]
        if outcome.broken is None or not len(left):
            return
        view = NodeColumns(table, left)
    rejected = np.flatnonzero(view.alive & ~outcome.passing)
    if len(rejected):
        ids = np.full(table.high_water, PASSES, dtype=np.int32)
        rows = view.row_indices()[rejected]
        ids[rows], statuses = outcome.classify(rejected)
        evaluation.rejections.append(Rejections(plugin.name, ids, statuses))
        passing[rows] = False


def _pre_filter(
    framework: Framework, evaluation: Evaluation, view: NodeColumns
) -> tuple[set[str], dict[str, frozenset[str]]]:
    """Run PreFilter plugins one by one.

    Returns the plugins that reject the pod (their filters cannot run) and the node names to which
    the other plugins narrowed the search.
    """
    state, pod = evaluation.state, evaluation.pod
    skipped: set[str] = set()
    barred: set[str] = set()
    narrowed: dict[str, frozenset[str]] = {}
    for plugin in framework.pre_filter:
        outcome = run_pre_filter(framework, state, pod.pod, view, [plugin])
        skipped |= state.skip_filter_plugins
        if outcome.status is not None:
            barred.add(plugin.name)
            evaluation.pod_statuses.append(outcome.status.with_plugin(plugin.name))
            _add(evaluation, plugin.name, view.alive, outcome.status)
        elif outcome.node_names is not None:
            narrowed[plugin.name] = outcome.node_names
    state.skip_filter_plugins = skipped
    return barred, narrowed


def _narrow(
    evaluation: Evaluation, plugin: str, kept: frozenset[str], view: NodeColumns, passing: Mask
) -> None:
    """Reject nodes that a PreFilter plugin excluded although its filter, if any, passes them."""
    row_of = evaluation.table.row_of
    left_out = view.alive.copy()
    left_out[[row_of[name] for name in kept if name in row_of]] = False
    passing &= ~left_out
    for rejections in evaluation.rejections:
        if rejections.plugin == plugin:
            left_out &= rejections.ids == PASSES
    status = unresolvable(f"node(s) didn't satisfy plugin {plugin}")
    _add(evaluation, plugin, left_out, status)


def _with_nominated_pods(
    framework: Framework, evaluation: Evaluation, view: NodeColumns, passing: Mask
) -> None:
    """Reject nodes without room for the pod and the pods nominated there."""
    contested = filter_contested(framework, evaluation.state, evaluation.pod, view)
    if contested is None:
        return
    indices, outcome = contested
    if outcome.error is not None:
        broken = np.zeros(len(view), dtype=np.bool_)
        broken[indices] = True
        _add(evaluation, outcome.error.plugin, broken, outcome.error)
        passing[indices] = False
        return
    failing = np.flatnonzero(~outcome.passing & view.alive[indices])
    if not len(failing):
        return
    numbers, statuses = outcome.classify(failing)
    ids = np.full(evaluation.table.high_water, PASSES, dtype=np.int32)
    ids[indices[failing]] = numbers
    known = {rejections.plugin: rejections for rejections in evaluation.rejections}
    for at, status in enumerate(statuses):
        if status.plugin in known:  # it also rejects these nodes without the nominated pods
            ids[(ids == at) & (known[status.plugin].ids != PASSES)] = PASSES
    passing[indices[failing]] = False
    for name in dict.fromkeys(status.plugin for status in statuses):
        own = [at for at, status in enumerate(statuses) if status.plugin == name]
        of_plugin = np.where(np.isin(ids, own), ids, PASSES)
        if (of_plugin != PASSES).any():
            rejections = Rejections(name, of_plugin.astype(np.int32), statuses, rivals=True)
            evaluation.rejections.append(rejections)


def _add(evaluation: Evaluation, plugin: str, rejected: Mask, status: Status) -> None:
    """Record one status for all given rows."""
    if rejected.any():
        ids = np.where(rejected, 0, PASSES).astype(np.int32)
        evaluation.rejections.append(Rejections(plugin, ids, [status.with_plugin(plugin)]))


def nominated_at(framework: Framework, evaluation: Evaluation, row: int) -> Sequence[PodInfo]:
    """Pods nominated to the node that the pod must leave room for."""
    rivals = rivals_of(framework, evaluation.pod)
    return () if rivals is None else rivals.pods_at(row)


def _score(framework: Framework, evaluation: Evaluation) -> None:
    state, pod = evaluation.state, evaluation.pod.pod
    view = NodeColumns(evaluation.table, evaluation.feasible)
    if run_pre_score(framework, state, pod, view) is not None:
        return
    for plugin in framework.score:
        if plugin.name in state.skip_score_plugins:
            continue
        raw = raw_scores(plugin, state, pod, view)
        if isinstance(raw, int):  # one score for all nodes, as the contract allows
            raw = np.array([raw], dtype=np.int64)
        final = raw if isinstance(raw, Status) else final_scores(plugin, state, pod, raw, view)
        if isinstance(raw, Status) or isinstance(final, Status):
            evaluation.scores.clear()
            return  # the attempt fails; its message gives the cause
        raw, final = (points.astype(np.int64, copy=False) for points in (raw, final))
        weighted = final * framework.score_weights[plugin.name]
        columns = [np.broadcast_to(points, (len(view),)) for points in (raw, final, weighted)]
        evaluation.scores.append(PluginScores(plugin.name, *columns))
    totals = np.zeros(len(view), dtype=np.int64)
    for score in evaluation.scores:
        totals += score.weighted
    evaluation.totals = totals
