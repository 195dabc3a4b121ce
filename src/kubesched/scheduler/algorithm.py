"""From a pod to a node: filter, score, choose.

Pure and synchronous: reads the node table, changes nothing in it. Several ways lead to the same answer: the plain one
over all columns, and those over what is kept for a pod's class (`framework.classes`), taken when nothing about the pod or
the profile needs the plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.batching import Ranking
from kubesched.framework.classes import (
    INFEASIBLE,
    ClassCache,
    ClassColumns,
    KnownFailure,
    Plan,
    PodClass,
    Unfit,
    class_signature,
)
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, FitError, NoNodesAvailable
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import FilterOutcome, is_row_local, run_filters
from kubesched.framework.runtime.nominated import (
    filter_contested,
    filter_with_nominated_pods,
    nominations_version,
    rivals_of,
)
from kubesched.framework.runtime.pre_filter import PreFilterOutcome, run_pre_filter
from kubesched.framework.runtime.score import (
    ScoreOutcome,
    final_scores,
    raw_scores,
    run_pre_score,
    run_score,
)
from kubesched.framework.runtime.timing import FILTER, SCORE
from kubesched.framework.status import Code, Status, unresolvable
from kubesched.logs import get_logger
from kubesched.scheduler.feasible_columns import FeasibleColumns
from kubesched.scheduler.host_choice import Indices, heap_winner, places_in_walk
from kubesched.scheduler.score_log import SCORES_VERBOSITY, log_scores
from kubesched.snapshot.columns import Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns, PassingColumns

log = get_logger(__name__)

MIN_FEASIBLE_NODES_TO_FIND = 100
MIN_FEASIBLE_NODES_PERCENTAGE = 5

_NO_ROWS: Indices = np.zeros(0, dtype=np.intp)


class ScheduleResult(NamedTuple):
    """A node for the pod."""

    node_name: str
    feasible_nodes: int
    evaluated_nodes: int


@dataclass(slots=True)
class Feasible:
    """Nodes that can take the pod, in the order in which they were found.

    The verdicts on the others stay unexplained (`rejected` is only their number) until `explain` is called.
    """

    nodes: NodeColumns | Indices
    """As a view, if they are in the order of the table; as rows otherwise."""
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


class SchedulingAlgorithm:
    """Places one pod after the other; remembers where the walk over the nodes goes on."""

    def __init__(
        self,
        table: NodeTable,
        random: Random,
        *,
        parallelism: int = 16,
        percentage_of_nodes_to_score: int | None = None,
        classes: ClassCache | None = None,
    ) -> None:
        self.table = table
        self.random = random
        self.parallelism = parallelism
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.classes = classes
        self.next_start = 0
        self.extenders_decide = False
        """Some extender filters or ranks nodes: then one feasible node is not enough, whatever the plugins do."""

    # -- the whole of it -------------------------------------------------------------------------------------------

    def schedule(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> ScheduleResult | Status:
        """A node, or the status to fail the attempt with (a FitError as its error when no node fits)."""
        table = self.table
        table.refresh()
        if not table.node_count:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error=NoNodesAvailable())
        state.pod_class = pod_class = self._class_of(framework, pod)
        may_use_class = pod_class is not None and self._class_path_serves(framework, state, pod)
        if may_use_class and pod_class is not None and pod_class.plan is not None:
            planned = self._try_plan(framework, state, pod, pod_class, pod_class.plan)
            if planned is not None:
                return planned
        started = framework.now()
        outcome = run_pre_filter(framework, state, pod.pod, NodeColumns(table))
        framework.point_done("PreFilter", started, outcome.status)
        hint = self._hint(framework, state, pod) if outcome.status is None else ""
        served: PodClass | None = None
        if may_use_class and outcome.status is None and outcome.node_names is None:
            served = pod_class
            assert served is not None, "the class path needs a class"
            if not served.was_planned or rivals_of(framework, pod) is not None:
                quick = self._schedule_by_class(framework, state, pod, served)
                if quick is not None:
                    return quick
        feasible = self.find_feasible(framework, state, pod, outcome, hint)
        if feasible.error is not None:
            return feasible.error
        if not feasible.count:
            feasible.explain()
            if served is not None and is_row_local(framework, state):
                position = self._failure_position(framework, state, pod, served)
                served.failure = KnownFailure(position, feasible.diagnosis.copy())
            return self.fits_nowhere(pod, feasible.diagnosis)
        picked = self._pick(framework, state, pod.pod, feasible, hint)
        if served is not None and len(feasible.rows) > 1 and isinstance(picked, ScheduleResult):
            self._make_plan(framework, state, pod.pod, served)
        return picked

    def _hint(self, framework: Framework, state: CycleState, pod: PodInfo) -> str:
        """A node that an identical pod before this one left over."""
        batching, table = framework.batching, self.table
        if batching is None:
            return ""

        def is_full(node_name: str) -> bool:
            view = NodeColumns(table, np.array([table.row_of[node_name]]))
            result = run_filters(framework, state, pod.pod, view)
            return result.error is None and not result.passing[0]

        started = framework.now()
        hint = batching.hint(
            state.signature, state.cycle, started, table.row_of.__contains__, is_full
        )
        batching.looked_up(hint, framework.now() - started)
        return hint

    def _class_of(self, framework: Framework, pod: PodInfo) -> PodClass | None:
        if self.classes is None:
            return None
        key = pod.class_key
        if key is None:
            key = pod.class_key = class_signature(framework, pod.pod) or b""
        found = self.classes.get(key, self.table.capacity)
        if found is not None:
            pod.share_derived(found.derived, found.label_key_for(pod.pod))
        return found

    def _class_path_serves(self, framework: Framework, state: CycleState, pod: PodInfo) -> bool:
        return (
            not pod.pod.status.nominated_node_name
            and self.nodes_to_find(framework, self.table.node_count) >= self.table.node_count
            and framework.has_scoring
            # What batching remembers is the ranking of all nodes, which kept columns do not give.
            and (framework.batching is None or state.signature is None)
            # Nor do they give every plugin's score of every node, which somebody wants to read.
            and not log.enabled(SCORES_VERBOSITY)
        )

    # -- filtering -------------------------------------------------------------------------------------------------

    def nodes_to_find(self, framework: Framework, candidates: int) -> int:
        """How many feasible nodes are enough. All of them, unless the configuration asks for sampling."""
        if not framework.has_scoring and not self.extenders_decide:
            return 1
        percentage = framework.percentage_of_nodes_to_score
        if percentage is None:
            percentage = self.percentage_of_nodes_to_score
        if percentage is None or candidates < MIN_FEASIBLE_NODES_TO_FIND:
            return candidates
        if percentage == 0:
            percentage = max(MIN_FEASIBLE_NODES_PERCENTAGE, 50 - candidates // 125)
        return max(MIN_FEASIBLE_NODES_TO_FIND, candidates * percentage // 100)

    def find_feasible(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        outcome: PreFilterOutcome,
        hint: str = "",
    ) -> Feasible:
        """Nodes that pass every filter, given what PreFilter said."""
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
        """Filter the candidates; the next walk begins where this one ended."""
        if self._order_is_irrelevant(framework, outcome):
            feasible = self._filter_all(framework, state, pod, diagnosis)
        else:
            walk = self._candidates(outcome, diagnosis)
            feasible = self._filter_walk(framework, state, pod, walk, diagnosis)
        self.next_start = (
            self.next_start + feasible.count + feasible.rejected
        ) % self.table.node_count
        return feasible

    def try_first(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        diagnosis: Diagnosis,
    ) -> int | None:
        """The nominated node, if it (still) fits. Its rejection is remembered; an error is left to the full search.

        # Upstream: a PreFilter's narrowing is not consulted here, and Pending plugins of this trial are lost.
        """
        row = self.table.row_of.get(node_name)
        if row is None:
            return None
        result = filter_with_nominated_pods(
            framework, state, pod, NodeColumns(self.table, np.array([row]))
        )
        if result.error is not None:
            return None
        if result.passing[0]:
            return row
        status = result.status_at(0)
        assert status is not None, "a node that does not pass was rejected by somebody"
        diagnosis.node_to_status.set(node_name, status)
        if status.plugin:
            diagnosis.unschedulable_plugins.add(status.plugin)
        return None

    def _candidates(self, outcome: PreFilterOutcome, diagnosis: Diagnosis) -> Indices:
        """Rows to filter, in the order of the walk."""
        table = self.table
        order = table.order_rows.astype(np.intp)
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

    def _order_is_irrelevant(self, framework: Framework, outcome: PreFilterOutcome) -> bool:
        """Every node is looked at and ties are drawn by lot: then there is no need to walk in order."""
        return (
            self.parallelism != 1
            and outcome.node_names is None
            and self.nodes_to_find(framework, self.table.node_count) >= self.table.node_count
        )

    def _filter_all(
        self, framework: Framework, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> Feasible:
        """All nodes, in row order."""
        result = self._run_filters(framework, state, pod, NodeColumns(self.table))
        if result.error is not None:
            return Feasible(_NO_ROWS, diagnosis, error=result.error)
        found = PassingColumns(self.table, result.passing)

        def explain() -> None:
            rejected = np.flatnonzero(self.table.alive[: len(result.passing)] & ~result.passing)
            self._explain(result, rejected, rejected, diagnosis)

        return Feasible(found, diagnosis, self.table.node_count - len(found), explain=explain)

    def _filter_walk(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        walk: Indices,
        diagnosis: Diagnosis,
    ) -> Feasible:
        """Candidates in the order of the walk, until enough are found."""
        table = self.table
        if not len(walk):
            return Feasible(walk, diagnosis)
        whole = len(walk) == table.node_count
        view = NodeColumns(table) if whole else NodeColumns(table, walk)
        result = self._run_filters(framework, state, pod, view)
        at = walk if whole else np.arange(len(walk))
        if result.error is not None:
            # Upstream: the next walk begins behind the nodes that were looked at before something broke.
            looked_at = 0 if result.broken is None else int(result.broken[at].argmax())
            return Feasible(_NO_ROWS, diagnosis, looked_at, error=result.error)
        passing = result.passing[at]
        found = np.flatnonzero(passing)
        examined, want = len(walk), self.nodes_to_find(framework, len(walk))
        if len(found) > want:  # one surplus feasible node is what ends the search
            examined, found = int(found[want]), found[:want]

        def explain() -> None:
            rejected = np.flatnonzero(~passing[:examined])
            self._explain(result, at[rejected], walk[rejected], diagnosis)

        # A nominated node that failed its trial was rejected here again: its verdict counts once.
        return Feasible(walk[found], diagnosis, examined - len(found), explain=explain)

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
        """Turn verdicts into statuses: `indices` say where in the view, `rows` which nodes they are."""
        ids, statuses = result.classify(indices)
        diagnosis.node_to_status = NodeStatusColumns(
            self.table, rows, ids, statuses, diagnosis.node_to_status
        )
        for status in statuses:
            diagnosis.add_plugin_of(status)

    # -- scoring and choosing --------------------------------------------------------------------------------------

    def score(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        feasible: NodeColumns | Indices,
    ) -> ScoreOutcome:
        """Scores of the given feasible nodes."""
        view = feasible if isinstance(feasible, NodeColumns) else NodeColumns(self.table, feasible)
        started = framework.now()
        failed = run_pre_score(framework, state, pod, view)
        framework.point_done("PreScore", started, failed)
        if failed is not None:
            return ScoreOutcome(view, failed)
        started = framework.now()
        outcome = run_score(framework, state, pod, view)
        framework.point_done("Score", started, outcome.error)
        if log.enabled(SCORES_VERBOSITY) and outcome.error is None:
            log_scores(self.table.names, pod, view.row_indices(), outcome)
        return outcome

    def _pick(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        feasible: Feasible,
        hint: str = "",
    ) -> ScheduleResult | Status:
        table, count = self.table, feasible.count
        evaluated = count + feasible.rejected
        if count == 1:
            name = table.names[int(feasible.rows[0])]
            self._remember(framework, state, hint, name, None)
            return ScheduleResult(name, 1, evaluated)
        outcome: ScoreOutcome | None = None
        if framework.has_scoring:
            outcome = self.score(framework, state, pod, feasible.nodes)
            if outcome.error is not None:
                return outcome.error
        if self.parallelism == 1:
            row = int(feasible.rows[heap_winner(_tied_places(outcome, count))])
        else:
            tied = feasible.rows if outcome is None else outcome.best_rows()
            row = self._at_random(
                tied if isinstance(feasible.nodes, NodeColumns) else np.sort(tied)
            )
        if framework.batching is not None:
            if (
                state.signature is None
            ):  # of no use to others: that there were more nodes is enough to know
                ranking = Ranking([table.names[row], ""], [1, 1], 0)
            else:
                ranking = self._ranking(feasible.rows, outcome, row)
            self._remember(framework, state, hint, table.names[row], ranking)
        return ScheduleResult(table.names[row], count, evaluated)

    def _ranking(self, rows: Indices, outcome: ScoreOutcome | None, chosen: int) -> Ranking:
        names = [self.table.names[each] for each in rows.tolist()]
        totals = [1] * len(names) if outcome is None else outcome.totals.tolist()
        return Ranking(names, totals, int(np.flatnonzero(rows == chosen)[0]))

    @staticmethod
    def _remember(
        framework: Framework, state: CycleState, hint: str, chosen: str, ranking: Ranking | None
    ) -> None:
        if framework.batching is not None:
            started = framework.now()
            framework.batching.store(state.signature, hint, chosen, ranking, state.cycle, started)
            framework.batching.stored(framework.now() - started)

    def _at_random(self, tied_rows: Indices) -> int:
        """Any of the tied rows. They come sorted: the same draw means the same row on either path."""
        if len(tied_rows) == 1:
            return int(tied_rows[0])
        return int(tied_rows[self.random.randrange(len(tied_rows))])

    # -- with a class ----------------------------------------------------------------------------------------------

    def _schedule_by_class(
        self, framework: Framework, state: CycleState, pod: PodInfo, pod_class: PodClass
    ) -> ScheduleResult | Status | None:
        """The same answer from kept columns; None when the plain path has to give it (a new failure, or an error)."""
        table = self.table
        columns = pod_class.columns
        if columns is None:
            columns = pod_class.columns = ClassColumns(framework, table)
        started = framework.now()
        state.points_reached |= FILTER
        if columns.sync_filters(state, pod.pod) is not None:
            return None
        ok = self._ok(framework, state, pod, columns)
        if ok is None:
            return None
        framework.point_done("Filter", started)
        count = int(np.count_nonzero(ok))
        if count == 0:
            return self._known_failure(framework, state, pod, pod_class)
        if count == 1:
            return ScheduleResult(table.names[int(ok.argmax())], 1, table.node_count)
        feasible = FeasibleColumns(table, ok, count)
        started = framework.now()
        failed = run_pre_score(framework, state, pod.pod, feasible)
        framework.point_done("PreScore", started, failed)
        if failed is not None:
            return failed
        started = framework.now()
        state.points_reached |= SCORE
        if columns.sync_scores(state, pod.pod) is not None:
            return None
        tied = self._best(framework, state, pod.pod, columns, ok, feasible)
        if tied is None:
            return None
        framework.point_done("Score", started)
        row = self._as_heap(tied, ok) if self.parallelism == 1 else self._at_random(tied)
        self._make_plan(framework, state, pod.pod, pod_class)
        return ScheduleResult(table.names[row], count, table.node_count)

    # -- with a plan -----------------------------------------------------------------------------------------------

    def _make_plan(
        self, framework: Framework, state: CycleState, pod: Pod, pod_class: PodClass
    ) -> None:
        """After an attempt that went another way: let the next pods of the class go the quick one."""
        if pod_class.plan is not None or pod_class.is_unplannable:
            return
        try:
            pod_class.plan = Plan(framework, self.table, state, pod)
        except Unfit:
            pod_class.is_unplannable, pod_class.was_planned = True, False
            return
        except (
            Exception
        ) as error:  # a plugin's: the decision stands, and others of the class go the long way
            self._give_up_planning(pod, pod_class, error)
            return
        pod_class.was_planned = True
        pod_class.columns = None

    @staticmethod
    def _give_up_planning(pod: Pod, pod_class: PodClass, error: Exception) -> None:
        log.error("A plugin failed to say what its answers rest on", error, pod=pod)
        pod_class.plan = None
        pod_class.is_unplannable, pod_class.was_planned = True, False

    def _try_plan(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass,
        plan: Plan,
    ) -> ScheduleResult | Status | None:
        try:
            return self._schedule_by_plan(framework, state, pod, pod_class, plan)
        except (
            Exception
        ) as error:  # a plugin's shortcut broke: the long way tells whether the plugin does
            self._give_up_planning(pod.pod, pod_class, error)
            return None

    def _schedule_by_plan(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass,
        plan: Plan,
    ) -> ScheduleResult | Status | None:
        """The same answer from a class's plan; None when another way has to be gone."""
        started = framework.now()
        if not plan.holds():
            pod_class.plan = None
            return None
        if rivals_of(framework, pod) is not None:
            return None
        table = self.table
        plan.prepare(state)
        started = framework.lap("PreFilter", started)
        groups = plan.feasible(state, pod.pod)
        if groups is None:
            pod_class.plan = None
            return None
        started = framework.lap("Filter", started)
        count = groups[0].count if len(groups) == 1 else sum([group.count for group in groups])
        if count == 0:
            return self._known_failure(framework, state, pod, pod_class)
        if count == 1:
            return ScheduleResult(table.names[plan.some_row(groups[0])], 1, table.node_count)
        if not plan.pre_score(state, pod.pod, groups):
            pod_class.plan = None
            return None
        started = framework.lap("PreScore", started)
        best = plan.best(state, pod.pod, groups)
        if best is None:
            pod_class.plan = None
            return None
        framework.lap("Score", started)
        if self.parallelism == 1:
            row = self._as_heap(best.rows(), plan.feasible_rows(groups))
        else:
            row = best.nth(self.random.randrange(best.count) if best.count > 1 else 0)
        return ScheduleResult(table.names[row], count, table.node_count)

    def fits_nowhere(self, pod: PodInfo, diagnosis: Diagnosis) -> Status:
        return Status(Code.UNSCHEDULABLE, error=FitError(pod.key, self.table.node_count, diagnosis))

    def _known_failure(
        self, framework: Framework, state: CycleState, pod: PodInfo, pod_class: PodClass
    ) -> Status | None:
        """What another pod of the class was told, if nothing it depends on has changed since."""
        known = pod_class.failure
        if known is None or known.position is None:
            return None
        if known.position != self._failure_position(framework, state, pod, pod_class):
            return None
        return self.fits_nowhere(pod, known.diagnosis.copy())

    def _failure_position(
        self, framework: Framework, state: CycleState, pod: PodInfo, pod_class: PodClass
    ) -> Hashable:
        """What a failure of this class depends on if its filters are row-local; None when it cannot be shared."""
        table, plan, columns = self.table, pod_class.plan, pod_class.columns
        nominations = nominations_version(framework, pod)
        if nominations is None or (plan is None and columns is None):
            return None
        rests_on = plan.token if plan is not None else columns.filter_key if columns else None
        logs = table.pod_log.end, table.node_log.end
        return (rests_on, frozenset(state.skip_filter_plugins), logs, nominations)

    def _as_heap(self, tied_rows: Indices, ok: Mask) -> int:
        if len(tied_rows) == 1:
            return int(tied_rows[0])
        places = places_in_walk(self.table, tied_rows, ok, self.next_start)
        return int(tied_rows[np.flatnonzero(places == heap_winner(places))[0]])

    def _ok(
        self, framework: Framework, state: CycleState, pod: PodInfo, columns: ClassColumns
    ) -> Mask | None:
        """Rows passing every filter; None when a plugin failed."""
        table = self.table
        ok = columns.ok[: table.high_water]
        rivals = rivals_of(framework, pod)
        plugins = [p for p in columns.cluster_filters if p.name not in state.skip_filter_plugins]
        if not plugins and rivals is None:
            return ok
        view = NodeColumns(table)
        result = run_filters(framework, state, pod.pod, view, plugins, ok.copy())
        if result.error is not None:
            return None
        contested = None if rivals is None else filter_contested(framework, state, pod, view)
        if contested is not None:
            indices, with_rivals = contested
            if with_rivals.error is not None:
                return None
            result.passing[indices] &= with_rivals.passing
        return result.passing

    def _best(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        columns: ClassColumns,
        ok: Mask,
        feasible: FeasibleColumns,
    ) -> Indices | None:
        """Rows sharing the best total."""
        if not columns.varying_raws and not columns.active_cluster_scores:
            hw = self.table.high_water
            if ok.base is columns.ok:
                key = columns.key[:hw]
            else:  # other filters have had their say, of which the kept keys know nothing
                key = np.where(ok, columns.level[:hw], INFEASIBLE)
            return np.flatnonzero(key == key.max())
        rows = feasible.row_indices()
        totals = columns.level[rows]
        for plugin, weight, raw in columns.varying_raws:
            final = final_scores(plugin, state, pod, raw[rows], feasible)
            if isinstance(final, Status):
                return None
            totals = totals + final * weight
        for plugin in columns.active_cluster_scores:
            scores = raw_scores(plugin, state, pod, feasible)
            if isinstance(scores, Status):
                return None
            final = final_scores(plugin, state, pod, scores, feasible)
            if isinstance(final, Status):
                return None
            totals = totals + final * framework.score_weights[plugin.name]
        best: Indices = rows[totals == totals.max()]
        return best


def _tied_places(outcome: ScoreOutcome | None, count: int) -> Indices:
    """Where in the list of feasible nodes the best ones stand."""
    if outcome is None:
        return np.arange(count)
    totals = outcome.totals
    return np.flatnonzero(totals == totals.max())
