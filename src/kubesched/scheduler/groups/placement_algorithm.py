"""The scheduling algorithm within one placement: only some nodes are candidates."""

from __future__ import annotations

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, NoNodesAvailable
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.pre_filter import PreFilterOutcome
from kubesched.framework.status import Code, Status
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
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

    @property
    def node_count(self) -> int:
        return len(self._rows)

    def _row_of(self, node_name: str) -> int | None:
        row = super()._row_of(node_name)
        return row if row in self._rows else None

    def schedule(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> ScheduleResult | Status:
        if not len(self._rows):
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error=NoNodesAvailable())
        return super().schedule(framework, state, pod)

    def _walk(self, framework: Framework) -> Walk:
        count = len(self._rows)
        return Walk(self._rows, self.next_start % count, self.nodes_to_find(framework, count))

    def _candidates(self, outcome: PreFilterOutcome, diagnosis: Diagnosis) -> Indices:
        if outcome.node_names is not None:
            rows = super()._candidates(outcome, diagnosis)
            return rows[np.isin(rows, self._rows)]
        start = self.next_start % len(self._rows)
        return np.concatenate((self._rows[start:], self._rows[:start]))

    def _select_walked(self, walked: Walked, candidates: int) -> ScheduleResult:
        return super()._select_walked(walked, len(self._rows))
