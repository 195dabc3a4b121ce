"""Evaluates preemption for a pod that fits on no node.

    eligible?  ->  potential nodes  ->  dry run  ->  extenders  ->  best candidate  ->  executor

With extenders, and without asynchronous preemption, the answer is an awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kubesched.api import field_errors
from kubesched.api.core_v1 import Pod
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, FitError
from kubesched.framework.extenders import Extender, Victims
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import PostFilterAnswer, PostFilterResult
from kubesched.framework.node_statuses import NodeStatusColumns, rows_with_code
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import CLEAR_NOMINATION, NominatingInfo
from kubesched.framework.preemption.budgets import BudgetLister
from kubesched.framework.preemption.candidates import (
    Candidate,
    CandidateCount,
    ListedCandidates,
    ScoreFunction,
    Shortlist,
    best_by,
    best_of,
    victims_by_node,
    visiting_order,
)
from kubesched.framework.preemption.dry_run import DryRun, KeptDryRuns
from kubesched.framework.preemption.executor import (
    DISRUPTION_TARGET,
    PREEMPTION_BY_SCHEDULER,
    Executor,
)
from kubesched.framework.preemption.extenders import ask_extenders, interested_in
from kubesched.framework.preemption.units import Units
from kubesched.framework.preemption.victims import (
    NO_VICTIMS,
    Preemptor,
    SelectVictims,
    VictimRules,
    select_victims,
)
from kubesched.framework.runtime import Framework
from kubesched.framework.status import (
    Code,
    NodeToStatus,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)

NEVER: Final = "not eligible due to preemptionPolicy=Never."
STILL_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
SUCCESS: Final = "found a potential placement for pod on node {}, preempting {} victims"
NO_CANDIDATE: Final = "no candidate node for preemption"
NOT_HELPFUL: Final = unresolvable("Preemption is not helpful for scheduling")
"""The verdict on nodes that the filters reject for good."""

log = get_logger(__name__)

OrderedScores = Callable[[Mapping[str, Victims]], Sequence[ScoreFunction]]
"""Victims by node name -> criteria, most important first; empty for the default criteria."""


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
        reference = handle.feature_gates.reference
        self._names_the_node = reference.preemption_has_text
        self.budgets = BudgetLister(
            handle.listers, stops_at_violation=reference.budgets_stop_at_first_violation
        )
        self._kept_runs = KeptDryRuns(handle.table, (plugin_name, "dry run"))

    def preempt(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        """The node on which room is being made, if any; `statuses` are the filters' verdicts."""
        current = self._current(pod)
        if current is None:
            return None, error_status(f'pod "{pod.metadata.name}" not found')
        # A plugin with a selection of its own has said who may preempt.
        reason = "" if self._rules.select else self._why_not_eligible(current, statuses)
        if reason:
            log.info("Pod is not eligible for preemption", v=5, pod=current, reason=reason)
            return None, unschedulable(reason)
        found = self._find_candidates(state, current, statuses, is_current=current is pod)
        if isinstance(found, tuple):
            log.info(
                "No preemption candidate is found; preemption is not helpful for scheduling",
                v=2,
                pod=current,
            )
            return found
        extenders = interested_in(self._handle.extenders, current)
        if extenders or not self._in_background:
            return self._choose_and_wait(found, extenders, current)
        candidate = self._best(found)
        _log_target(current, candidate)
        self.executor.start(candidate, current)
        return self._nominated(candidate)

    def try_node(self, state: CycleState, pod: Pod, node_name: str) -> Victims | Status:
        """What would be evicted from a node, without side effects."""
        preemptor = Preemptor(self._framework, state, PodInfo(pod), self._now_us())
        row = self._handle.table.row_of[node_name]
        return select_victims(preemptor, row, self.budgets.list(), self._rules)

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

        A pod whose earlier victims are still terminating waits for them instead of choosing new
        ones, unless the nominated node has become impossible for it.

        # Upstream: the victims may be another preemptor's, and the pod may get no event when they
        # are gone.
        """
        if pod.spec.preemption_policy == "Never":
            return NEVER
        nominated = pod.status.nominated_node_name
        table = self._handle.table
        row = table.row_of.get(nominated) if nominated else None
        if row is None or statuses.get(nominated).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        priority = pod.spec.priority or 0
        groups = self._handle.groups
        priority_of = None if groups is None else Units(groups, 0).priority_of
        still_going = any(
            (other.priority if priority_of is None else priority_of(other.pod)) < priority
            and is_terminating_by_preemption(other.pod)
            for other in table.pods[row].values()
        )
        return STILL_TERMINATING if still_going else ""

    # -- candidates --------------------------------------------------------------------------------

    def _find_candidates(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus, *, is_current: bool
    ) -> Shortlist | PostFilterAnswer:
        """Candidates, or the final answer if there are none.

        With `is_current`, the pod is the version that was tried, whose class is known.
        """
        table = self._handle.table
        rows = rows_with_code(statuses, table, Code.UNSCHEDULABLE)
        found = self._look_for_victims(state, pod, rows, is_current=is_current)
        if not isinstance(found, NodeToStatus):
            return found
        if not len(found):
            log.info("Preemption will not help schedule pod on any node", v=3, pod=pod)
        found.absent_status = NOT_HELPFUL
        fit_error = FitError("", table.node_count, Diagnosis(node_to_status=found))
        return PostFilterResult(CLEAR_NOMINATION), unschedulable(str(fit_error))

    def _look_for_victims(
        self, state: CycleState, pod: Pod, rows: Indices, *, is_current: bool
    ) -> Shortlist | PostFilterAnswer | NodeToStatus:
        """Candidates, an error, or the verdicts on all rows."""
        table = self._handle.table
        now_us = self._now_us()
        rules = self._rules_now(now_us)
        may_help = table.priorities.has_below(pod.spec.priority or 0) or not rules.go_by_priority
        if not len(rows) or not may_help:
            return NodeStatusColumns(table, rows, np.zeros(len(rows), np.int32), [NO_VICTIMS])
        preemptor = Preemptor(self._framework, state, PodInfo(pod), now_us)
        budgets = self.budgets.list()
        run = self._kept_runs.of(preemptor, budgets) if rules.are_usual and is_current else None
        if run is None:
            run = DryRun(preemptor, budgets, rules)
        still_none = run.still_none(rows)
        if still_none is not None:
            return still_none
        rows = visiting_order(rows, self._handle.random)
        found = run.find(rows, self._count.of(len(rows)))
        if isinstance(found, NodeStatusColumns):
            errors = errors_among(found)
            if errors:
                return None, error_status(field_errors.aggregate(errors))
        return found

    def _rules_now(self, now_us: int) -> VictimRules:
        """The rules; units take the place of pods while members of groups are placed."""
        groups = self._handle.groups
        if groups is None or not groups.has_scheduled_pods:
            return self._rules
        return replace(self._rules, units=Units(groups, now_us))

    @property
    def _framework(self) -> Framework:
        framework = self._handle.framework
        assert isinstance(framework, Framework), "plugins are asked after their framework is built"
        return framework

    def _now_us(self) -> int:
        return round(self._handle.clock.now() * 1e6)

    # -- choosing and carrying out -----------------------------------------------------------------

    async def _choose_and_wait(
        self, shortlist: Shortlist, extenders: Sequence[Extender], pod: Pod
    ) -> PostFilterAnswer:
        """Apply extenders, choose a candidate and, if in the foreground, evict its victims."""
        if extenders:
            victims = victims_by_node(shortlist.candidates())
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
        return self._nominated(candidate)

    def _best(self, shortlist: Shortlist) -> Candidate:
        if self._ordered_scores is not None:
            candidates = shortlist.candidates()
            scores = self._ordered_scores(victims_by_node(candidates))
            if scores:
                return best_by(candidates, scores)
        return best_of(shortlist)

    def _nominated(self, candidate: Candidate) -> PostFilterAnswer:
        node_name, victims = candidate.node_name, candidate.victims.pods
        result = PostFilterResult(NominatingInfo(override=True, node_name=node_name))
        if not self._names_the_node:
            return result, None
        return result, Status(Code.SUCCESS, (SUCCESS.format(node_name, len(victims)),))


def own_preemption(
    handle: Handle,
    plugin_name: str,
    select: SelectVictims,
    *,
    min_candidate_nodes_percentage: int = 10,
    min_candidate_nodes_absolute: int = 100,
) -> Evaluator:
    """For `Handle.preemption`: a plugin's own selection of victims."""
    return Evaluator(
        handle,
        plugin_name,
        CandidateCount(min_candidate_nodes_percentage, min_candidate_nodes_absolute),
        in_background=False,
        rules=VictimRules(select=select),
        ordered_scores=None,
    )


def errors_among(verdicts: NodeStatusColumns) -> list[Exception]:
    """The errors that preemption met, in visiting order."""
    if not any(status.code is Code.ERROR for status in verdicts.statuses):
        return []
    statuses = (verdicts.statuses[number] for number in verdicts.ids.tolist())
    errors = [status.as_error() for status in statuses if status.code is Code.ERROR]
    return [error for error in errors if error is not None]


def _log_target(pod: Pod, candidate: Candidate) -> None:
    log.info(
        "the target node for the preemption is determined", v=2, pod=pod, node=candidate.node_name
    )


def is_terminating_by_preemption(pod: Pod) -> bool:
    """True if the pod is being deleted because of a preemption."""
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions or ():
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTION_BY_SCHEDULER
    return False
