"""The diagnosis of a class that fits nowhere, reused while nothing it depends on changes."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.premises import Premises, filter_rules, is_lasting
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.timing import FILTER, PRE_FILTER
from kubesched.snapshot.node_table import NodeTable


class KnownFailure:
    """The diagnosis of a pod that fits nowhere, valid while no row, premise or nomination has changed."""

    def __init__(
        self,
        table: NodeTable,
        state: CycleState,
        pod: Pod,
        premises: Premises,
        nominations: int,
        diagnosis: Diagnosis,
    ) -> None:
        self.pod = pod
        """The pod that failed. It stands for all others, so it must belong to the class still."""
        self._table = table
        self._premises = premises
        self._logs = table.pod_log.end, table.node_log.end
        self._nominations = nominations
        self._diagnosis = diagnosis.copy()
        self._skipped = frozenset(state.skip_filter_plugins)
        self._entries = state.entries()
        self._entries.pop(PODS_TO_ACTIVATE, None)

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
        rules = filter_rules(framework, state, pod).values()
        if not all([is_lasting(rule) for rule in rules]):
            return None
        return cls(table, state, pod, Premises(table, rules), nominations, diagnosis)

    def recall(self, state: CycleState, nominations: int | None) -> Diagnosis | None:
        """The diagnosis for another pod of the class, if still valid; fills the state as PreFilter would."""
        table = self._table
        if (
            nominations != self._nominations
            or self._logs != (table.pod_log.end, table.node_log.end)
            or not self._premises.hold()
        ):
            return None
        state.adopt(self._entries)
        state.skip_filter_plugins = self._skipped
        state.points_reached |= PRE_FILTER | FILTER
        return self._diagnosis.copy()
