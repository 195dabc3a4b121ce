"""The scheduling algorithm within one placement: only some nodes are candidates."""

from __future__ import annotations

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, FitError, NoNodesAvailable
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.pre_filter import PreFilterOutcome
from kubesched.framework.status import Code, Status
from kubesched.scheduler.algorithm import Feasible, ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import Walk, Walked


class PlacementAlgorithm(SchedulingAlgorithm):
    """Filters and scores the nodes of a placement; plugins that count still see all nodes."""

    def __init__(self, whole: SchedulingAlgorithm, rows: Indices) -> None:
        super().__init__(
            whole.table,
            whole.random,
            parallelism=whole.parallelism,
            percentage_of_nodes_to_score=whole.percentage_of_nodes_to_score,
            engine=whole.engine,
        )
        self.next_start = whole.next_start
        self.extenders_decide = whole.extenders_decide
        self._rows = rows[whole.table.position[rows].argsort()]

    def schedule(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> ScheduleResult | Status:
        self.table.refresh()
        if not len(self._rows):
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error=NoNodesAvailable())
        pod_class = self._class_of(framework, state, pod)
        outcome = self.pre_filter(framework, state, pod, pod_class)
        is_kept = outcome.status is None and outcome.node_names is None
        if self.engine is not None and pod_class is not None and is_kept:
            count = len(self._rows)
            walk = Walk(self._rows, self.next_start % count, self.nodes_to_find(framework, count))
            answer = self.engine.decide(framework, state, pod, pod_class, walk)
            if isinstance(answer, Walked):
                return self._select_walked(answer, count)
        feasible = self.find_nodes_that_fit(framework, state, pod, outcome)
        if feasible.error is not None:
            return feasible.error
        if not feasible.count:
            feasible.explain()
            return self.fits_nowhere(pod, feasible.diagnosis)
        return self._prioritize_and_select(framework, state, pod.pod, feasible)

    def search(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        outcome: PreFilterOutcome,
        diagnosis: Diagnosis,
    ) -> Feasible:
        walk = self._candidates(outcome, diagnosis)
        feasible = self._filter_walk(framework, state, pod, walk, diagnosis)
        self.next_start = (self.next_start + feasible.count + feasible.rejected) % len(self._rows)
        return feasible

    def _candidates(self, outcome: PreFilterOutcome, diagnosis: Diagnosis) -> Indices:
        if outcome.node_names is not None:
            rows = super()._candidates(outcome, diagnosis)
            return rows[np.isin(rows, self._rows)]
        start = self.next_start % len(self._rows)
        return np.concatenate((self._rows[start:], self._rows[:start]))

    def try_first(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        diagnosis: Diagnosis,
    ) -> int | None:
        row = self.table.row_of.get(node_name)
        if row is None or row not in self._rows:
            return None
        return super().try_first(framework, state, pod, node_name, diagnosis)

    def fits_nowhere(self, pod: PodInfo, diagnosis: Diagnosis) -> Status:
        return Status(Code.UNSCHEDULABLE, error=FitError(pod.key, len(self._rows), diagnosis))
