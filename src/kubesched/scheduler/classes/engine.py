"""The equivalence engine: decisions from cached answers of the pod's class.

The engine replaces Filter and Score after PreFilter has run, or returns None. The scheduling
algorithm then runs the full evaluation. Both give the same decision:

    cached filters ──► rows that pass ──► per-pod filters, nominated pods ──► feasible rows
                                                                                    │
    best rows ◄── cached levels + normalized raw scores + per-pod scores ◄── PreScore
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from kubesched.base.logs import get_logger
from kubesched.framework.basis import Rules, filter_rules, is_lasting, score_rules
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.interfaces import ScorePlugin
from kubesched.framework.nodes.columns import Indices, Levels, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import filter_contested, nominations_version, rivals_of
from kubesched.framework.runtime.pre_filter import PreFilterOutcome
from kubesched.framework.runtime.score import final_scores, raw_scores, run_pre_score
from kubesched.framework.runtime.timing import FILTER, SCORE
from kubesched.framework.status import Status
from kubesched.scheduler.classes.known_failure import KnownFailure
from kubesched.scheduler.classes.pod_classes import Answers, ClassCache, PodClass
from kubesched.scheduler.classes.row_columns import FilterColumns, ScoreColumns, Unfit
from kubesched.scheduler.classes.signature import Signatures
from kubesched.scheduler.classes.walk import Walk

log = get_logger(__name__)

_BLOCK: Final = 8192
_ALIKE: Final[Levels] = np.zeros(1, dtype=np.int16)
"""The total score if only one node is feasible."""


class Best(NamedTuple):
    """After evaluating all nodes: the feasible nodes in row order, and the best of them."""

    passing: Mask
    """The feasible rows."""
    totals: Levels | Mask
    """Total scores of the feasible nodes, or of all rows: 0 where infeasible."""
    feasible: int

    def ties(self) -> Mask:
        """The nodes with the best total, among feasible nodes or all rows."""
        best: Mask = self.totals == self.totals[self.totals.argmax()]
        return best

    def row(self, draw: Callable[[int], int]) -> int:
        """A random row of the best; `draw(n)` returns a number below n."""
        ties = self.ties()
        count = int(np.count_nonzero(ties))
        place = nth(ties, draw(count) if count > 1 else 0)
        return place if len(ties) == len(self.passing) else nth(self.passing, place)


class Walked(NamedTuple):
    """The outcome of a walk: the feasible nodes in walk order, and their totals."""

    rows: Indices
    totals: Levels
    examined: int


Answer = Best | Walked | Diagnosis
"""The feasible nodes, or why the pod fits on no node."""


class ClassEngine:
    """Decides from answers cached per class of pods."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.classes = ClassCache(table)
        self._signatures = Signatures()
        self.newest_rules: list[Rules] = [{}, {}]
        """Those behind the newest filters and scores, as examples for diagnostics."""

    def forget(self) -> None:
        """Drop all classes."""
        self.classes.clear()

    def class_of(self, framework: Framework, pod: PodInfo) -> PodClass | None:
        """The pod's class; None for a pod that cannot share answers."""
        signature, shape = pod.class_key, pod.shape_key
        if signature is None or shape is None:
            shape, signature = self._signatures.of(framework, pod.pod) or (b"", b"")
            pod.class_key, pod.shape_key = signature, shape
        if not signature:
            return None
        pod_class = self.classes.get(pod, signature, shape)
        # Thousands of pods on nodes share one copy of their signature.
        pod.class_key, pod.shape_key = pod_class.signature, pod_class.shape
        pod.share_derived(pod_class.derived, pod_class.label_key)
        return pod_class

    # -- answering ---------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, pod_class: PodClass
    ) -> PreFilterOutcome | None:
        """The uncached part of PreFilter; None if nothing is cached or a plugin rejects the pod."""
        filters = self.classes.answers(pod_class.shape).filters
        if filters is None or not filters.basis.holds():
            return None
        return filters.pre_filter(state, pod.pod)

    def feasible(
        self, framework: Framework, state: CycleState, pod: PodInfo, pod_class: PodClass
    ) -> Mask | None:
        """The rows that pass, for a pod that passed PreFilter; None as `decide`. Read-only."""
        answers = self.classes.answers(pod_class.shape)
        if answers.is_given_up:
            return None
        try:
            filters = self._filters(framework, state, pod, answers)
            kept = filters.passing(state, pod.pod)
            return self._narrowed(framework, state, pod, filters, kept)
        except Unfit:
            answers.drop()
        return None

    def decide(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass,
        walk: Walk | None = None,
    ) -> Answer | None:
        """The answer for a pod that passed PreFilter; None if the full evaluation is needed.

        Without a walk the order of the nodes does not matter. A failure on a part of the nodes is
        left to the full evaluation: only those on all nodes are cached.
        """
        answers = self.classes.answers(pod_class.shape)
        if answers.is_given_up:
            return None
        try:
            return self._decide(framework, state, pod, answers, walk)
        except Unfit:
            answers.drop()
        except Exception as error:  # raised by a plugin's rule; use the full evaluation
            self._give_up(pod, answers, error)
        return None

    def _decide(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        answers: Answers,
        walk: Walk | None,
    ) -> Answer | None:
        started = framework.now()
        filters = self._filters(framework, state, pod, answers)
        kept = filters.passing(state, pod.pod)
        passing = self._narrowed(framework, state, pod, filters, kept)
        if passing is None:
            return None
        table, examined = self._table, self._table.node_count
        if walk is None:
            feasible: NodeColumns = PassingColumns(table, passing)
        else:
            rows, examined = walk.first(passing)
            feasible = NodeColumns(table, rows)
        count = len(feasible)
        if not count and walk is not None and len(walk.order) < table.node_count:
            return None
        if not count:
            return self._by_failure(framework, state, pod, answers, started)
        state.points_reached |= FILTER
        started = framework.point_done("Filter", started)
        if count == 1:
            return Best(passing, passing, 1) if walk is None else Walked(rows, _ALIKE, examined)
        scores = self._scores(framework, state, pod, answers, filters, feasible)
        if scores is None:
            return None
        started = framework.point_done("PreScore", started)
        level = scores.levels(state, pod.pod)
        totals = _totals(framework, state, pod, scores, level, feasible)
        state.points_reached |= SCORE
        framework.point_done("Score", started)
        if walk is not None:
            return Walked(rows, level[rows] if totals is None else totals, examined)
        if totals is None:  # the level is 0 for infeasible nodes
            totals = level if passing is kept else level * passing
        return Best(passing, totals, count)

    def _filters(
        self, framework: Framework, state: CycleState, pod: PodInfo, answers: Answers
    ) -> FilterColumns:
        filters = answers.filters
        if filters is None or not filters.basis.holds():
            answers.drop()
            rules = filter_rules(framework, state, pod.pod)
            self.newest_rules[0] = rules
            filters = FilterColumns(framework, self._table, state, pod.pod, rules)
            answers.filters = filters
        return filters

    def _scores(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        answers: Answers,
        filters: FilterColumns,
        feasible: NodeColumns,
    ) -> ScoreColumns | None:
        """The scores, after PreScore; None if PreScore failed."""
        scores = answers.scores
        if scores is not None and scores.basis.holds():
            return None if scores.pre_score(state, pod.pod, feasible) is not None else scores
        if run_pre_score(framework, state, pod.pod, feasible) is not None:
            return None
        rules = self.newest_rules[1] = score_rules(framework, state, pod.pod)
        scores = ScoreColumns(framework, self._table, state, pod.pod, rules, feasible, filters)
        answers.scores = scores
        return scores

    def _narrowed(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        filters: FilterColumns,
        passing: Mask,
    ) -> Mask | None:
        """The rows that also pass the per-pod filters, and with nominated pods added.

        None on an error: only the full evaluation can report it.
        """
        kept = passing
        if not filters.decide_alone(state.skip_filter_plugins):
            view = NodeColumns(self._table)
            outcome = run_filters(framework, state, pod.pod, view, filters.asked, kept.copy())
            # A cached filter may have rejected a node at which the full evaluation would fail.
            if outcome.error is not None or outcome.has_hidden_errors:
                return None
            passing = outcome.passing
        rivals = rivals_of(framework, pod)
        if rivals is not None:
            contested = filter_contested(
                framework, state, pod, NodeColumns(self._table, rivals.rows)
            )
            if contested is not None:
                indices, outcome = contested
                if outcome.error is not None:
                    return None
                passing = passing.copy() if passing is kept else passing
                passing[rivals.rows[indices[~outcome.passing]]] = False
        return passing

    def _by_failure(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        answers: Answers,
        started: float,
    ) -> Diagnosis | None:
        """Why the pod fits on no node, derived from the last failure of its shape if possible."""
        failure, filters = answers.failure, answers.filters
        nominations = nominations_version(framework, pod)
        if (
            failure is None
            or filters is None
            or nominations is None
            or not filters.decide_alone(state.skip_filter_plugins)
        ):
            return None
        diagnosis = failure.recall(state, pod, nominations)
        if diagnosis is None:
            return None
        state.points_reached |= FILTER
        framework.point_done("Filter", started)
        return diagnosis.copy()

    # -- learning ----------------------------------------------------------------------------------

    def learn_failure(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass,
        diagnosis: Diagnosis,
    ) -> bool:
        """After a full evaluation that found no node: True if any pod of the class would now fail.

        In that case, if every filter is row-local, the failure is cached for pods of its shape.
        """
        answers = self.classes.answers(pod_class.shape)
        answers.failure = None
        nominations = nominations_version(framework, pod)
        if nominations is None or answers.is_given_up:
            return False
        try:
            rules = filter_rules(framework, state, pod.pod)
            if not all(is_lasting(rule) for rule in rules.values()):
                return False
            filters = self._filters(framework, state, pod, answers)
        except Exception as error:  # as above
            self._give_up(pod, answers, error)
            return False
        if filters.decide_alone(state.skip_filter_plugins):
            answers.failure = KnownFailure(framework, self._table, nominations, diagnosis)
        return True

    @staticmethod
    def _give_up(pod: PodInfo, answers: Answers, error: Exception) -> None:
        log.error(
            "The rule of a plugin failed; its pods get the full evaluation", error, pod=pod.pod
        )
        answers.drop()
        answers.is_given_up = True


