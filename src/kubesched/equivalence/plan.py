"""A plan: the reusable part of the decisions about one equivalence class.

A plan is made from an attempt that ran the full evaluation. The entries that PreFilter and PreScore stored in its cycle
state are reused for further pods of the class while the premises of the plugins' rules hold. By its rule, a plugin is

    indexed    NODE or ROW scope: answers are kept per row and recomputed for dirty rows (`class_index`)
    grouped    CLUSTER scope with traits: evaluated for one node of each group
    residual   no lasting rule, or no traits: evaluated for all remaining nodes, for every pod

Without residual plugins the cost of a decision does not depend on the number of nodes (`best_of_groups`). With them, or
with nominated pods, the rows of a group differ, and the decision is made over the kept columns (`totals_of_rows`).

The index is shared by all classes of a shape (`row_layers`); what a class adds are the few rows on which its own pods are
counted (`class_rows`, `overlay`). So the first pod of a new app needs no evaluation of all nodes.

A plan always matches the full evaluation. If it cannot answer, it raises `Unfit` and the caller falls back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.class_index import ClassIndex, IndexedFilter, IndexedScore, Unfit
from kubesched.equivalence.class_rows import ClassRows
from kubesched.equivalence.overlay import Overlay
from kubesched.equivalence.premises import (
    FilterRules,
    Premises,
    ScoreRules,
    filter_rules,
    is_lasting,
    score_rules,
)
from kubesched.equivalence.ranking import Group, Ranking, Ties
from kubesched.equivalence.representatives import Representatives
from kubesched.equivalence.row_layers import NoRoom, RowLayers
from kubesched.equivalence.signature import ClassKey
from kubesched.equivalence.walk import Walk
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.interfaces import (
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import Rivals, filter_contested
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.score import final_scores, raw_scores, run_pre_score
from kubesched.framework.runtime.timing import FILTER, PRE_FILTER, PRE_SCORE, SCORE, timed
from kubesched.framework.status import Status
from kubesched.framework.traits import Trait
from kubesched.snapshot.columns import Indices, Ints, Levels, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pod_index import Counter
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

T = TypeVar("T")

FEW_GROUPS: Final = 12
"""Up to this many groups are filtered and scored without arrays, if all plugins have a scalar form."""


class ClusterScore(NamedTuple):
    """A score of CLUSTER scope."""

    plugin: ScorePlugin
    weight: int
    rule: Rule[int] | None


class Refused(NamedTuple):
    """Rows that fail because of nominated pods, valid until one of the rows with such pods changes."""

    rivals: Rivals
    rows: frozenset[int]
    until: int
    """A cursor of the table's log."""
    refused: Indices | None


