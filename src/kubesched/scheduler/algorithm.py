"""The scheduling algorithm: find the feasible nodes for a pod, score them, select one.

Synchronous, without side effects on the node table. This is the full evaluation: it runs every
plugin over every node. It is the reference, and the fallback for pods that the equivalence engine
(`classes.engine`) cannot decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, FitError, NoNodesAvailable
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.columns import Indices, Levels, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import FilterOutcome, run_filters
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.runtime.pre_filter import PreFilterOutcome, run_pre_filter
from kubesched.framework.runtime.score import ScoreOutcome, run_pre_score, run_score
from kubesched.framework.runtime.timing import FILTER
from kubesched.framework.status import Code, Status, unresolvable
from kubesched.scheduler.batching import Batching, RankedNodes
from kubesched.scheduler.classes import Best, ClassEngine, PodClass, Walk, Walked
from kubesched.scheduler.host_choice import heap_winner
from kubesched.scheduler.rescoring import rescored

log = get_logger(__name__)

SCORES_VERBOSITY: Final = 10
MIN_FEASIBLE_NODES_TO_FIND = 100
MIN_FEASIBLE_NODES_PERCENTAGE = 5

_NO_ROWS: Indices = np.zeros(0, dtype=np.intp)
_NO_BATCHING: Mapping[str, Batching] = {}


class ScheduleResult(NamedTuple):
    """The node chosen for a pod."""

    node_name: str
    feasible_nodes: int
    evaluated_nodes: int


@dataclass(slots=True)
class Feasible:
    """Feasible nodes, in search order.

    `rejected` is the number of other nodes; `explain` computes their statuses on demand.
    """

    nodes: NodeColumns | Indices
    """A view if the nodes are in table order, else row indices."""
    diagnosis: Diagnosis
    rejected: int = 0
    error: Status | None = None
    explain: Callable[[], None] = lambda: None

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def rows(self) -> Indices:
        nodes = self.nodes
        return nodes.row_indices() if isinstance(nodes, NodeColumns) else nodes


def log_failed_trial(pod: PodInfo, node_name: str, status: Status) -> None:
    """An error on the nominated node does not fail the attempt: all nodes are searched."""
    error = status.as_error()
    log.error("Evaluation failed on nominated node", error, pod=pod.pod, node=node_name)


class SchedulingAlgorithm:
    """Places one pod at a time; stores where the next walk over the nodes starts."""

    def __init__(
        self,
        table: NodeTable,
        random: Random,
        *,
        parallelism: int = 16,
        percentage_of_nodes_to_score: int = 100,
        engine: ClassEngine | None = None,
        batching: Mapping[str, Batching] = _NO_BATCHING,
    ) -> None:
        self.table = table
        self.random = random
        self.parallelism = parallelism
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.engine = engine
        self.batching = batching
        """By profile; only for profiles whose plugins can sign pods."""
        self.next_start = 0
        self.ranking: Best | Walked | None = None
        """Feasible nodes and totals of the last decision, if more than one node was feasible."""
        self.extenders_decide = False
        """True if an extender filters or scores: the search must not stop at the first node."""

    @property
    def node_count(self) -> int:
        """Number of nodes that may be chosen."""
        return self.table.node_count

    def _row_of(self, node_name: str) -> int | None:
        return self.table.row_of.get(node_name)

    # -- the whole cycle ---------------------------------------------------------------------------

    def schedule(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> ScheduleResult | Status:
        """A node, or the status of the failed attempt (its error is a FitError if no node fits)."""
        table, engine = self.table, self.engine
        table.refresh()
        if not table.node_count:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error=NoNodesAvailable())
        outcome, pod_class = self._begin(framework, state, pod)
        if engine is not None and pod_class is not None:
            answer = engine.decide(framework, state, pod, pod_class, self._walk(framework))
            if isinstance(answer, Best):
                self.ranking = answer
                self.next_start %= table.node_count  # as after a search that examined every node
                row = self._of_best(answer)
                return ScheduleResult(table.names[row], answer.feasible, table.node_count)
            if isinstance(answer, Walked):
                return self._select_walked(answer, table.node_count)
            if answer is not None:
                state.fails_as_class = True
                self.next_start %= table.node_count  # as above
                return self.fits_nowhere(pod, answer)
        hint = ""
        if self.batching and outcome.status is None:
            hint = self._hint(framework, state, pod)
        feasible = self.find_nodes_that_fit(framework, state, pod, outcome, hint)
        if feasible.error is not None:
            return feasible.error
        if not feasible.count:
            feasible.explain()
            is_whole = self.node_count == table.node_count
            if engine is not None and pod_class is not None and is_whole:
                state.fails_as_class = engine.learn_failure(
                    framework, state, pod, pod_class, feasible.diagnosis
                )
            return self.fits_nowhere(pod, feasible.diagnosis)
        return self._prioritize_and_select(framework, state, pod.pod, feasible, hint)

    def feasible(self, framework: Framework, state: CycleState, pod: PodInfo) -> Mask | Status:
        """The rows that would take the pod, read-only, or the error of a plugin."""
        table, engine = self.table, self.engine
        table.refresh()
        outcome, pod_class = self._begin(framework, state, pod)
        if engine is not None and pod_class is not None:
            passing = engine.feasible(framework, state, pod, pod_class)
            if passing is not None:
                return passing
        found = self.find_nodes_that_fit(framework, state, pod, outcome)
        if found.error is not None:
            return found.error
        mask = np.zeros(table.high_water, dtype=np.bool_)
        mask[found.rows] = True
        return mask

    def levels(self, framework: Framework, state: CycleState, pod: PodInfo) -> Levels | Mask | None:
        """By row, 0 where the pod does not fit, if they alone decide on any rows. Read-only."""
        self.table.refresh()
        engine, pod_class = self.engine, self._begin(framework, state, pod)[1]
        if engine is None or pod_class is None:
            return None
        best = engine.decide(framework, state, pod, pod_class)
        if not isinstance(best, Best) or best.feasible == 1:
            return None
        kept = engine.classes.answers(pod_class.shape)
        by_filters = kept.filters and kept.filters.decide_alone(state.skip_filter_plugins)
        by_scores = kept.scores and kept.scores.decide_alone(state.skip_score_plugins)
        return best.totals if by_filters and by_scores else None

    def _begin(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> tuple[PreFilterOutcome, PodClass | None]:
        """PreFilter, and the class of a pod that cached answers may decide.

        Pods that PreFilter narrows to some nodes, or rejects, rarely repeat.
        """
        pod_class = self._class_of(framework, state, pod)
        outcome = self.pre_filter(framework, state, pod, pod_class)
        is_kept = outcome.status is None and outcome.node_names is None
        return outcome, pod_class if is_kept else None

    def _class_of(self, framework: Framework, state: CycleState, pod: PodInfo) -> PodClass | None:
        """The pod's equivalence class, if cached answers can decide it."""
        if self.engine is None:
            return None
        pod_class = self.engine.class_of(framework, pod)
        if pod_class is None:
            return None
        state.class_memo = pod_class.memo
        is_served = (
            not pod.pod.status.nominated_node_name
            and framework.score
            # Batching stores the ranking of all nodes, which the engine does not compute.
            and (state.signature is None or framework.profile_name not in self.batching)
            # Nor does the engine compute the score of every plugin and node for the log.
            and not log.enabled(SCORES_VERBOSITY)
        )
        return pod_class if is_served else None

    def pre_filter(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass | None = None,
    ) -> PreFilterOutcome:
        started = framework.now()
        outcome: PreFilterOutcome | None = None
        if self.engine is not None and pod_class is not None:
            outcome = self.engine.pre_filter(state, pod, pod_class)
        if outcome is None:
            outcome = run_pre_filter(framework, state, pod.pod, NodeColumns(self.table))
        framework.point_done("PreFilter", started, outcome.status)
        return outcome

    def _hint(self, framework: Framework, state: CycleState, pod: PodInfo) -> str:
        """The next best node of an identical pod placed just before; empty if there is none."""
        batching, table = self.batching.get(framework.profile_name), self.table
        if batching is None:
            return ""

        def has_room(node_name: str) -> bool | None:
            view = NodeColumns(table, np.array([table.row_of[node_name]]))
            result = run_filters(framework, state, pod.pod, view)
            return None if result.error is not None else bool(result.passing[0])

        def rescore(ranking: RankedNodes, node_name: str) -> RankedNodes:
            started = framework.now()
            try:
                return rescored(framework, state, pod.pod, table, ranking, node_name)
            finally:
                batching.rescored(framework.now() - started)

        started = framework.now()
        hint = batching.hint(
            state.signature,
            state.cycle,
            started,
            table.row_of.__contains__,
            has_room,
            rescore,
            is_nominated=bool(pod.pod.status.nominated_node_name),
        )
        batching.looked_up(hint, framework.now() - started)
        return hint

    # -- filtering ---------------------------------------------------------------------------------

    def nodes_to_find(self, framework: Framework, candidates: int) -> int:
        """The number of feasible nodes that ends the search; see `percentageOfNodesToScore`.

        Upstream samples by default to save time. Here the default is all nodes: scoring them is
        cheap and places pods better.
        """
        if not framework.has_scoring and not self.extenders_decide:
            return 1
        percentage = framework.percentage_of_nodes_to_score
        if percentage is None:
            percentage = self.percentage_of_nodes_to_score
        if percentage >= 100 or candidates < MIN_FEASIBLE_NODES_TO_FIND:
            return candidates
        if percentage == 0:
            percentage = max(MIN_FEASIBLE_NODES_PERCENTAGE, 50 - candidates // 125)
        return max(MIN_FEASIBLE_NODES_TO_FIND, candidates * percentage // 100)

    def find_nodes_that_fit(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        outcome: PreFilterOutcome,
        hint: str = "",
    ) -> Feasible:
        """Nodes that pass every filter, given the outcome of PreFilter."""
        diagnosis = Diagnosis(unschedulable_plugins=set(outcome.narrowing_plugins))
        if outcome.status is not None:
            if not outcome.status.is_rejected:
                return Feasible(_NO_ROWS, diagnosis, error=outcome.status)
            diagnosis.node_to_status.absent_status = outcome.status
            diagnosis.pre_filter_msg = outcome.status.message
            diagnosis.add_plugin_of(outcome.status)
            return Feasible(_NO_ROWS, diagnosis)
        nominated = pod.pod.status.nominated_node_name or hint
        if (
            nominated
            and (row := self.try_first(framework, state, pod, nominated, diagnosis)) is not None
        ):
            return Feasible(np.array([row], dtype=np.intp), diagnosis)
        return self.search(framework, state, pod, outcome, diagnosis)

    def search(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        outcome: PreFilterOutcome,
        diagnosis: Diagnosis,
    ) -> Feasible:
        """Filter the candidates; the next walk starts where this one ended."""
        # Without a walk the order of the nodes does not matter.
        if outcome.node_names is None and self._walk(framework) is None:
            feasible = self._filter_all(framework, state, pod, diagnosis)
        else:
            walk = self._candidates(outcome, diagnosis)
            feasible = self._filter_walk(framework, state, pod, walk, diagnosis)
        self.next_start = (self.next_start + feasible.count + feasible.rejected) % self.node_count
        return feasible

    def try_first(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        diagnosis: Diagnosis,
    ) -> int | None:
        """The nominated node, if it (still) fits.

        Records a rejection; leaves an error to the full search.

        # Upstream: a PreFilter's narrowing is not consulted here, and Pending plugins of this trial
        # are lost.
        """
        row = self._row_of(node_name)
        if row is None:
            return None
        result = filter_with_nominated_pods(
            framework, state, pod, NodeColumns(self.table, np.array([row]))
        )
        if result.error is not None:
            log_failed_trial(pod, node_name, result.error)
            return None
        if result.passing[0]:
            return row
        status = result.status_at(0)
        assert status is not None, "a node that does not pass has a rejection"
        diagnosis.node_to_status.set(node_name, status)
        if status.plugin:
            diagnosis.unschedulable_plugins.add(status.plugin)
        return None

    def _candidates(self, outcome: PreFilterOutcome, diagnosis: Diagnosis) -> Indices:
        """Rows to filter, in walk order."""
        table = self.table
        order = table.order_rows
        if outcome.node_names is not None:
            plugins = " ".join(sorted(outcome.narrowing_plugins))
            diagnosis.node_to_status.absent_status = unresolvable(
                f"node(s) didn't satisfy plugin(s) [{plugins}]"
            )
            wanted = [table.row_of[name] for name in outcome.node_names if name in table.row_of]
            # Upstream lists the narrowed nodes in random order; ours is the node order.
            order = np.array(
                sorted(wanted, key=lambda row: int(table.position[row])), dtype=np.intp
            )
        if len(order) and (start := self.next_start % len(order)):
            order = np.concatenate((order[start:], order[:start]))
        return order

    def _walk(self, framework: Framework) -> Walk | None:
        """The walk over all nodes; None if all are evaluated and ties are broken at random."""
        percentage = framework.percentage_of_nodes_to_score
        if percentage is None:
            percentage = self.percentage_of_nodes_to_score
        if percentage >= 100 and self.parallelism != 1 and framework.score:
            return None  # the common case
        count = self.table.node_count
        wanted = self.nodes_to_find(framework, count)
        if self.parallelism != 1 and wanted >= count:
            return None
        return Walk(self.table.order_rows, self.next_start % count, wanted)

    def _filter_all(
        self, framework: Framework, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> Feasible:
        """All nodes, in row order."""
        result = self._run_filters(framework, state, pod, NodeColumns(self.table))
        if result.error is not None:
            return Feasible(_NO_ROWS, diagnosis, error=result.error)
        feasible = PassingColumns(self.table, result.passing)

        def explain() -> None:
            rejected = np.flatnonzero(self.table.alive[: len(result.passing)] & ~result.passing)
            self._explain(result, rejected, rejected, diagnosis)

        return Feasible(feasible, diagnosis, self.table.node_count - len(feasible), explain=explain)

    def _filter_walk(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        walk: Indices,
        diagnosis: Diagnosis,
    ) -> Feasible:
        """Filter candidates in walk order until enough are found."""
        table = self.table
        if not len(walk):
            return Feasible(walk, diagnosis)
        whole = len(walk) == table.node_count
        view = NodeColumns(table) if whole else NodeColumns(table, walk)
        result = self._run_filters(framework, state, pod, view)
        at = walk if whole else np.arange(len(walk))
        if result.error is not None:
            if whole and result.broken is not None:
                # The first failing node depends on the order: filter again, in walk order.
                view, at = NodeColumns(table, walk), np.arange(len(walk))
                again = filter_with_nominated_pods(framework, state, pod, view)
                result = again if again.error is not None else result
            # Upstream: the next walk starts after the nodes evaluated before the error.
            looked_at = 0 if result.broken is None else int(result.broken[at].argmax())
            return Feasible(_NO_ROWS, diagnosis, looked_at, error=result.error)
        passing = result.passing[at]
        feasible = np.flatnonzero(passing)
        examined, want = len(walk), self.nodes_to_find(framework, len(walk))
        if len(feasible) > want:  # one surplus feasible node ends the search
            examined, feasible = int(feasible[want]), feasible[:want]

        def explain() -> None:
            rejected = np.flatnonzero(~passing[:examined])
            self._explain(result, at[rejected], walk[rejected], diagnosis)

        # A nominated node that was tried first and rejected is rejected again, but counts once.
        return Feasible(walk[feasible], diagnosis, examined - len(feasible), explain=explain)

    @staticmethod
    def _run_filters(
        framework: Framework, state: CycleState, pod: PodInfo, view: NodeColumns
    ) -> FilterOutcome:
        started = framework.now()
        state.points_reached |= FILTER
        result = filter_with_nominated_pods(framework, state, pod, view)
        framework.point_done("Filter", started, result.error)
        return result

    def _explain(
        self, result: FilterOutcome, indices: Indices, rows: Indices, diagnosis: Diagnosis
    ) -> None:
        """Turn verdicts into statuses; `indices` are view positions, `rows` their nodes."""
        ids, statuses = result.classify(indices)
        diagnosis.node_to_status = NodeStatusColumns(
            self.table, rows, ids, statuses, diagnosis.node_to_status
        )
        for status in statuses:
            diagnosis.add_plugin_of(status)

    # -- scoring and choosing ----------------------------------------------------------------------

    def score(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        feasible: NodeColumns | Indices,
        *,
        keeps_raw: bool = False,
    ) -> ScoreOutcome:
        """Scores of the given feasible nodes."""
        view = feasible if isinstance(feasible, NodeColumns) else NodeColumns(self.table, feasible)
        started = framework.now()
        failed = run_pre_score(framework, state, pod, view)
        framework.point_done("PreScore", started, failed)
        if failed is not None:
            return ScoreOutcome(view, failed)
        started = framework.now()
        outcome = run_score(framework, state, pod, view, keeps_raw=keeps_raw)
        framework.point_done("Score", started, outcome.error)
        if log.enabled(SCORES_VERBOSITY) and outcome.error is None:
            log_scores(self.table.names, pod, view.row_indices(), outcome)
        return outcome

    def _prioritize_and_select(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        feasible: Feasible,
        hint: str = "",
    ) -> ScheduleResult | Status:
        table, count = self.table, feasible.count
        evaluated = count + feasible.rejected
        self.ranking = None
        if count == 1:
            name = table.names[int(feasible.rows[0])]
            self._remember_placement(framework, state, hint, name, None)
            return ScheduleResult(name, 1, evaluated)
        outcome: ScoreOutcome | None = None
        if framework.has_scoring:
            outcome = self.score(
                framework, state, pod, feasible.nodes, keeps_raw=self._keeps_raw(framework, state)
            )
            if outcome.error is not None:
                return outcome.error
            self.ranking = Walked(feasible.rows, outcome.totals, evaluated)
        if self.parallelism == 1:
            row = int(feasible.rows[0 if outcome is None else heap_winner(outcome.totals)])
        else:
            tied = feasible.rows if outcome is None else outcome.best_rows()
            row = self._at_random(
                tied if isinstance(feasible.nodes, NodeColumns) else np.sort(tied)
            )
        if framework.profile_name in self.batching:
            if state.signature is None:  # it only matters that there were other nodes
                ranked = RankedNodes([table.names[row], ""], [1, 1], 0)
            else:
                ranked = self._ranked(feasible.rows, outcome, row)
            self._remember_placement(framework, state, hint, table.names[row], ranked)
        return ScheduleResult(table.names[row], count, evaluated)

    def _keeps_raw(self, framework: Framework, state: CycleState) -> bool:
        if state.signature is None:
            return False
        batching = self.batching.get(framework.profile_name)
        return batching is not None and batching.rescores

    def _ranked(self, rows: Indices, outcome: ScoreOutcome | None, chosen: int) -> RankedNodes:
        names = [self.table.names[row] for row in rows.tolist()]
        index = int(np.flatnonzero(rows == chosen)[0])
        if outcome is None:
            return RankedNodes(names, [1] * len(names), index)
        raw = {
            plugin: scores if isinstance(scores, int) else scores.tolist()
            for plugin, scores in (outcome.raw or {}).items()
        }
        return RankedNodes(names, outcome.totals.tolist(), index, raw)

    def _remember_placement(
        self,
        framework: Framework,
        state: CycleState,
        hint: str,
        chosen: str,
        ranked: RankedNodes | None,
    ) -> None:
        batching = self.batching.get(framework.profile_name)
        if batching is not None:
            started = framework.now()
            batching.store(state.signature, hint, chosen, ranked, state.cycle, started)
            batching.stored(framework.now() - started)

    def _of_best(self, best: Best) -> int:
        """A random one of the best rows."""
        return best.row(self.random.randrange)

    def _at_random(self, tied_rows: Indices) -> int:
        """A random one of the tied rows, which are sorted so that a draw is reproducible."""
        if len(tied_rows) == 1:
            return int(tied_rows[0])
        return int(tied_rows[self.random.randrange(len(tied_rows))])

    def _select_walked(self, walked: Walked, candidates: int) -> ScheduleResult:
        self.ranking = walked
        table, (rows, totals, examined) = self.table, walked
        self.next_start = (self.next_start + examined) % candidates
        if self.parallelism == 1:
            row = int(rows[heap_winner(totals)])
        else:
            row = self._at_random(np.sort(rows[totals == totals.max()]))
        return ScheduleResult(table.names[row], len(rows), examined)

    def fits_nowhere(self, pod: PodInfo, diagnosis: Diagnosis) -> Status:
        return Status(Code.UNSCHEDULABLE, error=FitError(pod.key, self.node_count, diagnosis))


def log_scores(names: Sequence[str], pod: Pod, rows: Indices, outcome: ScoreOutcome) -> None:
    """Log weighted scores by plugin, and totals: a record per node and plugin."""
    columns, totals = outcome.columns, outcome.totals
    say = partial(log.info, v=SCORES_VERBOSITY, pod=pod)
    for index, row in enumerate(rows.tolist()):
        node = names[row]
        by_plugin = {name: int(column[index]) for name, column in columns.items()}
        for plugin, score in (by_plugin | outcome.constants).items():
            say("Plugin scored node for pod", plugin=plugin, node=node, score=score)
        say("Calculated node's final score for pod", node=node, score=int(totals[index]))
