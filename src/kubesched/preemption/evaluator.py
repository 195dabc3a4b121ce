"""Evaluates preemption for a pod that fits nowhere.

    eligible?  ->  potential nodes  ->  dry run  ->  extenders  ->  best candidate  ->  executor

Where many pods have to be looked at, in a large cluster, the search goes on in further turns of the event loop. Then, with extenders
and without asynchronous preemption the answer is an awaitable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from kubesched.api import field_errors
from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, FitError
from kubesched.framework.extenders import Extender, Victims
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import PostFilterAnswer, PostFilterResult
from kubesched.framework.node_statuses import NodeStatusColumns, rows_with_code
from kubesched.framework.nominating_info import CLEAR_NOMINATION, NominatingInfo
from kubesched.framework.rules import Premise
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Code, NodeToStatus, Status, error_status, unschedulable
from kubesched.logs import get_logger
from kubesched.preemption.budgets import BudgetLister
from kubesched.preemption.candidates import (
    Candidate,
    CandidateCount,
    ListedCandidates,
    ScoreFunction,
    Shortlist,
    best_by,
    best_of,
    candidates_of,
    victims_by_node,
    visiting_order,
)
from kubesched.preemption.dry_run import dry_run
from kubesched.preemption.executor import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER, Executor
from kubesched.preemption.extenders import ask_extenders, interested_in
from kubesched.preemption.kept_verdicts import NOT_HELPFUL, KeptVerdicts
from kubesched.preemption.known_victims import KnownVictims
from kubesched.preemption.row_pods import RowPodsCache
from kubesched.preemption.search import MANY_NODES, Search, carried_on
from kubesched.preemption.victims import NO_VICTIMS, Preemptor, VictimRules
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo

NEVER: Final = "not eligible due to preemptionPolicy=Never."
STILL_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NO_CANDIDATE: Final = "no candidate node for preemption"

log = get_logger(__name__)

OrderedScores = Callable[[Mapping[str, Victims]], Sequence[ScoreFunction]]
"""Victims by node name -> criteria for the choice, the most important first; empty for the default criteria."""


class _NoCandidates(NamedTuple):
    """The answer for a pod without candidates, and the inputs it holds for."""

    statuses: NodeToStatus
    nominations: int
    pods: tuple[int, int] | None
    """Cursors in the logs of the table; None if the filters' verdicts alone decide, as no pod has a lower priority."""
    answer: PostFilterAnswer


class _NoVictims(NodeToStatus):
    """The verdicts if no pod has a lower priority: that of the dry run on each node where preemption might help."""

    __slots__ = ("_tried",)

    def __init__(self, tried: int) -> None:
        super().__init__()
        self._tried = tried

    def __len__(self) -> int:
        return self._tried

    def _count_reasons(self) -> Counter[str]:
        return Counter(dict.fromkeys(NO_VICTIMS.all_reasons, self._tried) if self._tried else {})


def _count_unschedulable(statuses: NodeToStatus, table: NodeTable) -> int:
    if isinstance(statuses, NodeStatusColumns):
        return statuses.count_code(Code.UNSCHEDULABLE, table.node_count)
    return len(rows_with_code(statuses, table, Code.UNSCHEDULABLE))