class Plan:
    """The plan of one class over one table."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        layers: RowLayers,
        class_key: ClassKey,
    ) -> None:
        """From an attempt that has been through PreFilter and PreScore.

        Raises:
            Unfit: a plugin failed while its answers were collected, or there is no room for a layer.
        """
        self.pod = pod
        """The pod it was made from. It stands for all others, so it must belong to the class still."""
        self._framework = framework
        self._table = table
        self._layers = layers
        self._class_key = class_key
        self._skipped_filters = frozenset(state.skip_filter_plugins)
        self._skipped_scores = frozenset(state.skip_score_plugins)
        filters = filter_rules(framework, state, pod)
        scores = score_rules(framework, state, pod)
        self._is_grouped = all(is_lasting(scores[plugin.name]) for plugin in framework.score)
        if self._is_grouped:
            try:
                self._make(state, pod, filters, scores)
            except NoRoom:
                raise
            except Unfit:  # too many groups
                self._is_grouped = False
        if not self._is_grouped:
            self._make(state, pod, _without_traits(filters), _without_traits(scores))

    # -- making ----------------------------------------------------------------------------------------------------

    def _make(self, state: CycleState, pod: Pod, filters: FilterRules, scores: ScoreRules) -> None:
        framework = self._framework
        self._sort_filters(filters)
        self._sort_scores(scores)
        indexed = self._indexed_rules()
        rules: list[Rule[Any] | None] = [*filters.values(), *scores.values()]
        own = [rule for rule in rules if not any([rule is other for other in indexed])]
        self._premises = Premises(self._table, own)
        self._asked_pre_filters: list[PreFilterPlugin] = [
            p for p in framework.pre_filter if not is_lasting(filters[p.name])
        ]
        cluster_scores = {score.plugin.name for score in self._cluster_scores}
        self._asked_pre_scores: list[PreScorePlugin] = [
            p
            for p in framework.pre_score
            if not is_lasting(scores[p.name]) or p.name in cluster_scores
        ]
        self._entries = self._lasting_entries(state, pod, scores)
        self._make_index(state, pod)

    def _indexed_rules(self) -> list[Rule[Any]]:
        filters: list[Rule[Any]] = [indexed.rule for indexed in self._indexed_filters]
        return filters + [indexed.rule for indexed in self._indexed_scores]

    def _sort_filters(self, rules: FilterRules) -> None:
        self._indexed_filters: list[IndexedFilter] = []
        self._grouped_filters: list[tuple[FilterPlugin, Rule[bool]]] = []
        self._residual_filters: list[FilterPlugin] = []
        for plugin in self._framework.filter:
            rule = rules[plugin.name]
            if rule is None or not rule.is_lasting:
                self._residual_filters.append(plugin)
            elif plugin.name in self._skipped_filters:
                continue
            elif rule.depends_on is not Scope.CLUSTER:
                self._indexed_filters.append(IndexedFilter(plugin, rule))
            else:
                self._grouped_filters.append((plugin, rule))

    def _sort_scores(self, rules: ScoreRules) -> None:
        self._indexed_scores: list[IndexedScore] = []
        self._cluster_scores: list[ClusterScore] = []
        weights = self._framework.score_weights
        for plugin in self._framework.score:
            rule, weight = rules[plugin.name], weights[plugin.name]
            if rule is None or not rule.is_lasting:
                self._cluster_scores.append(ClusterScore(plugin, weight, None))
            elif plugin.name in self._skipped_scores:
                continue
            elif rule.depends_on is not Scope.CLUSTER:
                self._indexed_scores.append(IndexedScore(plugin, weight, rule))
            elif rule.traits:  # without any trait, all nodes score the same
                self._cluster_scores.append(ClusterScore(plugin, weight, rule))

    def _lasting_entries(self, state: CycleState, pod: Pod, scores: ScoreRules) -> dict[str, Any]:
        """The cycle state entries of plugins with a lasting rule."""
        framework = self._framework
        if self._asked_pre_filters or not all(is_lasting(rule) for rule in scores.values()):
            # Entries do not name their plugin, and those of other plugins hold for one pod only. So run the plugins with
            # a lasting rule again, on an empty state.
            asked, scratch = self._asked_pre_filters, CycleState()
            scratch.class_memo = state.class_memo
            view = NodeColumns(self._table)
            pre_filters = [p for p in framework.pre_filter if p not in asked]
            pre_scores = [p for p in framework.pre_score if is_lasting(scores[p.name])]
            if run_pre_filter(framework, scratch, pod, view, pre_filters).status is not None:
                raise Unfit
            if run_pre_score(framework, scratch, pod, view, pre_scores) is not None:
                raise Unfit
            state = scratch
        entries = state.entries()
        entries.pop(PODS_TO_ACTIVATE, None)
        return entries

    def _make_index(self, state: CycleState, pod: Pod) -> None:
        rules: list[Rule[Any] | None] = [rule for _, rule in self._grouped_filters]
        rules += [score.rule for score in self._cluster_scores]
        traits: dict[Hashable, Trait] = {
            trait.key: trait for rule in rules if rule is not None for trait in rule.traits or ()
        }
        self._traits = list(traits.values())
        self._node_cursor = self._table.node_log.end
        self._counters: list[Counter] = list(
            {id(t.counter): t.counter for t in self._traits if t.counter is not None}.values()
        )
        self._refused: Refused | None = None
        self._rows = ClassRows(
            self._table,
            self._layers,
            self._class_key,
            self._indexed_names(),
            self._traits if self._is_grouped else None,
            partial(self._make_layer, state, pod),
        )
        self._ranking: Overlay | Ranking = self._rows.index.ranking
        judges = [rule.at for _, rule in self._grouped_filters]
        self._judges = [at for at in judges if at is not None]
        self._has_judges = len(self._judges) == len(judges)
        self._finals = [
            (score.rule.final, score.weight, score.plugin)
            for score in self._cluster_scores
            if score.rule is not None and score.rule.final is not None
        ]
        self._has_finals = len(self._finals) == len(self._cluster_scores)

    def _indexed_names(self) -> tuple[str, ...]:
        names = [indexed.plugin.name for indexed in self._indexed_filters]
        return (*names, *[indexed.plugin.name for indexed in self._indexed_scores])

    def _make_layer(
        self, state: CycleState, pod: Pod, traits: Sequence[Trait] | None
    ) -> tuple[ClassIndex, Premises]:
        """For a layer that is missing. Raises Unfit."""
        filters, scores = self._indexed_filters, self._indexed_scores
        framework, table, stacks = self._framework, self._table, self._layers.stacks
        index = ClassIndex(framework, table, state, pod, filters, scores, traits, stacks)
        return index, Premises(self._table, self._indexed_rules())

    # -- deciding --------------------------------------------------------------------------------------------------

    @property
    def is_grouped(self) -> bool:
        """Can the choice be made between groups, if all rows of the feasible ones pass?"""
        return self._is_grouped

    @property
    def chooses_by_group(self) -> bool:
        """Can the choice be made between groups (in the absence of nominated pods)?"""
        return self._is_grouped and not self._residual_filters

    def holds(self) -> bool:
        """Are all premises of the plan still valid?"""
        if not self._premises.hold() or not self._rows.hold():
            return False
        keep = self._table.pod_index.keep
        for counter in self._counters:
            if counter.is_dropped:
                return False
            keep(counter)
        return True

    def prepare(self, state: CycleState, pod: Pod) -> bool:
        """Fill the state as PreFilter and PreScore would; False if the full evaluation is needed. Raises Unfit."""
        self._follow_nodes()
        state.adopt(self._entries)
        state.skip_score_plugins = self._skipped_scores
        state.points_reached |= PRE_FILTER | FILTER
        if not self._asked_pre_filters:
            state.skip_filter_plugins = self._skipped_filters
            return True
        asked = self._asked_pre_filters
        outcome = run_pre_filter(self._framework, state, pod, NodeColumns(self._table), asked)
        kept = self._skipped_filters.difference(p.name for p in asked)
        state.skip_filter_plugins = kept.union(state.skip_filter_plugins)
        return outcome.status is None and outcome.node_names is None

    def refused_rows(self, state: CycleState, pod: PodInfo, rivals: Rivals) -> Indices | None:
        """The rows that fail with the rivals on them; None if there are none. Raises Unfit."""
        log, kept = self._table.pod_log, self._refused
        if kept is not None and kept.rivals is rivals:
            changed = log.since(kept.until)
            if changed is not None and kept.rows.isdisjoint(changed):
                self._refused = kept._replace(until=log.end)
                return kept.refused
        contested = filter_contested(
            self._framework, state, pod, NodeColumns(self._table, rivals.rows)
        )
        refused = None
        if contested is not None:
            indices, outcome = contested
            if outcome.error is not None:
                raise Unfit
            if not outcome.passing.all():
                refused = rivals.rows[indices[~outcome.passing]]
        if not (self._grouped_filters or self._residual_filters or self._asked_pre_filters):
            # Nothing but these rows enters the verdicts.
            rows = frozenset(rivals.rows.tolist())
            self._refused = Refused(rivals, rows, log.end, refused)
        return refused

    def feasible_groups(
        self,
        state: CycleState,
        pod: Pod,
        refused: Indices | None = None,
        *,
        by_row: bool = False,
    ) -> Sequence[Group]:
        """The groups that pass all but the residual filters, without the refused rows. Raises Unfit.

        With `by_row` the group of every row is wanted.
        """
        ranking = self._ranking = self._rows.ranked(state, pod, refused, by_row=by_row)
        groups = ranking.live_groups()
        if not self._grouped_filters or not groups:
            return groups
        if self._has_judges and len(groups) <= FEW_GROUPS:
            return self._judged(groups)
        outcome = run_filters(
            self._framework,
            state,
            pod,
            self._representatives(groups),
            [plugin for plugin, _ in self._grouped_filters],
            np.ones(len(groups), dtype=np.bool_),
        )
        if outcome.error is not None:
            raise Unfit
        return [g for g, passes in zip(groups, outcome.passing.tolist(), strict=True) if passes]

    def _follow_nodes(self) -> None:
        """The layer's traits follow the nodes by themselves, the plan's have to be told.

        Their counts are those that filters read from the state, so this comes before any filter.
        """
        end = self._table.node_log.end
        if self._node_cursor != end:
            self._node_cursor = end
            if not all([trait.follow() for trait in self._traits]):
                raise Unfit

    def _judged(self, groups: list[Group]) -> list[Group]:
        """The groups whose sample row passes."""
        sample, judges = self._ranking.sample, self._judges
        if len(judges) == 1:
            passes = judges[0]
            return [group for group in groups if passes(sample(group))]
        return [group for group in groups if all([passes(sample(group)) for passes in judges])]

    # -- by groups -------------------------------------------------------------------------------------------------

    def pre_score_groups(self, state: CycleState, pod: Pod, groups: Sequence[Group]) -> None:
        """Run the PreScore plugins whose result depends on the feasible nodes. Raises Unfit."""
        state.points_reached |= PRE_SCORE
        if len(groups) > 1 and self._asked_pre_scores and not self._are_few(groups):
            self._pre_score(state, pod, self._representatives(groups))

    def _pre_score(self, state: CycleState, pod: Pod, feasible: NodeColumns) -> None:
        asked = self._asked_pre_scores
        if run_pre_score(self._framework, state, pod, feasible, asked) is not None:
            raise Unfit
        kept = self._skipped_scores.difference(p.name for p in asked)
        state.skip_score_plugins = kept.union(state.skip_score_plugins)

    def best_of_groups(self, state: CycleState, pod: Pod, groups: Sequence[Group]) -> Ties:
        """The rows sharing the best total. Raises Unfit."""
        state.points_reached |= SCORE
        if len(groups) == 1:
            return self._ranking.best(groups, (0,))
        return self._ranking.best(groups, self._points_of(state, pod, groups))

    def _are_few(self, groups: Sequence[Group]) -> bool:
        return self._has_finals and len(groups) <= FEW_GROUPS

    def _points_of(self, state: CycleState, pod: Pod, groups: Sequence[Group]) -> list[int]:
        """What the rows of each group score besides their level.

        Without arrays if there are few groups: 52 against 89 µs of CPU with spread-soft (benchmarks/decisions.py).
        """
        totals = [0] * len(groups)
        for at, raw in enumerate(self._rows.index.raws):
            values = [group.key[at] for group in groups]
            if values.count(values[0]) == len(values):
                continue  # all nodes get the same
            view = self._representatives(groups)
            final = _final(raw.plugin, state, pod, np.array(values, dtype=np.int64), view)
            totals = [t + raw.weight * s for t, s in zip(totals, final.tolist(), strict=True)]
        if not self._are_few(groups):
            view = self._representatives(groups)
            array = np.array(totals, dtype=np.int64)
            points: list[int] = self._add_cluster_scores(state, pod, view, array).tolist()
            return points
        if not self._finals:
            return totals
        sample = self._ranking.sample
        rows = [sample(group) for group in groups]
        counts = [group.count for group in groups]
        for final_of, weight, plugin in self._finals:
            scores = timed(state.timer, plugin, "Score", final_of)(rows, counts)
            totals = [t + weight * s for t, s in zip(totals, scores, strict=True)]
        return totals

    # -- in the order of a walk ------------------------------------------------------------------------------------

    def walk(self, groups: Sequence[Group], walk: Walk) -> tuple[Indices, int]:
        """The rows of these groups that are found first, and how many rows were examined."""
        flat = self._flat
        if len(groups) == len(flat.live_groups()):
            return flat.walk(walk)
        is_member, group_of = flat.membership(groups), flat.group_of
        return walk.first(lambda rows: is_member[group_of[rows]])

    def groups_of(self, rows: Indices, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups of which there are rows, with the number of these. They are all among the given ones."""
        if len(groups) == 1 or len(rows) == sum([group.count for group in groups]):
            return groups
        flat = self._flat
        counts = np.bincount(flat.group_of[rows], minlength=len(flat.by_number)).tolist()
        return [flat.part(group, counts[group.number]) for group in groups if counts[group.number]]

    def totals_of_walk(
        self, state: CycleState, pod: Pod, groups: Sequence[Group], rows: Indices
    ) -> Levels:
        """What the rows of these groups score. Raises Unfit."""
        state.points_reached |= SCORE
        flat = self._flat
        totals: Levels = flat.level.take(rows)
        if len(groups) > 1:
            points = np.zeros(len(flat.by_number), dtype=np.int64)
            points[[group.number for group in groups]] = self._points_of(state, pod, groups)
            totals = totals + points.take(flat.group_of.take(rows))
        return totals

    @property
    def _flat(self) -> Ranking:
        ranking = self._ranking
        assert isinstance(ranking, Ranking), "an overlay does not know the group of every row"
        return ranking

    # -- by rows ---------------------------------------------------------------------------------------------------

    def feasible_rows(self, groups: Sequence[Group]) -> Mask:
        """The rows of some groups, as a mask over all rows in use."""
        return self._ranking.rows_of(groups, self._table.high_water)

    def filter_rows(self, state: CycleState, pod: Pod, passing: Mask) -> Mask:
        """The rows that pass the residual filters as well. Raises Unfit."""
        if not self._residual_filters:
            return passing
        view = NodeColumns(self._table)
        outcome = run_filters(self._framework, state, pod, view, self._residual_filters, passing)
        # A filter that comes later may have ruled out a node at which the full evaluation would fail.
        if outcome.error is not None or outcome.has_hidden_errors:
            raise Unfit
        return outcome.passing

    def pre_score_rows(self, state: CycleState, pod: Pod, feasible: NodeColumns) -> None:
        """Like `pre_score_groups`, for feasible nodes that are not whole groups."""
        state.points_reached |= PRE_SCORE
        if self._asked_pre_scores:
            self._pre_score(state, pod, feasible)

    def totals_of_rows(self, state: CycleState, pod: Pod, feasible: NodeColumns) -> Levels:
        """What the rows score. Raises Unfit."""
        state.points_reached |= SCORE
        rows = feasible.row_indices()
        totals: Levels = self._ranking.level[rows]
        for raw in self._rows.index.raws:
            final = _final(raw.plugin, state, pod, raw.column[rows], feasible)
            totals = totals + final * raw.weight
        return self._add_cluster_scores(state, pod, feasible, totals)

    def _add_cluster_scores(
        self, state: CycleState, pod: Pod, view: NodeColumns, totals: Levels
    ) -> Levels:
        skipped = state.skip_score_plugins
        for plugin, weight, _ in self._cluster_scores:
            if plugin.name in skipped:
                continue
            scores = raw_scores(plugin, state, pod, view)
            if isinstance(scores, Status):
                raise Unfit
            if isinstance(scores, int):
                scores = np.full(len(view), scores, dtype=np.int64)
            totals = totals + _final(plugin, state, pod, scores, view) * weight
        return totals

    # -- others ----------------------------------------------------------------------------------------------------

    def some_row(self, group: Group) -> int:
        return self._ranking.sample(group)

    def _representatives(self, groups: Sequence[Group]) -> NodeColumns:
        sample = self._ranking.sample
        rows = np.array([sample(group) for group in groups], dtype=np.intp)
        return Representatives(self._table, rows, [group.count for group in groups])

    def check_invariants(self) -> None:
        self._rows.index.check_invariants()


def _final(
    plugin: ScorePlugin, state: CycleState, pod: Pod, raw: Ints, feasible: NodeColumns
) -> Ints:
    final = final_scores(plugin, state, pod, raw, feasible)
    if isinstance(final, Status):
        raise Unfit
    return final


def _without_traits(rules: dict[str, Rule[T] | None]) -> dict[str, Rule[T] | None]:
    """The rules to use if nodes cannot be grouped: plugins that need traits become residual."""
    return {name: None if rule is None or rule.traits else rule for name, rule in rules.items()}
