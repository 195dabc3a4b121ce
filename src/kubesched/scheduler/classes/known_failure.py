"""The cached diagnosis of a class that fits on no node.

It is cached if every applicable filter judges a node by that node and its pods. Then only some rows
are re-evaluated: dirty rows, new nodes, and rows with new nominations. Messages and preemption may
still hold older verdicts, so verdicts are immutable.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.framework.basis import Basis
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.node_statuses import NO_VERDICT, NodeStatusColumns
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.status import Status

JUDGED_ROWS: Final = 64
"""Above this many dirty rows, and above a quarter of all, a full evaluation is as cheap."""


class KnownFailure:
    """The diagnosis of an unschedulable pod. Its premises are those of the class's filters."""

    def __init__(
        self, framework: Framework, table: NodeTable, nominations: int, diagnosis: Diagnosis
    ) -> None:
        """`nominations` is the version of the pod's rivals (`nominations_version`)."""
        self._framework = framework
        self._table = table
        self._nominations = nominations
        self._basis = Basis(table, (), nominator=framework.handle.nominator)
        self._diagnosis = diagnosis.copy()

    def recall(self, state: CycleState, pod: PodInfo, nominations: int) -> Diagnosis | None:
        """The diagnosis (read-only), if another pod of the class still fits on no node."""
        is_current = self._basis.is_settled and self._nominations == nominations
        if not is_current and not self._judge_dirty_rows(state, pod):
            return None
        self._nominations = nominations
        return self._diagnosis

    def _judge_dirty_rows(self, state: CycleState, pod: PodInfo) -> bool:
        """Update the diagnosis; False if a full evaluation is needed, or the pod fits."""
        table, rows, verdicts = self._table, self._dirty_rows(), self._diagnosis.node_to_status
        if rows is None or not isinstance(verdicts, NodeStatusColumns) or verdicts.are_named:
            return False
        is_alive = table.alive[rows]
        ids, statuses = np.full(len(rows), NO_VERDICT, dtype=np.int32), list[Status]()
        if is_alive.any():
            nodes = NodeColumns(table, rows[is_alive])
            outcome = filter_with_nominated_pods(self._framework, state, pod, nodes)
            if outcome.error is not None or outcome.passing.any():
                return False
            ids[is_alive], statuses = outcome.classify(np.arange(len(nodes)))
        renewed = verdicts.replaced(rows, ids, statuses)
        if renewed is not verdicts:
            self._diagnosis = Diagnosis(node_to_status=renewed)
            for status in renewed.statuses:
                self._diagnosis.add_plugin_of(status)
        self._basis.settle()
        return True

    def _dirty_rows(self) -> Indices | None:
        """The rows to re-evaluate, in ascending order; None for all rows."""
        rows = self._basis.dirty_rows()
        if rows is None or len(rows) > max(JUDGED_ROWS, self._table.high_water // 4):
            return None
        return np.unique(np.array(rows, dtype=np.intp))
