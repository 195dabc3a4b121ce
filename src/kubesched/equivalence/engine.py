"""The equivalence engine: decisions from what is kept for the pod's equivalence class.

The engine replaces PreFilter, Filter, PreScore and Score, or returns None. The scheduling algorithm then runs the full
evaluation and passes the outcome back (`learn_placement`, `learn_failure`). Both give the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.class_index import Unfit
from kubesched.equivalence.known_failure import KnownFailure
from kubesched.equivalence.plan import Plan
from kubesched.equivalence.pod_classes import ClassCache, PodClass, Recent
from kubesched.equivalence.ranking import Group, Ties
from kubesched.equivalence.row_layers import NoRoom, RowLayers
from kubesched.equivalence.signature import LabelsRead, Signatures
from kubesched.equivalence.walk import Walk, Walked
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, KeptEnd
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import NO_NOMINATIONS, nominations_version, rivals_of
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.score import run_pre_score
from kubesched.logs import get_logger
from kubesched.snapshot.columns import Indices, Ints, Levels, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo, label_key_of
from kubesched.snapshot.views import NodeColumns, PassingColumns

log = get_logger(__name__)

_UNSCORED: Final[Ints] = np.zeros(1, dtype=np.int64)
"""The total of the only feasible node."""


POST_FILTER_VERBOSITY: Final = 2
"""Where PostFilter plugins log what they look at, they are asked for every pod."""


class Best(NamedTuple):
    """The nodes to choose from: rows with the best total, and how many nodes are feasible."""

    ties: Ties
    feasible_count: int


Answer = Best | Walked | Diagnosis | KeptEnd
"""Where the pod can go, or why it fits nowhere, or even how the attempt ends."""


class EquivalenceEngine:
    """Keeps plans and failures per class of pods."""

    def __init__(self, table: NodeTable, classes: ClassCache | None = None) -> None:
        self._table = table
        self.classes = ClassCache() if classes is None else classes
        self._layers = RowLayers(table)

    def forget(self) -> None:
        """Begin anew, with no class known."""
        self.classes.clear()
        self._layers = RowLayers(self._table)

    def class_of(self, framework: Framework, pod: PodInfo) -> PodClass | None:
        """The pod's class; None for a pod that cannot share answers."""
        whole, shape = pod.class_key, pod.shape_key
        if whole is None or shape is None:
            signatures: Signatures | None = framework.caches.get(Signatures)
            if signatures is None:
                signatures = framework.caches[Signatures] = Signatures(framework)
            signature = signatures.of(pod.pod)
            shape, whole = (b"", b"") if signature is None else signature
            pod.class_key, pod.shape_key = whole, shape
        if not whole:
            return None
        labels_read: LabelsRead | None = framework.caches.get(LabelsRead)
        if labels_read is None:
            labels_read = framework.caches[LabelsRead] = LabelsRead(framework)
        version = labels_read.version()
        recent = self.classes.recall(whole, version)
        if recent is None:
            pod_class = self.classes.get(labels_read.key(pod.pod, shape, whole))
            self._check_kept(labels_read, pod.pod, pod_class)
            recent = Recent(version, pod_class, label_key_of(pod.pod))
            self.classes.remember(whole, recent)
        pod_class = recent.pod_class
        pod.share_derived(pod_class.derived, recent.label_key)
        return pod_class

    @staticmethod
    def _check_kept(labels_read: LabelsRead, pod: Pod, pod_class: PodClass) -> None:
        """Drop what was made from a pod that selectors now tell apart from this one."""
        for kept in (pod_class.plan, pod_class.failure):
            if kept is None or kept.pod.metadata.labels == pod.metadata.labels:
                continue
            if not labels_read.is_of(kept.pod, pod_class.key):
                pod_class.plan = pod_class.failure = None
                pod_class.memo.clear()

    # -- answering -------------------------------------------------------------------------------------------------

    def decide(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass,
        walk: Walk | None = None,
    ) -> Answer | None:
        """The answer from what is kept; None when the full evaluation is needed.

        Without a walk the order of the nodes is of no importance.
        """
        failure = pod_class.failure
        if failure is not None and failure.is_outdated:
            failure = pod_class.failure = None
        is_doubtful = failure is None or failure.is_doubtful
        if failure is not None and not is_doubtful:
            failed = self._by_failure(framework, state, pod, failure)
            if failed is not None:
                return failed
        try:
            plan = pod_class.plan or self._plan_ahead(framework, pod.pod, pod_class)
            answer = None if plan is None else self._by_plan(framework, state, pod, plan, walk)
            if answer is not None:
                return answer
        except Unfit:
            pod_class.plan = None
        except Exception as error:  # raised by a plugin's rule; the full evaluation does without it
            self._give_up(pod.pod, pod_class, error)
        if failure is not None and is_doubtful and pod_class.failure is failure:
            return self._by_failure(framework, state, pod, failure)
        return None

    @staticmethod
    def _by_failure(
        framework: Framework, state: CycleState, pod: PodInfo, failure: KnownFailure
    ) -> Diagnosis | KeptEnd | None:
        """Why the pod fits nowhere, if that can be told from why the last one of its class did not.

        If it cannot, a node may have room by now. What is known of the other nodes is of use again when that is taken.
        """
        started = framework.now()
        nominations = nominations_version(framework, pod)
        diagnosis = None
        if nominations == NO_NOMINATIONS or _are_alike(failure.pod, pod):
            diagnosis = failure.recall(state, pod, nominations)
        failure.is_doubtful = diagnosis is None
        if diagnosis is None:
            return None
        framework.point_done("Filter", framework.point_done("PreFilter", started))
        end = diagnosis.end
        if end is not None and not log.enabled(POST_FILTER_VERBOSITY) and end.holds():
            return end
        failure.restore(state)
        return diagnosis.copy()

    def _plan_ahead(self, framework: Framework, pod: Pod, pod_class: PodClass) -> Plan | None:
        """A plan for the first pod of a class, if the rows are known from other classes of its shape. Raises Unfit."""
        if pod_class.is_unplannable or not self._layers.knows(pod_class.shape):
            return None
        state = CycleState()
        state.class_memo = pod_class.memo
        nodes = NodeColumns(self._table)
        outcome = run_pre_filter(framework, state, pod, nodes)
        if outcome.status is not None or outcome.node_names is not None:
            return None
        if run_pre_score(framework, state, pod, nodes) is not None:
            return None
        pod_class.plan = self._make_plan(framework, state, pod, pod_class)
        return pod_class.plan

    def _make_plan(
        self, framework: Framework, state: CycleState, pod: Pod, pod_class: PodClass
    ) -> Plan:
        return Plan(framework, self._table, state, pod, self._layers, pod_class.key)

    def _by_plan(
        self, framework: Framework, state: CycleState, pod: PodInfo, plan: Plan, walk: Walk | None
    ) -> Best | Walked | None:
        """None if no node is feasible, or PreFilter rejects or narrows: the plan is kept. Raises Unfit."""
        started = framework.now()
        if not plan.holds():
            raise Unfit
        if not plan.prepare(state, pod.pod):
            return None
        started = framework.point_done("PreFilter", started)
        refused: Indices | None = None
        rivals = rivals_of(framework, pod)
        if rivals is not None:
            if not _are_alike(plan.pod, pod):
                return None  # labels that no pod on a node reads may matter to a nominated one
            refused = plan.refused_rows(state, pod, rivals)
        groups = plan.feasible_groups(state, pod.pod, refused, by_row=walk is not None)
        if not plan.chooses_by_group:
            passing = plan.filter_rows(state, pod.pod, plan.feasible_rows(groups))
            if not plan.is_grouped or np.count_nonzero(passing) < _count(groups):
                return self._by_rows(framework, state, pod.pod, plan, passing, walk, started)
        if walk is not None:
            return self._by_walk(framework, state, pod.pod, plan, groups, walk, started)
        started = framework.point_done("Filter", started)
        count = groups[0].count if len(groups) == 1 else _count(groups)
        if count <= 1:
            return Best(_only(plan, groups), 1) if count else None
        plan.pre_score_groups(state, pod.pod, groups)
        started = framework.point_done("PreScore", started)
        ties = plan.best_of_groups(state, pod.pod, groups)
        framework.point_done("Score", started)
        return Best(ties, count)

    def _by_walk(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        plan: Plan,
        groups: Sequence[Group],
        walk: Walk,
        started: float,
    ) -> Walked | None:
        """Decide about the nodes that a walk finds first: only these are scored."""
        rows, examined = plan.walk(groups, walk)
        started = framework.point_done("Filter", started)
        if len(rows) <= 1:
            return Walked(rows, _UNSCORED, examined) if len(rows) else None
        groups = plan.groups_of(rows, groups)
        plan.pre_score_groups(state, pod, groups)
        started = framework.point_done("PreScore", started)
        totals = plan.totals_of_walk(state, pod, groups, rows)
        framework.point_done("Score", started)
        return Walked(rows, totals, examined)

    def _by_rows(
        self,
        framework: Framework,
        state: CycleState,
        pod: Pod,
        plan: Plan,
        passing: Mask,
        walk: Walk | None,
        started: float,
    ) -> Best | Walked | None:
        """Decide over rows: residual plugins make rows of a group differ."""
        examined = self._table.node_count
        if walk is None:
            feasible: NodeColumns = PassingColumns(self._table, passing)
        else:
            rows, examined = walk.first(passing.__getitem__)
            feasible = NodeColumns(self._table, rows)
        started = framework.point_done("Filter", started)
        count = len(feasible)
        totals: Levels = _UNSCORED
        if count == 0:
            return None
        if count > 1:
            plan.pre_score_rows(state, pod, feasible)
            started = framework.point_done("PreScore", started)
            totals = plan.totals_of_rows(state, pod, feasible)
            framework.point_done("Score", started)
        rows = feasible.row_indices()
        if walk is not None:
            return Walked(rows, totals, examined)
        return Best(Ties.of(rows[totals == totals.max()]), count)

    # -- learning --------------------------------------------------------------------------------------------------

    def learn_placement(
        self, framework: Framework, state: CycleState, pod: Pod, pod_class: PodClass
    ) -> None:
        """After a full evaluation that scored several nodes: make a plan for the next pods of the class."""
        if pod_class.plan is not None or pod_class.is_unplannable:
            return
        if not self._layers.is_worth_a_layer(pod_class.shape):
            return
        try:
            pod_class.plan = self._make_plan(framework, state, pod, pod_class)
        except NoRoom:
            pass
        except Unfit:
            pod_class.is_unplannable = True
        except Exception as error:  # raised by a plugin's rule; the decision stands
            self._give_up(pod, pod_class, error)

    def learn_failure(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        pod_class: PodClass,
        diagnosis: Diagnosis,
    ) -> None:
        """After a full evaluation that found no node: tell the next pods of the class the same."""
        pod_class.failure = None
        nominations = nominations_version(framework, pod)
        if nominations is None or pod_class.is_unplannable:
            return
        try:
            pod_class.failure = KnownFailure.of(
                framework, self._table, state, pod.pod, nominations, diagnosis
            )
        except Exception as error:  # as above
            self._give_up(pod.pod, pod_class, error)

    @staticmethod
    def _give_up(pod: Pod, pod_class: PodClass, error: Exception) -> None:
        log.error("The rule of a plugin failed; its pods get the full evaluation", error, pod=pod)
        pod_class.plan = pod_class.failure = None
        pod_class.is_unplannable = True


def _are_alike(one: Pod, other: PodInfo) -> bool:
    return one.metadata.labels == other.pod.metadata.labels


def _count(groups: Sequence[Group]) -> int:
    return sum([group.count for group in groups])


def _only(plan: Plan, groups: Sequence[Group]) -> Ties:
    """The only row of the only group."""
    (group,) = [group for group in groups if group.count]
    return Ties.of(np.array([plan.some_row(group)], dtype=np.intp))
