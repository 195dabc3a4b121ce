"""Everything a decision about one class of pods rests on, so that most of it need not be found out again.

A plan is made from an attempt that went the long way: what PreFilter and PreScore stored then is put in place for every
further pod of the class, while the premises the plugins named hold. Filters and scores that look at one node only are in
the `ClassIndex`; the others are asked about one node of each group. A plan never decides differently than the long way:
where it cannot follow, it says so and the long way is gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.classes.index import ClassIndex, Unfit
from kubesched.framework.classes.ranking import Group, Ties
from kubesched.framework.classes.representatives import Representatives
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.interfaces import (
    FilterPlugin,
    Premise,
    PreScorePlugin,
    Scope,
    ScorePlugin,
    unconditional,
)
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status
from kubesched.framework.runtime.score import final_scores, raw_scores
from kubesched.framework.runtime.timing import FILTER, PRE_FILTER, PRE_SCORE, SCORE, timed
from kubesched.framework.status import Status
from kubesched.framework.traits import Trait
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pod_index import Counter
from kubesched.snapshot.views import NodeColumns

FEW_GROUPS: Final = 12
"""Up to this many groups are judged and scored one by one, if all plugins have a form for that."""


class Plan:
    """How pods of one class are placed. `token` is its identity for those who keep something that rests on it."""

    def __init__(self, framework: Framework, table: NodeTable, state: CycleState, pod: Pod) -> None:
        """From an attempt that has been through PreFilter and PreScore.

        Raises:
            Unfit: some plugin cannot say what its answers rest on, or tells too many kinds of nodes apart.
        """
        self._framework = framework
        self._table = table
        self.token = object()
        self._skipped_filters = frozenset(state.skip_filter_plugins)
        self._skipped_scores = frozenset(state.skip_score_plugins)
        self._entries = state.entries()
        self._entries.pop(PODS_TO_ACTIVATE, None)
        self._cluster_filters: list[FilterPlugin] = [
            p
            for p in framework.filter
            if p.filter_scope is Scope.CLUSTER and p.name not in self._skipped_filters
        ]
        self._cluster_scores: list[ScorePlugin] = [
            p
            for p in framework.score
            if p.score_scope is Scope.CLUSTER and p.name not in self._skipped_scores
        ]
        self._asked: list[PreScorePlugin] = []
        traits = self._traits(state, pod)
        self._premises = [(each, each()) for each in self._find_premises(state, pod)]
        self._epoch, self._lines = table.epoch, len(table.lines)
        self._counters: list[Counter] = list(
            {id(t.counter): t.counter for t in traits if t.counter is not None}.values()
        )
        self._index = ClassIndex(framework, table, state, pod, traits)
        judges = [p.filter_judge(state, pod) for p in self._cluster_filters]
        self._judges = [each for each in judges if each is not None]
        self._has_judges = len(self._judges) == len(judges)
        self._scores_few = all(
            type(p).score_few is not ScorePlugin.score_few for p in self._cluster_scores
        )

    def _traits(self, state: CycleState, pod: Pod) -> list[Trait]:
        found: dict[Hashable, Trait] = {}
        asked = [p.filter_traits(state, pod) for p in self._cluster_filters]
        asked += [p.score_traits(state, pod) for p in self._cluster_scores]
        for traits in asked:
            if traits is None:
                raise Unfit
            found.update({trait.key: trait for trait in traits})
        return list(found.values())

    def _find_premises(self, state: CycleState, pod: Pod) -> list[Premise]:
        framework = self._framework
        found: list[Premise] = []
        for plugin in framework.pre_filter:
            premise = plugin.pre_filter_premise(state, pod)
            if premise is None:
                raise Unfit
            found.append(premise)
        scoring = {plugin.name for plugin in self._cluster_scores}
        for asked in framework.pre_score:
            premise = asked.pre_score_premise(state, pod)
            if premise is not None:
                found.append(premise)
            elif asked.name in scoring:
                self._asked.append(asked)
            else:
                raise Unfit
        found += [
            each.filter_premise(state, pod)
            for each in framework.versioned_filters
            if each.name not in self._skipped_filters
        ]
        for score in framework.score:
            if score.name in self._skipped_scores or score.score_scope is Scope.CLUSTER:
                continue
            if score.normalizes and not score.normalizes_by_value:
                raise Unfit
            if score in framework.versioned_scores:
                found.append(score.score_premise(state, pod))
        return [premise for premise in found if premise is not unconditional]

    # -- deciding --------------------------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Is everything the plan was made from still so?"""
        table = self._table
        if self._epoch != table.epoch or self._lines != len(table.lines):
            return False
        for premise, value in self._premises:
            if premise() != value:
                return False
        for counter in self._counters:
            if counter.is_dropped:
                return False
            table.pod_index.keep(counter)
        return True

    def prepare(self, state: CycleState) -> None:
        """Put in place what PreFilter and PreScore would have stored."""
        state.adopt(self._entries)
        state.skip_filter_plugins = self._skipped_filters
        state.skip_score_plugins = self._skipped_scores
        state.points_reached |= PRE_FILTER | FILTER

    def feasible(self, state: CycleState, pod: Pod) -> Sequence[Group] | None:
        """The groups that pass every filter; None when the long way has to find out."""
        index = self._index
        try:
            index.sync(state, pod)
        except Unfit:
            return None
        groups = index.ranking.live_groups()
        if not self._cluster_filters or not groups:
            return groups
        if self._has_judges and len(groups) <= FEW_GROUPS:
            return self._judged(groups)
        outcome = run_filters(
            self._framework,
            state,
            pod,
            self._representatives(groups),
            self._cluster_filters,
            np.ones(len(groups), dtype=np.bool_),
        )
        if outcome.error is not None:
            return None
        return [g for g, passes in zip(groups, outcome.passing.tolist(), strict=True) if passes]

    def _judged(self, groups: list[Group]) -> list[Group]:
        """The groups whose sample row passes."""
        sample, judges = self._index.ranking.sample, self._judges
        if len(judges) == 1:
            passes = judges[0]
            return [group for group in groups if passes(sample(group))]
        return [group for group in groups if all([passes(sample(group)) for passes in judges])]

    def pre_score(self, state: CycleState, pod: Pod, groups: Sequence[Group]) -> bool:
        """Ask the PreScore plugins whose answer depends on which nodes are feasible; False when something is wrong."""
        state.points_reached |= PRE_SCORE
        if len(groups) == 1 or not self._asked or self._are_few(groups):
            return True
        view = self._representatives(groups)
        for plugin in self._asked:
            try:
                ask = timed(state.timer, plugin, "PreScore", plugin.pre_score)
                status = as_status(plugin, ask(state, pod, view))
            except Exception:  # it will raise again, and be reported, on the long way
                return False
            if status is not None:
                return False
        return True

    def best(self, state: CycleState, pod: Pod, groups: Sequence[Group]) -> Ties | None:
        """The rows sharing the best total; None when the long way has to find out."""
        state.points_reached |= SCORE
        ranking = self._index.ranking
        if len(groups) == 1:
            return ranking.best(groups, (0,))
        if self._are_few(groups):
            points = self._points_of_few(state, pod, groups)
            return None if points is None else ranking.best(groups, points)
        view = self._representatives(groups)
        totals = np.zeros(len(groups), dtype=np.int64)
        for at, raw in enumerate(self._index.raws):
            values = [group.kind[at] for group in groups]
            if values.count(values[0]) == len(values):
                continue  # all nodes get the same
            final = final_scores(raw.plugin, state, pod, np.array(values, dtype=np.int64), view)
            if isinstance(final, Status):
                return None
            totals += final * raw.weight
        weights = self._framework.score_weights
        for plugin in self._cluster_scores:
            scores = raw_scores(plugin, state, pod, view)
            if isinstance(scores, Status):
                return None
            final = final_scores(plugin, state, pod, scores, view)
            if isinstance(final, Status):
                return None
            totals += final * weights[plugin.name]
        return ranking.best(groups, totals.tolist())

    def _are_few(self, groups: Sequence[Group]) -> bool:
        return self._scores_few and len(groups) <= FEW_GROUPS

    def _points_of_few(
        self, state: CycleState, pod: Pod, groups: Sequence[Group]
    ) -> list[int] | None:
        """The same without arrays."""
        totals = [0] * len(groups)
        for at, raw in enumerate(self._index.raws):
            values = [group.kind[at] for group in groups]
            if values.count(values[0]) == len(values):
                continue  # all nodes get the same
            view = self._representatives(groups)
            final = final_scores(raw.plugin, state, pod, np.array(values, dtype=np.int64), view)
            if isinstance(final, Status):
                return None
            totals = [t + raw.weight * each for t, each in zip(totals, final.tolist(), strict=True)]
        if not self._cluster_scores:
            return totals
        sample = self._index.ranking.sample
        rows = [sample(group) for group in groups]
        counts = [group.count for group in groups]
        weights = self._framework.score_weights
        for plugin in self._cluster_scores:
            ask = timed(state.timer, plugin, "Score", plugin.score_few)
            scores = ask(state, pod, rows, counts)
            if scores is None:
                return None
            weight = weights[plugin.name]
            totals = [t + weight * each for t, each in zip(totals, scores, strict=True)]
        return totals

    def some_row(self, group: Group) -> int:
        return self._index.ranking.sample(group)

    def feasible_rows(self, groups: Sequence[Group]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return self._index.ranking.rows_of(groups, self._table.high_water)

    def _representatives(self, groups: Sequence[Group]) -> NodeColumns:
        sample = self._index.ranking.sample
        rows = np.array([sample(group) for group in groups], dtype=np.intp)
        return Representatives(self._table, rows, [group.count for group in groups])

    def check_invariants(self) -> None:
        self._index.check_invariants()