class Evaluator:
    """Evaluates preemption for the pods of one profile, and starts the executor."""

    def __init__(
        self,
        handle: Handle,
        plugin_name: str,
        count: CandidateCount,
        *,
        in_background: bool,
        rules: VictimRules,
        ordered_scores: OrderedScores | None,
        executor: type[Executor] = Executor,
    ) -> None:
        """With `in_background`, victims are evicted after the attempt instead of during it."""
        self.executor = executor(handle, plugin_name)
        self._handle = handle
        self._plugin_name = plugin_name
        self._count = count
        self._in_background = in_background
        self._rules = rules
        self._ordered_scores = ordered_scores
        self._budgets = BudgetLister(handle.listers)
        self._row_pods = RowPodsCache(handle.table)
        self._known_victims = KnownVictims(
            handle.table, self._row_pods, (plugin_name, "known victims")
        )
        self._kept_verdicts = KeptVerdicts(
            handle.table, self._row_pods, (plugin_name, "kept verdicts")
        )

    def preempt(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        """The node on which room is being made, if any; `statuses` are the filters' verdicts."""
        current = self._current(pod)
        if current is None:
            return None, error_status(f'pod "{pod.metadata.name}" not found')
        reason = self._why_not_eligible(current, statuses)
        if reason:
            log.info("Pod is not eligible for preemption", v=5, pod=current, reason=reason)
            return None, unschedulable(reason)
        search = self._find_candidates(state, current, statuses, is_current=current is pod)
        try:
            next(search)
        except StopIteration as end:
            return self._choose(end.value, current)
        return self._search_on(search, current)

    async def _search_on(
        self, search: Search[Shortlist | PostFilterAnswer], pod: Pod
    ) -> PostFilterAnswer:
        answer = self._choose(await carried_on(search), pod)
        return answer if isinstance(answer, tuple) else await answer

    def _choose(
        self, found: Shortlist | PostFilterAnswer, pod: Pod
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        if isinstance(found, tuple):
            log.info(
                "No preemption candidate is found; preemption is not helpful for scheduling",
                v=2,
                pod=pod,
            )
            return found
        extenders = interested_in(self._handle.extenders, pod)
        if extenders or not self._in_background:
            return self._choose_and_wait(found, extenders, pod)
        candidate = self._best(found)
        _log_target(pod, candidate)
        self.executor.start(candidate, pod)
        return _nominated(candidate)

    def premise_of_no_candidates(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> Premise | None:
        """If there was no candidate: how long that holds for pods of the class with these verdicts."""
        priority = pod.spec.priority or 0
        if self._known_no_candidates(state, statuses, self._cursors(priority)) is None:
            return None
        table, nominator = self._handle.table, self._handle.nominator
        priorities, pods, swaps = table.priorities, table.pod_log, table.swap_log

        def premise() -> Hashable:  # as `_cursors` and `_nominations`, for every pod that fails
            nominations = 0 if nominator is None else nominator.version
            if priorities.has_below(priority):
                return nominations, pods.end, swaps.end
            return nominations

        return premise

    def _current(self, pod: Pod) -> Pod | None:
        """The informer's current version of the pod."""
        if self._handle.listers is None:
            return pod
        current: Pod | None = self._handle.listers.of(Pod).get(
            pod.metadata.namespace, pod.metadata.name
        )
        return current

    def _why_not_eligible(self, pod: Pod, statuses: NodeToStatus) -> str:
        """Why the pod may not preempt; empty if it may.

        A pod whose earlier victims are still terminating waits for them instead of choosing new ones, unless the
        nominated node has become impossible for it.

        # Upstream: they may be another preemptor's, and their going an event that the pod is not told of.
        """
        if pod.spec.preemption_policy == "Never":
            return NEVER
        nominated = pod.status.nominated_node_name
        table = self._handle.table
        row = table.row_of.get(nominated) if nominated else None
        if row is None or statuses.get(nominated).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        priority = pod.spec.priority or 0
        still_going = any(
            other.priority < priority and is_terminating_by_preemption(other.pod)
            for other in table.pods[row].values()
        )
        return STILL_TERMINATING if still_going else ""

    # -- candidates ------------------------------------------------------------------------------------------------

    def _find_candidates(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus, *, is_current: bool
    ) -> Search[Shortlist | PostFilterAnswer]:
        """Candidates, or the final answer if there are none.

        With `is_current`, the pod is the version that was tried, of which the class is known.
        """
        table, pods = self._handle.table, self._cursors(pod.spec.priority or 0)
        nominations = self._nominations()
        known = self._known_no_candidates(state, statuses, pods)
        if known is not None:
            return known
        if pods is None:
            verdicts: NodeToStatus = _NoVictims(_count_unschedulable(statuses, table))
        else:
            outcome = yield from self._look_for_victims(state, pod, statuses, is_current=is_current)
            if not isinstance(outcome, NodeToStatus):
                return outcome
            verdicts = outcome
        if not len(verdicts):
            log.info("Preemption will not help schedule pod on any node", v=3, pod=pod)
        verdicts.absent_status = NOT_HELPFUL
        fit_error = FitError("", table.node_count, Diagnosis(node_to_status=verdicts))
        answer = PostFilterResult(CLEAR_NOMINATION), unschedulable(str(fit_error))
        if state.class_memo is not None:
            memo = _NoCandidates(statuses, nominations, pods, answer)
            state.class_memo[self._plugin_name] = memo
        return answer

    def _cursors(self, priority: int) -> tuple[int, int] | None:
        """The ends of the table's logs; None if no pod has a lower priority, so that none can be evicted."""
        table = self._handle.table
        if not table.priorities.has_below(priority):
            return None
        return table.pod_log.end, table.swap_log.end

    def _look_for_victims(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus, *, is_current: bool
    ) -> Search[Shortlist | PostFilterAnswer | NodeToStatus]:
        """Candidates, an error, or the verdicts on all nodes."""
        preemptor = Preemptor(self._framework, state, PodInfo(pod), self._now_us())
        budgets, can_be_kept = self._budgets.list(), self._rules.are_usual and is_current
        if can_be_kept:
            verdicts = yield from self._kept_verdicts.recall(preemptor, statuses, budgets)
            if verdicts is not None:
                return verdicts
        table = self._handle.table
        began = table.pod_log.end, table.swap_log.end, self._nominations()
        if not _count_unschedulable(statuses, table):
            return NodeToStatus()
        if table.node_count > MANY_NODES:
            yield  # the filters have just been asked about all nodes
        rows = rows_with_code(statuses, table, Code.UNSCHEDULABLE)
        rows = visiting_order(rows, self._handle.random)
        if table.node_count > MANY_NODES:
            yield
        wanted = self._count.of(len(rows))
        if can_be_kept:
            shortlist = yield from self._known_victims.find(preemptor, rows, wanted, budgets)
            if shortlist is not None:
                return shortlist
        done = yield from dry_run(preemptor, rows, wanted, budgets, self._row_pods, self._rules)
        if done.shortlist is not None:
            return done.shortlist
        if done.errors:
            return None, error_status(field_errors.aggregate(done.errors))
        found = done.statuses()
        # Not if a node changed that had been looked at when the search was suspended.
        is_unchanged = began == (table.pod_log.end, table.swap_log.end, self._nominations())
        if can_be_kept and is_unchanged:
            self._kept_verdicts.keep(preemptor, found)
        return found

    @property
    def _framework(self) -> Framework:
        framework = self._handle.framework
        assert isinstance(framework, Framework), "plugins are asked after their framework is built"
        return framework

    def _now_us(self) -> int:
        return round(self._handle.clock.now() * 1e6)

    def _known_no_candidates(
        self, state: CycleState, statuses: NodeToStatus, pods: tuple[int, int] | None
    ) -> PostFilterAnswer | None:
        """The answer given to another pod of the class, if nothing has changed since.

        `KnownFailure` hands the same `statuses` object to all pods of a class while these verdicts hold, so comparing
        by identity is enough. Budgets do not matter: they only rank candidates.
        """
        known = None if state.class_memo is None else state.class_memo.get(self._plugin_name)
        if (
            isinstance(known, _NoCandidates)
            and known.statuses is statuses
            and known.pods == pods
            and known.nominations == self._nominations()
        ):
            return known.answer
        return None

    def _nominations(self) -> int:
        return self._handle.nominator.version if self._handle.nominator is not None else 0

    # -- choosing and carrying out ---------------------------------------------------------------------------------

    async def _choose_and_wait(
        self, shortlist: Shortlist, extenders: Sequence[Extender], pod: Pod
    ) -> PostFilterAnswer:
        """Let the extenders narrow the candidates, choose one and, unless in the background, evict its victims."""
        if extenders:
            victims = victims_by_node(candidates_of(shortlist))
            left = await ask_extenders(extenders, pod, victims)
            if isinstance(left, Status):
                return None, left
            if not left:
                return None, unschedulable(NO_CANDIDATE)
            candidates = [Candidate(name, proposed) for name, proposed in left.items()]
            shortlist = ListedCandidates(candidates, self._now_us())
        candidate = self._best(shortlist)
        _log_target(pod, candidate)
        if self._in_background:
            self.executor.start(candidate, pod)
        else:
            failed = await self.executor.carry_out(candidate, pod)
            if failed is not None:
                return None, failed
        return _nominated(candidate)

    def _best(self, shortlist: Shortlist) -> Candidate:
        if self._ordered_scores is not None:
            candidates = candidates_of(shortlist)
            scores = self._ordered_scores(victims_by_node(candidates))
            if scores:
                return best_by(candidates, scores)
        return best_of(shortlist)


def _log_target(pod: Pod, candidate: Candidate) -> None:
    log.info(
        "the target node for the preemption is determined", v=2, pod=pod, node=candidate.node_name
    )


def _nominated(candidate: Candidate) -> PostFilterAnswer:
    return PostFilterResult(NominatingInfo(override=True, node_name=candidate.node_name)), None


def is_terminating_by_preemption(pod: Pod) -> bool:
    """Is the pod being deleted because of a preemption?"""
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions or ():
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTION_BY_SCHEDULER
    return False