def _totals(
    framework: Framework,
    state: CycleState,
    pod: PodInfo,
    scores: ScoreColumns,
    level: Levels,
    feasible: NodeColumns,
) -> Levels | None:
    """The totals of the feasible nodes; None if only their levels differ. Raises Unfit."""
    total: Levels | None = None
    for raw in scores.raws:
        if raw.uniform is None:
            final = _final(raw.plugin, state, pod, feasible.part_of(raw.column), feasible)
            total = _plus(total, final, raw.weight, scores.kind)
    skipped, weights = state.skip_score_plugins, framework.score_weights
    for plugin in scores.asked:
        if plugin.name in skipped:
            continue
        answer = raw_scores(plugin, state, pod.pod, feasible)
        if isinstance(answer, Status):
            raise Unfit
        if isinstance(answer, int):
            _final(plugin, state, pod, np.array([answer], dtype=np.int64), feasible)
            continue
        final = _final(plugin, state, pod, answer, feasible)
        total = _plus(total, final, weights[plugin.name], scores.kind)
    if total is not None:
        total += feasible.part_of(level)
    return total


def _plus(total: Levels | None, final: Levels, weight: int, kind: DTypeLike) -> Levels | None:
    """Totals in an integer type that is large enough for the sum of all scores.

    Equal scores are left out: without others, nothing has to be gathered for the feasible nodes.
    """
    if final[final.argmin()] == final[final.argmax()]:
        return total
    points = np.multiply(final, weight, dtype=kind, casting="unsafe")
    if total is None:
        return points
    total += points
    return total


def nth(mask: Mask, number: int) -> int:
    """The index of the n-th true entry, without an array of all indices."""
    start = 0
    while len(mask) - start > _BLOCK:
        count = int(np.count_nonzero(mask[start : start + _BLOCK]))
        if number < count:
            break
        number, start = number - count, start + _BLOCK
    return start + int(mask[start : start + _BLOCK].nonzero()[0][number])


def _final(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, raw: Levels, feasible: NodeColumns
) -> Levels:
    final = final_scores(plugin, state, pod.pod, raw, feasible)
    if isinstance(final, Status):
        raise Unfit
    return final
