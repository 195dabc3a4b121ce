"""The scheduling algorithm with extenders: the same search, with network calls in between.

While an extender is awaited the tables must not change: the caller holds the event gate, which
parks watch events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.api.quantity import low_64_bits
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Diagnosis, NoNodesAvailable
from kubesched.framework.extenders import Extender, may_be_skipped
from kubesched.framework.nodes.columns import Indices, Ints
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import BareColumns, NodeColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.pre_filter import PreFilterOutcome
from kubesched.framework.status import Code, Status, error_status, unresolvable, unschedulable
from kubesched.scheduler.algorithm import (
    Feasible,
    ScheduleResult,
    SchedulingAlgorithm,
    log_failed_trial,
)
from kubesched.scheduler.host_choice import heap_winner

log = get_logger(__name__)

EXTENDER = "Extender"
"""The plugin name of extenders among a pod's rejectors."""


class ExtendedAlgorithm:
    """Adds extender calls to the plain algorithm, for pods that some extender is interested in."""

    def __init__(self, algorithm: SchedulingAlgorithm, extenders: Sequence[Extender]) -> None:
        self._algorithm = algorithm
        self._extenders = extenders
        self._table = algorithm.table
        algorithm.extenders_decide = any(e.is_filter or e.is_prioritizer for e in extenders)

    def over(self, algorithm: SchedulingAlgorithm) -> ExtendedAlgorithm:
        """The same extenders with another plain algorithm."""
        return ExtendedAlgorithm(algorithm, self._extenders)

    def schedule(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> ScheduleResult | Status | Awaitable[ScheduleResult | Status]:
        """A node or the failure status; an awaitable if an extender is interested in the pod."""
        interested = [e for e in self._extenders if e.is_interested(pod.pod)]
        if not interested:
            return self._algorithm.schedule(framework, state, pod)
        return self._schedule(framework, state, pod, interested)

    async def _schedule(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        interested: Sequence[Extender],
    ) -> ScheduleResult | Status:
        self._table.refresh()
        if not self._table.node_count:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error=NoNodesAvailable())
        outcome = self._algorithm.pre_filter(framework, state, pod)
        filtered = await self._feasible(framework, state, pod, outcome, interested)
        if isinstance(filtered, Status):
            return filtered
        feasible, forgets_pods = filtered
        if not len(feasible.rows):
            return self._algorithm.fits_nowhere(pod, feasible.diagnosis)
        return await self._pick(framework, state, pod, feasible, interested, forgets_pods)

    # -- filtering ---------------------------------------------------------------------------------

    async def _feasible(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        outcome: PreFilterOutcome,
        interested: Sequence[Extender],
    ) -> tuple[Feasible, bool] | Status:
        diagnosis = Diagnosis(unschedulable_plugins=set(outcome.narrowing_plugins))
        nominated = pod.pod.status.nominated_node_name
        if outcome.status is None and nominated:
            row = self._algorithm.try_first(framework, state, pod, nominated, diagnosis)
            if row is not None:
                alone = Feasible(np.array([row], dtype=np.intp), diagnosis)
                trial = await self.filter(pod, alone, interested)
                if isinstance(trial, Status):
                    log_failed_trial(pod, nominated, trial)
                elif len(trial[0].rows):
                    return trial
        if outcome.status is not None:
            feasible = self._algorithm.find_nodes_that_fit(framework, state, pod, outcome)
        else:
            feasible = self._algorithm.search(framework, state, pod, outcome, diagnosis)
        if feasible.error is not None:
            return feasible.error
        feasible.explain()
        return await self.filter(pod, feasible, interested)

    async def filter(
        self, pod: PodInfo, feasible: Feasible, interested: Sequence[Extender]
    ) -> tuple[Feasible, bool] | Status:
        """Run the extenders in order on the remaining nodes.

        The flag is True if one returned node objects without pods.
        """
        rows, forgets_pods = feasible.rows, False
        diagnosis = feasible.diagnosis
        before = len(rows)
        for extender in interested:
            if not len(rows) or not extender.is_filter:
                continue
            try:
                answer = await extender.filter(pod.pod, self._nodes(rows))
                rows = self._rows(extender, answer.node_names, rows)
            except KubeschedError as error:
                if not may_be_skipped(extender, error):
                    return error_status(error)
                log.warning(
                    "Skipping extender as it returned error and has ignorable flag set",
                    extender=extender.name,
                    err=error,
                )
                continue
            # Upstream: later extenders do not bring the pods back.
            forgets_pods |= answer.forgets_pods
            for name, why in answer.failed.items():
                if name not in answer.unresolvable:
                    diagnosis.node_to_status.set(name, unschedulable(why))
            for name, why in answer.unresolvable.items():
                diagnosis.node_to_status.set(name, unresolvable(why))
        if len(rows) != before:
            diagnosis.unschedulable_plugins.add(EXTENDER)
        kept = Feasible(rows, diagnosis, feasible.rejected)
        return kept, forgets_pods

    def _nodes(self, rows: Indices) -> list[Node]:
        nodes = [self._table.nodes[row] for row in rows.tolist()]
        return [node for node in nodes if node is not None]

    def _rows(self, extender: Extender, names: Sequence[str], rows: Indices) -> Indices:
        allowed = set(rows.tolist())
        kept = []
        for name in names:
            row = self._table.row_of.get(name)
            if row is None or row not in allowed:
                raise KubeschedError(
                    f'extender "{extender.name}" claims a filtered node "{name}" '
                    "which is not found in "
                    "the input node list"
                )
            kept.append(row)
        return np.array(kept, dtype=np.intp)

    # -- scoring -----------------------------------------------------------------------------------

    async def _pick(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        feasible: Feasible,
        interested: Sequence[Extender],
        forgets_pods: bool,
    ) -> ScheduleResult | Status:
        rows, names = feasible.rows, self._table.names
        evaluated = len(rows) + feasible.rejected
        if len(rows) == 1:
            return ScheduleResult(names[int(rows[0])], 1, evaluated)
        columns = BareColumns if forgets_pods else NodeColumns
        view = columns(self._table, rows)
        outcome = self._algorithm.score(framework, state, pod.pod, view)
        if outcome.error is not None:
            return outcome.error
        totals, lots = await self.prioritized(pod, rows, outcome.totals, interested)
        tied = np.flatnonzero(totals == totals.max())
        drawn = lots[tied]
        if drawn.any():
            place = int(tied[int(drawn.argmax())])
        elif self._algorithm.parallelism == 1:
            place = heap_winner(totals)
        else:
            place = int(tied[self._algorithm.random.randrange(len(tied))])
        return ScheduleResult(names[int(rows[place])], len(rows), evaluated)

    async def prioritized(
        self, pod: PodInfo, rows: Indices, totals: Ints, interested: Sequence[Extender]
    ) -> tuple[Ints, Ints]:
        """Totals including the extenders' scores, and a random number for each node they scored.

        # Upstream: such nodes are ranked with a random tie-breaker.
        """
        lots = np.zeros(len(rows), dtype=np.int64)
        if not interested:
            return totals, lots
        nodes = self._nodes(rows)
        answers = await asyncio.gather(
            *(extender.prioritize(pod.pod, nodes) for extender in interested),
            return_exceptions=True,
        )
        totals = totals.copy()
        at = {self._table.names[row]: index for index, row in enumerate(rows.tolist())}
        for extender, answer in zip(interested, answers, strict=True):
            if isinstance(answer, KubeschedError):
                log.info(
                    "Failed to run extender's priority function",
                    v=5,
                    extender=extender.name,
                    err=answer,
                )
                continue
            if isinstance(answer, BaseException):
                raise answer
            for name, points in answer:
                index = at.get(name)
                if index is not None:
                    # Upstream: out-of-range points from an extender overflow silently.
                    totals[index] = low_64_bits(int(totals[index]) + points)
                    lots[index] = self._algorithm.random.randrange(1, 2**62)
        return totals, lots
