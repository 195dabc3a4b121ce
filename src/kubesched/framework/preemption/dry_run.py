"""The dry run: evaluates preemption on nodes, without side effects, until it has enough candidates.

Three stages, each over fewer nodes than the one before:

    screen    drops nodes without potential victims, and nodes that row-local filters reject even
              with all victims removed
    together  nodes where no plugin tracks removed pods: evaluated as columns, in blocks of nodes
    alone     the remaining nodes, one by one

The first two are optimizations; the result equals evaluating every node alone. "Row-local" filters
judge a node by that node and its pods. Other filters need a `remove_pod` call for every removed
pod, unless they ignore it (`ignores_pod`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import ignores_pod
from kubesched.framework.interfaces import FilterPlugin, PreFilterPlugin
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.columns import Ids, Indices, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_index import LabelClass
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.priorities import Below
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.candidates import (
    Candidate,
    JoinedCandidates,
    ListedCandidates,
    Part,
    Quota,
    Shortlist,
)
from kubesched.framework.preemption.row_pods import CountedBelow
from kubesched.framework.preemption.victim_columns import (
    Broken,
    VictimColumns,
    filter_what_if,
    without_lower,
)
from kubesched.framework.preemption.victims import (
    NO_VICTIMS,
    USUAL_RULES,
    Preemptor,
    VictimRules,
    no_victim_on,
    select_victims,
)
from kubesched.framework.rules import Scope
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import FilterOutcome, what_if_scope
from kubesched.framework.runtime.nominated import Rivals, rivals_of
from kubesched.framework.status import Code, Status

_UNEXPLAINED, _PASSES, _NO_VICTIMS = -2, -1, 0
"""Verdict ids: rejected by filters (status not computed), not rejected so far, first status."""


def dry_run(
    preemptor: Preemptor,
    rows: Indices,
    wanted: int,
    budgets: Budgets,
    rules: VictimRules,
    *,
    together: bool = True,
) -> DryRun:
    """Evaluate the rows in the given order until there are `wanted` candidates.

    Without `together` every node is evaluated alone, with the same outcome.
    """
    run = partial(_Run, preemptor, rows, wanted, budgets, rules)
    try:
        return run(together=together).run()
    except Broken:
        # A filter failed for some node of a block. Only the evaluation node by node shows which
        # one, and whether the search ends before that node.
        return run(together=False).run()


def victims_on(
    preemptor: Preemptor, rows: Indices, budgets: Budgets
) -> tuple[VictimColumns | None, NodeStatusColumns]:
    """The victims on rows where preemption may help, if any, and the statuses of the other rows.

    The preemptor's filters must be row-local. Raises `Broken` if a filter failed for some row.
    """
    return _Run(preemptor, rows, len(rows), budgets, USUAL_RULES).all_victims()


class DryRun:
    """The outcome: candidates, without budget violations first, and other nodes' statuses."""

    def __init__(self, table: NodeTable, shortlist: Shortlist | None, verdicts: _Verdicts) -> None:
        self._table = table
        self._verdicts = verdicts
        self.shortlist = shortlist
        """None when there is no candidate."""
        self.errors: list[Exception] = verdicts.errors

    def statuses(self) -> NodeStatusColumns:
        """The statuses of the nodes that are not candidates."""
        return self._verdicts.as_statuses(self._table)


class _Verdicts:
    """A verdict id per visited row."""

    def __init__(self, rows: Indices) -> None:
        self.rows = rows
        self.ids: Ids = np.full(len(rows), _PASSES, dtype=np.int32)
        self.statuses: list[Status] = [NO_VICTIMS]
        self.errors: list[Exception] = []
        self._outcomes: list[tuple[Indices, FilterOutcome]] = []

    def reject(self, index: int, status: Status) -> None:
        self.ids[index] = len(self.statuses)
        self.statuses.append(status)
        error = status.as_error() if status.code is Code.ERROR else None
        if error is not None:
            self.errors.append(error)

    def reject_as(self, indices: Indices, outcome: FilterOutcome) -> None:
        """Record a filter outcome for these indices; `as_statuses` computes the statuses."""
        self._outcomes.append((indices, outcome))
        self.ids[indices[~outcome.passing]] = _UNEXPLAINED

    def as_statuses(self, table: NodeTable) -> NodeStatusColumns:
        for indices, outcome in self._outcomes:
            failing = np.flatnonzero(~outcome.passing)
            ids, statuses = outcome.classify(failing)
            self.ids[indices[failing]] = ids + len(self.statuses)
            self.statuses.extend(statuses)
        self._outcomes.clear()
        tried = np.flatnonzero(self.ids != _PASSES)
        return NodeStatusColumns(table, self.rows[tried], self.ids[tried], self.statuses)


