"""The dry run: try nodes one after the other, in thought, until there are enough candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from kubesched.framework.interfaces import FilterPlugin, PreFilterPlugin, Scope
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.runtime.filter import FilterOutcome, is_row_local, lifts
from kubesched.framework.runtime.nominated import rivals_of
from kubesched.framework.status import Code, NodeToStatus, Status
from kubesched.preemption.budgets import Budgets
from kubesched.preemption.candidates import (
    Candidate,
    ColumnCandidates,
    ListedCandidates,
    Quota,
    Shortlist,
)
from kubesched.preemption.row_pods import CountedBelow, RowPodsCache
from kubesched.preemption.victim_columns import (
    Broken,
    VictimColumns,
    all_below_gone,
    filter_changed,
)
from kubesched.preemption.victims import (
    NO_VICTIMS,
    Preemptor,
    VictimRules,
    no_victim_on,
    select_victims,
)
from kubesched.snapshot.columns import Ids, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.priorities import Below

Indices = np.ndarray[Any, np.dtype[np.intp]]

_UNEXPLAINED, _PASSES, _NO_VICTIMS = -2, -1, 0
"""Verdict numbers: rejected by filters, not rejected (yet), and the first of the statuses."""


class DryRun:
    """What came of it: candidates, those that violate no budget first, and why other nodes are none."""

    __slots__ = ("_table", "_verdicts", "errors", "shortlist")

    def __init__(self, table: NodeTable, shortlist: Shortlist | None, verdicts: _Verdicts) -> None:
        self._table = table
        self._verdicts = verdicts
        self.shortlist = shortlist
        """None when there is no candidate."""
        self.errors: list[Exception] = verdicts.errors

    def statuses(self) -> NodeToStatus:
        """The verdicts on the nodes that were tried in vain."""
        return self._verdicts.as_statuses(self._table)


class _Verdicts:
    """A number per visited row, leading to a status."""

    def __init__(self, rows: Indices) -> None:
        self.rows = rows
        self.ids: Ids = np.full(len(rows), _PASSES, dtype=np.int32)
        self.statuses: list[Status] = [NO_VICTIMS]
        self.errors: list[Exception] = []
        self._outcome: FilterOutcome | None = None
        self._judged: Indices = rows[:0]

    def reject(self, index: int, status: Status) -> None:
        self.ids[index] = len(self.statuses)
        self.statuses.append(status)
        error = status.as_error() if status.code is Code.ERROR else None
        if error is not None:
            self.errors.append(error)

    def reject_as(self, indices: Indices, outcome: FilterOutcome) -> None:
        """The filters have judged the rows at these indices. What they said is found out when somebody asks."""
        self._judged, self._outcome = indices, outcome
        self.ids[indices[~outcome.passing]] = _UNEXPLAINED

    def _explain(self) -> None:
        if self._outcome is not None:
            failing = np.flatnonzero(~self._outcome.passing)
            ids, statuses = self._outcome.classify(failing)
            self.ids[self._judged[failing]] = ids + len(self.statuses)
            self.statuses.extend(statuses)
            self._outcome = None

    def as_statuses(self, table: NodeTable) -> NodeToStatus:
        self._explain()
        tried = np.flatnonzero(self.ids != _PASSES)
        return NodeStatusColumns(table, self.rows[tried], self.ids[tried], self.statuses)


def dry_run(
    preemptor: Preemptor,
    rows: Indices,
    wanted: int,
    budgets: Budgets,
    row_pods: RowPodsCache,
    rules: VictimRules,
) -> DryRun:
    """Try the rows in the given order until `wanted` candidates are found.

    Nodes on which nothing can go, or on which the pod would not fit even if everything that can go were gone, are
    told apart by columns; only the others are tried.
    """
    done = None
    if rules.are_usual and is_row_local(preemptor.framework, preemptor.state):
        done = dry_run_by_columns(preemptor, rows, wanted, budgets, row_pods)
    return done or dry_run_one_by_one(preemptor, rows, wanted, budgets, row_pods, rules)


def dry_run_by_columns(
    preemptor: Preemptor, rows: Indices, wanted: int, budgets: Budgets, row_pods: RowPodsCache
) -> DryRun | None:
    """All rows at once; None when it has to be done node by node after all."""
    try:
        return _by_columns(preemptor, rows, wanted, budgets, row_pods)
    except Broken:
        return None


def _by_columns(
    preemptor: Preemptor, rows: Indices, wanted: int, budgets: Budgets, row_pods: RowPodsCache
) -> DryRun:
    table = preemptor.framework.handle.table
    verdicts = _Verdicts(rows)
    everywhere = np.ones(len(rows), dtype=np.bool_)
    passing = _screen(preemptor, verdicts, preemptor.framework.filter, everywhere, row_pods)
    quota = Quota(wanted)
    found: list[tuple[VictimColumns, Indices]] = []
    # Where no budget is violated the first block is enough.
    for start in range(0, len(passing), max(wanted, 1)):
        block = passing[start : start + wanted]
        chosen = rows[block]
        victims = VictimColumns(preemptor, chosen, row_pods.of(chosen.tolist()), budgets)
        real = np.flatnonzero(victims.victim_count)
        for index in np.flatnonzero(victims.victim_count == 0).tolist():
            verdicts.reject(int(block[index]), no_victim_on(table.names[int(chosen[index])]))
        admitted = real[quota.admit(victims.pdb_violations[real])]
        if len(admitted):
            found.append((victims, admitted))
        if quota.is_filled:
            break
    return DryRun(table, ColumnCandidates(table, found) if found else None, verdicts)


def _screen(
    preemptor: Preemptor,
    verdicts: _Verdicts,
    plugins: list[FilterPlugin],
    tried: Mask,
    row_pods: RowPodsCache,
) -> Indices:
    """Indices of the rows that are left once those that cannot help have got their verdicts.

    `tried` says which rows the plugins may judge; they must be row-local.
    """
    table, pod, rows = preemptor.framework.handle.table, preemptor.pod, verdicts.rows
    below: Below | CountedBelow | None = table.pods_below(pod.priority)
    if below is None:
        below = CountedBelow(table, rows, row_pods.of(rows.tolist()), pod.priority)
    has_some = below.pod_count(rows) > 0
    verdicts.ids[~has_some] = _NO_VICTIMS
    judged = np.flatnonzero(has_some & tried)
    if len(judged) and plugins:
        chosen = rows[judged]
        changes = all_below_gone(table, chosen, below, pod.priority)
        rivals = rivals_of(preemptor.framework, pod)
        verdicts.reject_as(judged, filter_changed(preemptor, chosen, changes, rivals, plugins))
    return np.flatnonzero(verdicts.ids == _PASSES)


def dry_run_one_by_one(
    preemptor: Preemptor,
    rows: Indices,
    wanted: int,
    budgets: Budgets,
    row_pods: RowPodsCache,
    rules: VictimRules,
) -> DryRun:
    """One row after the other: the way for every pod and every plugin."""
    table = preemptor.framework.handle.table
    verdicts = _Verdicts(rows)
    quota = Quota(wanted)
    sparing: list[Candidate] = []
    violating: list[Candidate] = []
    for index in _worth_trying(preemptor, verdicts, row_pods, rules).tolist():
        row = int(rows[index])
        victims = select_victims(preemptor, row, budgets, rules)
        if isinstance(victims, Status):
            verdicts.reject(index, victims)
            continue
        if not victims.pods:
            verdicts.reject(index, no_victim_on(table.names[row]))
            continue
        if len(quota.admit(np.array([victims.pdb_violations]))):
            kept = violating if victims.pdb_violations else sparing
            kept.append(Candidate(table.names[row], victims))
        if quota.is_filled:
            break
    found = [*sparing, *violating]
    shortlist = ListedCandidates(found, preemptor.now_us) if found else None
    return DryRun(table, shortlist, verdicts)


def _worth_trying(
    preemptor: Preemptor, verdicts: _Verdicts, row_pods: RowPodsCache, rules: VictimRules
) -> Indices:
    """Rows that the filters in front of the first one that looks beyond the row do not rule out.

    What a plugin would have said about a pod being taken away from a node that is ruled out here goes unheard.
    """
    rows = verdicts.rows
    tried = np.ones(len(rows), dtype=np.bool_)
    rivals = rivals_of(preemptor.framework, preemptor.pod)
    if rivals is not None:
        # There the order of verdicts is another one: with the nominated pods first, over all plugins.
        tried[rivals.among(rows)] = False
    plugins = _leading_row_local(preemptor) if rules.is_eligible is None else []
    try:
        return _screen(preemptor, verdicts, plugins, tried, row_pods)
    except Broken:
        verdicts.ids.fill(_PASSES)
        return np.arange(len(rows))


def _leading_row_local(preemptor: Preemptor) -> list[FilterPlugin]:
    skipped = preemptor.state.skip_filter_plugins
    found: list[FilterPlugin] = []
    for plugin in preemptor.framework.filter:
        if plugin.name in skipped:
            continue
        if plugin.filter_scope is Scope.CLUSTER or lifts(plugin) or _has_extensions(plugin):
            break
        found.append(plugin)
    return found


def _has_extensions(plugin: FilterPlugin) -> bool:
    """Does the plugin want to hear of every pod added or removed in thought?"""
    return isinstance(plugin, PreFilterPlugin) and plugin.has_extensions
