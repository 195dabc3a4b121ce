"""The diagnosis of a class that fits nowhere, kept up to date.

If every filter judges a node by that node and its pods, only some rows are judged again: dirty rows, those of nodes that came, and
those that pods were nominated to. Otherwise the diagnosis holds until the first row or nomination changes.

Mostly a row of which pods came or left is still rejected for the same reason. That is seen without arrays (`_Refusals`):

    filters      TaintToleration   NodeAffinity   NodePorts   NodeResourcesFit     kept verdict: Insufficient cpu
    scope        node              node           row         row
    asked for    -                 -              passes?     the same refusal?    the node is the same, and so are their verdicts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.premises import FilterRules, Premises, filter_rules, is_lasting
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.row_statuses import NO_VERDICT, RowStatuses
from kubesched.framework.rules import Scope
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.nominated import NO_NOMINATIONS, filter_with_nominated_pods
from kubesched.framework.runtime.timing import FILTER, PRE_FILTER
from kubesched.framework.status import Status
from kubesched.snapshot.columns import Indices
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

FEW_ROWS: Final = 64
"""With more dirty rows than this, and than a quarter of all rows, a full evaluation is as cheap."""
ONE_BY_ONE: Final = 8
"""Up to so many dirty rows are asked about one by one."""

Refuse = Callable[[int], Status | None]


class _Refusals(NamedTuple):
    """What tells whether a filter's verdict on a row still stands after pods came or left, while the node is the same."""

    earlier: Sequence[Refuse]
    """Of the filters before it that follow the pods on a node."""
    own: Refuse | None
    """None if it follows the node alone: then it would say the same."""


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
        self.is_doubtful = False
        """Some row seems to have room, or only a full evaluation can tell: asked last, after a plan."""
        self._framework = framework
        self._table = table
        self._premises = Premises(table, rules.values())
        self._nominator = framework.handle.nominator
        self._nominations = nominations
        self._move_cursors()
        self._diagnosis = diagnosis.copy()
        self._diagnosis.kept = None
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
        self._refusals = _refusals_by_plugin(framework, rules, self._skipped)

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

    @property
    def is_outdated(self) -> bool:
        """Doubtful for long: pods find room, and what is known takes memory for every row."""
        return self.is_doubtful and self._table.pod_log.end - self._cursor > FEW_ROWS

    def recall(self, state: CycleState, pod: PodInfo, nominations: int | None) -> Diagnosis | None:
        """The diagnosis of the class, not to be changed, if another pod of it fits nowhere still.

        See `restore` for what PreFilter would leave in the state.
        """
        is_current = self._cursor == self._table.pod_log.end and self._nominations == nominations
        if nominations is None or not (is_current or self._is_row_local):
            return None
        if not self._premises.hold():
            return None
        state.skip_filter_plugins = self._skipped
        state.points_reached |= PRE_FILTER | FILTER
        if (
            not is_current
            and not (nominations == NO_NOMINATIONS and self._is_refused_still())
            and not self._judge_dirty_rows(state, pod)
        ):
            return None
        self._nominations = nominations
        return self._diagnosis

    def restore(self, state: CycleState) -> None:
        """Fill the state as PreFilter would."""
        state.adopt(self._entries)

    def _move_cursors(self) -> None:
        self._cursor = self._table.pod_log.end  # a node that changes is in this log, too
        self._nominated = 0 if self._nominator is None else self._nominator.version

    def _is_refused_still(self) -> bool:
        """Whether every dirty row is known to be rejected as before, for a pod without rivals."""
        kept = self._statuses
        rows = self._table.pod_log.since(self._cursor)
        if (
            kept is None
            or rows is None
            or len(rows) > ONE_BY_ONE
            or self._nominations != NO_NOMINATIONS
            or not kept.are_of_these_nodes
        ):
            return False
        for row in {*rows}:
            before = kept.status_at(row)
            by = None if before is None else self._refusals.get(before.plugin)
            if before is None or by is None:
                return False
            for earlier in by.earlier:
                if earlier(row) is not None:
                    return False
            if by.own is not None:
                refusal = by.own(row)
                if (
                    refusal is None
                    or refusal.code is not before.code
                    or refusal.reasons != before.reasons
                ):
                    return False
        self._cursor = self._table.pod_log.end
        return True

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
            self.restore(state)
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


def _refusals_by_plugin(
    framework: Framework, rules: FilterRules, skipped: Set[str]
) -> dict[str, _Refusals]:
    """For every filter of which it can be told; verdicts of the others are judged anew."""
    earlier: tuple[Refuse, ...] = ()
    by_plugin: dict[str, _Refusals] = {}
    for plugin in framework.filter:
        if plugin.name in skipped:
            continue
        rule = rules[plugin.name]
        if rule is None or (rule.depends_on is not Scope.NODE and rule.refusal is None):
            break  # whether it rejects the row by now, before later filters can, is not known
        own = None if rule.depends_on is Scope.NODE else rule.refusal
        by_plugin[plugin.name] = _Refusals(earlier, own)
        if own is not None:
            earlier = (*earlier, own)
    return by_plugin