class _Run:
    """The state of one dry run."""

    def __init__(
        self,
        preemptor: Preemptor,
        rows: Indices,
        wanted: int,
        budgets: Budgets,
        rules: VictimRules,
        *,
        together: bool = True,
    ) -> None:
        framework = preemptor.framework
        self._preemptor = preemptor
        self._table = framework.handle.table
        self._rows = rows
        self._block_size = max(wanted, 1)
        self._budgets = budgets
        self._rules = rules
        self._rivals: Rivals | None = rivals_of(framework, preemptor.pod)
        self._verdicts = _Verdicts(rows)
        self._quota = Quota(wanted)
        self._parts: list[Part] = []
        self._below: Below | CountedBelow | None = self._table.pods_below(preemptor.pod.priority)
        self._is_local = together and rules.are_usual and preemptor.scopes.are_row_local
        self._caring = (
            CaringPlugins(framework, preemptor.state, preemptor.pod.pod)
            if together and rules.are_usual and not self._is_local
            else None
        )
        self._screens = together

    def run(self) -> DryRun:
        """Raises `Broken` if a filter failed for some node of a block."""
        passing = self._screen()
        for at in range(0, len(passing), self._block_size):
            self._try(passing[at : at + self._block_size])
            if self._quota.is_filled:
                break
        shortlist = JoinedCandidates(self._parts) if self._parts else None
        return DryRun(self._table, shortlist, self._verdicts)

    def all_victims(self) -> tuple[VictimColumns | None, NodeStatusColumns]:
        """The victims on rows that pass the screen, and the other rows' verdicts; or `Broken`."""
        assert self._is_local, "the filters are not row-local"
        passing = self._screen()
        victims = None
        if len(passing):
            victims = VictimColumns(self._preemptor, self._rows[passing], self._budgets)
        return victims, self._verdicts.as_statuses(self._table)

    # -- screen ------------------------------------------------------------------------------------

    def _pods_below(self) -> Below | CountedBelow:
        if self._below is None:
            self._below = CountedBelow(self._table, self._rows, self._preemptor.pod.priority)
        return self._below

    def _screen(self) -> Indices:
        """Reject the nodes that cannot help; returns the indices of the others.

        Nodes rejected here get no `remove_pod` call, so an error from it is not reported.
        """
        if not self._rules.go_by_priority:
            return np.arange(len(self._rows))
        verdicts, below = self._verdicts, self._pods_below()
        has_some = below.pod_count(self._rows) > 0
        verdicts.ids[~has_some] = _NO_VICTIMS
        plugins = self._screening_plugins()
        if plugins:
            judged = np.flatnonzero(has_some)
            if len(judged):
                verdicts.reject_as(judged, self._filter_without_lower(judged, plugins))
        return np.flatnonzero(verdicts.ids == _PASSES)

    def _screening_plugins(self) -> list[FilterPlugin]:
        """The filters before the first that is not row-local; their order decides the status."""
        if not self._screens or self._rules.is_eligible is not None:
            return []
        framework = self._preemptor.framework
        if self._is_local:
            return framework.filter
        state, pod = self._preemptor.state, self._preemptor.pod.pod
        screening: list[FilterPlugin] = []
        for plugin in framework.filter:
            if plugin.name in state.skip_filter_plugins:
                continue
            if (
                not plugin.filters_columns
                or _has_extensions(plugin)
                or what_if_scope(plugin, state, pod) is Scope.CLUSTER
            ):
                break
            screening.append(plugin)
        return screening

    def _filter_without_lower(
        self, indices: Indices, plugins: list[FilterPlugin] | None
    ) -> FilterOutcome:
        rows, preemptor = self._rows[indices], self._preemptor
        view = without_lower(self._table, rows, self._pods_below(), preemptor.pod.priority)
        return filter_what_if(preemptor, view, self._rivals, plugins)

    # -- together and alone ------------------------------------------------------------------------

    def _try(self, block: Indices) -> None:
        """Select the victims on a block of rows; keep the candidates that the quota admits."""
        alone = self._must_be_tried_alone(block)
        tried = [self._try_together(block[~alone]), self._try_alone(block[alone])]
        parts = [part for part in tried if part is not None]
        if not parts:
            return
        # Admit them in visiting order, as if evaluated one after the other.
        places = np.concatenate([part.places for part in parts])
        violations = np.concatenate([-part.source.criteria[0, part.chosen] for part in parts])
        order = np.argsort(places)
        kept = places[order[self._quota.admit(violations[order])]]
        for part in parts:
            admitted = np.isin(part.places, kept)
            if admitted.any():
                chosen = part.chosen[admitted]
                self._parts.append(Part(part.source, chosen, part.places[admitted]))

    def _must_be_tried_alone(self, block: Indices) -> Mask:
        if self._is_local:
            return np.zeros(len(block), dtype=np.bool_)
        caring = self._caring
        if caring is None or not caring.can_tell:
            return np.ones(len(block), dtype=np.bool_)
        rows, pods = self._rows[block], self._table.pods
        priority = self._preemptor.pod.priority
        alone = np.array(
            [
                any(caring.care(pod) for pod in pods[row].values() if pod.priority < priority)
                for row in rows.tolist()
            ],
            dtype=np.bool_,
        )
        if self._rivals is not None:
            alone[self._rivals.among(rows)] = True
        return alone

    def _try_together(self, indices: Indices) -> Part | None:
        if not len(indices):
            return None
        if not self._is_local:
            outcome = self._filter_without_lower(indices, None)
            self._verdicts.reject_as(indices, outcome)
            indices = indices[outcome.passing]
            if not len(indices):
                return None
        rows = self._rows[indices]
        victims = VictimColumns(self._preemptor, rows, self._budgets)
        for index in np.flatnonzero(victims.victim_count == 0).tolist():
            self._verdicts.reject(
                int(indices[index]), no_victim_on(self._table.names[int(rows[index])])
            )
        real = np.flatnonzero(victims.victim_count)
        return Part(victims, real, indices[real]) if len(real) else None

    def _try_alone(self, indices: Indices) -> Part | None:
        candidates: list[Candidate] = []
        places: list[int] = []
        # If these candidates fill the quota, the search ends here: skip the rest of the block.
        quota = self._quota.copy()
        for index in indices.tolist():
            row = int(self._rows[index])
            victims = select_victims(self._preemptor, row, self._budgets, self._rules)
            if isinstance(victims, Status):
                self._verdicts.reject(index, victims)
            elif not victims.pods:
                self._verdicts.reject(index, no_victim_on(self._table.names[row]))
            else:
                candidates.append(Candidate(self._table.names[row], victims))
                places.append(index)
                quota.admit(np.array([victims.pdb_violations], dtype=np.int64))
                if quota.is_filled:
                    break
        if not candidates:
            return None
        source = ListedCandidates(candidates, self._preemptor.now_us)
        return Part(source, np.arange(len(candidates)), np.array(places))


