"""The diagnosis of a class that fits nowhere, kept up to date.

If every filter judges a node by that node and its pods, only dirty rows are judged again. Otherwise the diagnosis holds
until the first row changes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.premises import FilterRules, Premises, filter_rules, is_lasting
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.rules import Scope
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.runtime.timing import FILTER, PRE_FILTER
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

FEW_ROWS: Final = 64
"""With more dirty rows than this, and than a quarter of all rows, a full evaluation is as cheap."""


class KnownFailure:
    """The diagnosis of a pod that fits nowhere, valid while no node, premise or nomination has changed."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        rules: FilterRules,
        nominations: int,
        diagnosis: Diagnosis,
    ) -> None:
        self.pod = pod
        """The pod that failed. It stands for all others, so it must belong to the class still."""
        self._framework = framework
        self._table = table
        self._premises = Premises(table, rules.values())
        self._cursor, self._node_cursor = table.pod_log.end, table.node_log.end
        self._nominations = nominations
        self._diagnosis = diagnosis.copy()
        self._skipped = frozenset(state.skip_filter_plugins)
        self._entries = state.entries()
        self._entries.pop(PODS_TO_ACTIVATE, None)
        asked = [
            rules[plugin.name] for plugin in framework.filter if plugin.name not in self._skipped
        ]
        self._is_row_local = all(
            rule is not None and rule.depends_on is not Scope.CLUSTER for rule in asked
        )

    @classmethod
    def of(
        cls,
        framework: Framework,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        nominations: int,
        diagnosis: Diagnosis,
    ) -> KnownFailure | None:
        """From a failed attempt; None if some filter has to run for every pod. Raises what a plugin's rule raises."""
        rules = filter_rules(framework, state, pod)
        if not all([is_lasting(rule) for rule in rules.values()]):
            return None
        return cls(framework, table, state, pod, rules, nominations, diagnosis)

    def recall(self, state: CycleState, pod: PodInfo, nominations: int | None) -> Diagnosis | None:
        """The diagnosis for another pod of the class, if it fits nowhere still; fills the state as PreFilter would."""
        table = self._table
        if (
            nominations != self._nominations
            or self._node_cursor != table.node_log.end
            or not self._premises.hold()
        ):
            return None
        state.adopt(self._entries)
        state.skip_filter_plugins = self._skipped
        state.points_reached |= PRE_FILTER | FILTER
        if self._cursor != table.pod_log.end and not self._judge_dirty_rows(state, pod):
            return None
        return self._diagnosis.copy()

    def _judge_dirty_rows(self, state: CycleState, pod: PodInfo) -> bool:
        """Bring the diagnosis up to date; False if only a full evaluation can, or the pod fits by now."""
        table, statuses = self._table, self._diagnosis.node_to_status
        logged = table.pod_log.since(self._cursor) if self._is_row_local else None
        if logged is None or not isinstance(statuses, NodeStatusColumns):
            return False
        if len(logged) > max(FEW_ROWS, table.high_water // 4):
            return False
        rows = np.unique(np.array(logged, dtype=np.intp))
        nodes = NodeColumns(table, rows)
        outcome = filter_with_nominated_pods(self._framework, state, pod, nodes)
        if outcome.error is not None or outcome.passing.any():
            return False
        renewed = statuses.replaced(rows, *outcome.classify(np.arange(len(rows))))
        if renewed is None:
            return False
        if renewed is not statuses:
            self._diagnosis = Diagnosis(node_to_status=renewed)
            for status in renewed.statuses:
                self._diagnosis.add_plugin_of(status)
        self._cursor = table.pod_log.end
        return True
