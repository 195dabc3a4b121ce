"""The diagnosis of a class that fits nowhere, kept up to date.

If every filter judges a node by that node and its pods, only some rows are judged again: dirty rows, those of nodes that came, and
those that pods were nominated to. Otherwise the diagnosis holds until the first row or nomination changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.premises import FilterRules, Premises, filter_rules, is_lasting
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.row_statuses import NO_VERDICT, RowStatuses
from kubesched.framework.rules import Scope
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.runtime.timing import FILTER, PRE_FILTER
from kubesched.framework.status import Status
from kubesched.snapshot.columns import Indices
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

FEW_ROWS: Final = 64
"""With more dirty rows than this, and than a quarter of all rows, a full evaluation is as cheap."""


class KnownFailure:
    """The diagnosis of a pod that fits nowhere, valid while its premises hold."""

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
        self._nominator = framework.handle.nominator
        self._nominations = nominations
        self._move_cursors()
        self._diagnosis = diagnosis.copy()
        self._statuses: RowStatuses | None = None
        """The verdicts of the diagnosis, once some of them have been replaced."""
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
        is_current = self._cursor == self._table.pod_log.end and self._nominations == nominations
        if nominations is None or not (is_current or self._is_row_local):
            return None
        if not self._premises.hold():
            return None
        state.adopt(self._entries)
        state.skip_filter_plugins = self._skipped
        state.points_reached |= PRE_FILTER | FILTER
        if not is_current and not self._judge_dirty_rows(state, pod):
            return None
        self._nominations = nominations
        return self._diagnosis.copy()

    def _move_cursors(self) -> None:
        self._cursor = self._table.pod_log.end  # a node that changes is in this log, too
        self._nominated = 0 if self._nominator is None else self._nominator.version

    def _judge_dirty_rows(self, state: CycleState, pod: PodInfo) -> bool:
        """Bring the diagnosis up to date; False if only a full evaluation can, or the pod fits by now."""
        table, rows = self._table, self._dirty_rows()
        if self._statuses is None and rows is not None:
            self._statuses = RowStatuses.of(table, self._diagnosis.node_to_status)
        if rows is None or self._statuses is None:
            return False
        is_alive = table.alive[rows]
        ids, statuses = np.full(len(rows), NO_VERDICT, dtype=np.int32), list[Status]()
        if is_alive.any():
            nodes = NodeColumns(table, rows[is_alive])
            outcome = filter_with_nominated_pods(self._framework, state, pod, nodes)
            if outcome.error is not None or outcome.passing.any():
                return False
            ids[is_alive], statuses = outcome.classify(np.arange(len(nodes)))
        renewed = self._statuses.replaced(rows, ids, statuses)
        if renewed is not self._statuses:
            self._statuses = renewed
            self._diagnosis = Diagnosis(node_to_status=renewed)
            for status in renewed.statuses:
                self._diagnosis.add_plugin_of(status)
        self._move_cursors()
        return True

    def _dirty_rows(self) -> Indices | None:
        """The rows to judge again, in ascending order; None if all rows are."""
        table, row_of = self._table, self._table.row_of
        logged = table.pod_log.since(self._cursor)
        names: Sequence[str] | None = ()
        if self._nominator is not None and self._nominator.version != self._nominated:
            names = self._nominator.changes_since(self._nominated)
        if logged is None or names is None:
            return None
        rows = {*logged, *[row_of[name] for name in names if name in row_of]}
        if len(rows) > max(FEW_ROWS, table.high_water // 4):
            return None
        return np.array(sorted(rows), dtype=np.intp)