class CaringPlugins:
    """The plugins that need `remove_pod` calls during what-ifs, and the pods they track."""

    def __init__(self, framework: Framework, state: CycleState, pod: Pod) -> None:
        skipped = state.skip_filter_plugins
        self._state, self._pod = state, pod
        self._plugins = [
            p for p in framework.pre_filter if p.has_extensions and p.name not in skipped
        ]
        self._known: dict[LabelClass, bool] = {}
        self.can_tell = all(
            plugin.filters_columns
            and (_has_extensions(plugin) or what_if_scope(plugin, state, pod) is not Scope.CLUSTER)
            for plugin in framework.filter
            if plugin.name not in skipped
        )
        """True if all filters that are not row-local implement `ignores_pod`."""

    def care(self, pod: PodInfo) -> bool:
        label_class = pod.label_class
        if label_class is None or pod.pod.spec.affinity is not None:
            return self._ask(pod)
        known = self._known.get(label_class)
        if known is None:
            known = self._known[label_class] = self._ask(pod)
        return known

    def _ask(self, pod: PodInfo) -> bool:
        return not all(ignores_pod(p, self._state, self._pod, pod) for p in self._plugins)


def _has_extensions(plugin: FilterPlugin) -> bool:
    """True if the plugin needs `add_pod` and `remove_pod` calls during what-ifs."""
    return isinstance(plugin, PreFilterPlugin) and plugin.has_extensions
