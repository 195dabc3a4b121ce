"""The dry run: evaluates preemption on nodes, without side effects, until it has enough candidates.

The outcome on a row is a verdict and, for a candidate, its criteria in the choice:

    row        0           1            2          3
    verdict    candidate   no victims   unknown    Insufficient cpu
    criteria   0 -5 ..     -            -          -

Unknown rows are evaluated in visiting order, in three stages, each over fewer rows:

    screen    drops rows without potential victims, and rows that row-local filters reject even
              with all victims removed
    together  rows where no plugin tracks removed pods: evaluated as columns, in blocks of rows
    alone     the remaining rows, one by one

The first two are optimizations; the result equals evaluating every row alone. "Row-local" filters
judge a node by that node and its pods. Other filters need a `remove_pod` call for every removed
pod, unless they ignore it (`keys_affected_by`).

If all filters are row-local, the outcome on a row depends only on the preemptor's class, the row,
the pods nominated to the node and, for the criteria, the budgets. The run is then kept for the next
preemptor of the class: rows become unknown when the table's logs or the nominator name them, and
new budgets make candidates unknown. A class without any candidate is retried after each event that
may help; after the few changed rows have been evaluated, the kept verdicts are the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.framework.basis import Basis, filter_rules, is_lasting
from kubesched.framework.interfaces import FilterPlugin, PreFilterPlugin
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.columns import Ids, Indices, Ints, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.candidates import (
    CRITERIA,
    Candidate,
    Quota,
    Shortlist,
    criteria_of,
)
from kubesched.framework.preemption.victim_columns import (
    Broken,
    VictimColumns,
    filter_what_if,
    without_lower,
)
from kubesched.framework.preemption.victims import (
    NO_VICTIMS,
    USUAL_RULES,
    Preemptor,
    VictimRules,
    no_victim_on,
    select_victims,
)
from kubesched.framework.rules import Scope
from kubesched.framework.runtime.filter import what_if_scope
from kubesched.framework.runtime.nominated import is_nominated, rivals_of
from kubesched.framework.status import Status

BYTES_LIMIT: Final = 64 * 1024 * 1024
"""Limit for the runs of all classes; the oldest class is dropped."""
BYTES_PER_ROW: Final = 8 * CRITERIA + 4
STATUS_LIMIT: Final = 1000
"""Limit of verdicts in a kept run; above it, all of them are dropped."""

_UNKNOWN, _CANDIDATE, _NO_VICTIMS = -1, -2, 0
"""Verdicts below 0; others are status numbers, of which this is the first."""
_STARTED: Final = CRITERIA - 1
"""The criterion that is a time."""
_NOW: Final = 2**63 - 1
"""Replaces that time if no victim has started: the time of the choice."""


class KeptDryRuns:
    """The dry runs of all classes of one profile."""

    def __init__(self, table: NodeTable, key: Hashable) -> None:
        """`key` is the key of the run in a class's memo."""
        self._table = table
        self._key = key
        self._memos: deque[dict[Hashable, Any]] = deque()

    def of(self, preemptor: Preemptor, budgets: Budgets) -> DryRun | None:
        """The run of the preemptor's class; None if none can be kept for it."""
        memo = preemptor.state.class_memo
        if memo is None or is_nominated(preemptor.framework, preemptor.pod):
            return None
        known: DryRun | None = memo.get(self._key)
        if known is not None and known.follow(preemptor, budgets):
            return known
        if not preemptor.caring.are_row_local:
            return None
        rules = filter_rules(preemptor.framework, preemptor.state, preemptor.pod.pod).values()
        if not all(is_lasting(rule) for rule in rules):
            return None
        if known is None:
            self._make_room()
            self._memos.append(memo)
        nominator = preemptor.framework.handle.nominator
        basis = Basis(self._table, rules, nominator=nominator, follows_swaps=True)
        known = memo[self._key] = DryRun(preemptor, budgets, basis=basis)
        return known

    def _make_room(self) -> None:
        fitting = BYTES_LIMIT // (BYTES_PER_ROW * max(self._table.capacity, 1))
        while len(self._memos) >= max(fitting, 1):
            self._memos.popleft().pop(self._key, None)


class DryRun:
    """The outcomes on the rows evaluated so far: a preemptor's or, with a basis, its class's."""

    def __init__(
        self,
        preemptor: Preemptor,
        budgets: Budgets,
        rules: VictimRules = USUAL_RULES,
        *,
        basis: Basis | None = None,
        together: bool = True,
    ) -> None:
        """Without `together` every node is evaluated alone, with the same outcome."""
        table = self._table = preemptor.framework.handle.table
        self._below = table.pods_below(preemptor.pod.priority)
        self._preemptor = preemptor
        self._caring = preemptor.caring
        self._budgets = budgets
        self._rules = rules
        self._basis = basis
        self._skipped = preemptor.state.skip_filter_plugins
        self._verdicts: Ids = np.full(table.capacity, _UNKNOWN, dtype=np.int32)
        self._statuses: list[Status] = [NO_VICTIMS]
        self._criteria: Ints = np.zeros((CRITERIA, table.capacity), dtype=np.int64)
        self._alone: dict[int, Candidate] = {}
        """The candidates among rows that were evaluated alone."""
        self._passing: list[int] = []
        """Rows whose outcome is valid for this preemptor only."""
        self._is_hopeless = False
        """True if the last search found no candidate, and every verdict can be kept."""
        self._is_local = together and rules.are_usual and self._caring.are_row_local
        self._goes_alone = not (together and rules.are_usual and self._caring.can_tell)
        self._screening = self._screening_plugins() if together else []
        self._rivals = rivals_of(preemptor.framework, preemptor.pod)

    def follow(self, preemptor: Preemptor, budgets: Budgets) -> bool:
        """Continue for the next preemptor of the class; False if no outcome can be used."""
        assert self._basis is not None, "the run is kept"
        rows = self._basis.dirty_rows()
        if rows is None or not self._basis.holds() or len(self._statuses) > STATUS_LIMIT:
            return False
        if self._skipped != preemptor.state.skip_filter_plugins:
            return False
        if budgets is not self._budgets or preemptor.now_us < self._preemptor.now_us:
            # New budgets, or the clock was set back: candidates compare differently.
            self._verdicts[self._verdicts == _CANDIDATE] = _UNKNOWN
        self._verdicts[[*rows, *self._passing]] = _UNKNOWN
        self._passing = []
        preemptor.caring = self._caring
        self._preemptor, self._budgets = preemptor, budgets
        self._below = self._table.pods_below(preemptor.pod.priority)
        self._rivals = rivals_of(preemptor.framework, preemptor.pod)
        self._basis.settle()
        return True

    # -- search ------------------------------------------------------------------------------------

    def still_none(self, rows: Indices) -> NodeStatusColumns | None:
        """The verdicts on the rows, if there was no candidate last time and there is none now.

        The order of the rows does not matter then, so the caller need not draw one.
        """
        found = self.find(rows, len(rows)) if self._is_hopeless else None
        return found if self._is_hopeless and isinstance(found, NodeStatusColumns) else None

    def find(self, rows: Indices, wanted: int) -> Shortlist | NodeStatusColumns:
        """The candidates among the rows, in visiting order, or the verdicts if there are none.

        Evaluates rows until there are `wanted` candidates.
        """
        try:
            chosen = self._choose(rows, wanted)
        except Broken:
            # A filter failed for some row of a block. Only the evaluation row by row shows which
            # one, and whether the search ends before that row.
            self._is_hopeless = False
            alone = DryRun(self._preemptor, self._budgets, self._rules, together=False)
            return alone.find(rows, wanted)
        self._is_hopeless = not len(chosen) and not self._passing
        if len(chosen):
            return _Chosen(self, chosen)
        return NodeStatusColumns(self._table, rows, self._verdicts[rows], [*self._statuses])

    def _choose(self, rows: Indices, wanted: int) -> Indices:
        verdicts, quota, admitted = self._verdicts, Quota(wanted), [rows[:0]]
        left = rows[verdicts[rows] < 0]
        size = max(wanted, 1)
        while len(left) and not quota.is_filled:
            block, left = left[:size], left[size:]
            unknown = block[verdicts[block] == _UNKNOWN]
            if len(unknown):
                self._evaluate(unknown, quota)
                block = block[verdicts[block] == _CANDIDATE]
            admitted.append(block[quota.admit(-self._criteria[0, block])])
            size *= 2
        return np.concatenate(admitted)

    def _evaluate(self, rows: Indices, quota: Quota) -> None:
        rows = self._screen(rows)
        alone = self._must_be_tried_alone(rows)
        self._try_together(rows[~alone])
        self._try_alone(rows[alone], quota.copy())

    # -- screen ------------------------------------------------------------------------------------

    def _screen(self, rows: Indices) -> Indices:
        """Reject the rows that cannot help; returns the others.

        Rows rejected here get no `remove_pod` call, so an error from it is not reported.
        """
        if not self._rules.go_by_priority:
            return rows
        has_some = self._below.pod_count(rows) > 0
        self._verdicts[rows[~has_some]] = _NO_VICTIMS
        rows = rows[has_some]
        return self._without_lower(rows, self._screening) if self._screening else rows

    def _screening_plugins(self) -> list[FilterPlugin]:
        """The filters before the first that is not row-local; their order decides the status."""
        if self._rules.is_eligible is not None:
            return []
        framework = self._preemptor.framework
        if self._is_local:
            return framework.filter
        state, pod = self._preemptor.state, self._preemptor.pod.pod
        screening: list[FilterPlugin] = []
        for plugin in framework.filter:
            if plugin.name in state.skip_filter_plugins:
                continue
            if (
                not plugin.filters_columns
                or (isinstance(plugin, PreFilterPlugin) and plugin.has_extensions)
                or what_if_scope(plugin, state, pod) is Scope.CLUSTER
            ):
                break
            screening.append(plugin)
        return screening

    def _without_lower(self, rows: Indices, plugins: list[FilterPlugin] | None) -> Indices:
        """The rows that pass the filters without their pods of lower priority."""
        if not len(rows):
            return rows
        preemptor = self._preemptor
        view = without_lower(self._table, rows, self._below, preemptor.pod.priority)
        outcome = filter_what_if(preemptor, view, self._rivals, plugins)
        failing = np.flatnonzero(~outcome.passing)
        if len(failing):
            ids, statuses = outcome.classify(failing)
            self._verdicts[rows[failing]] = self._numbers_of(statuses)[ids]
        return rows[outcome.passing]

    def _numbers_of(self, statuses: Sequence[Status]) -> Ids:
        numbers: list[int] = []
        for status in statuses:
            if status not in self._statuses:
                self._statuses.append(status)
            numbers.append(self._statuses.index(status))
        return np.array(numbers, dtype=np.int32)

    # -- together and alone ------------------------------------------------------------------------

    def _must_be_tried_alone(self, rows: Indices) -> Mask:
        if self._is_local:
            return np.zeros(len(rows), dtype=np.bool_)
        if self._goes_alone:
            return np.ones(len(rows), dtype=np.bool_)
        caring = self._caring
        pods, priority = self._table.pods, self._preemptor.pod.priority
        alone = np.array(
            [
                any(caring.care(pod) for pod in pods[row].values() if pod.priority < priority)
                for row in rows.tolist()
            ],
            dtype=np.bool_,
        )
        if self._rivals is not None:
            for index in self._rivals.among(rows).tolist():
                alone[index] |= any(map(caring.care, self._rivals.pods_at(int(rows[index]))))
        return alone

    def _try_together(self, rows: Indices) -> None:
        if not self._is_local:
            rows = self._without_lower(rows, None)
        if not len(rows):
            return
        victims = self.victims_on(rows)
        for row in rows[victims.victim_count == 0].tolist():
            self._refuse(row, no_victim_on(self._table.names[row]))
        self._verdicts[rows[victims.victim_count > 0]] = _CANDIDATE
        is_lasting, criteria = victims.started_before_now, victims.criteria
        self._passing += rows[~is_lasting].tolist()
        is_now = is_lasting & (criteria[_STARTED] == self._preemptor.now_us)
        self._criteria[:, rows] = criteria
        self._criteria[_STARTED, rows[is_now]] = _NOW

    def _try_alone(self, rows: Indices, quota: Quota) -> None:
        """Stops when these candidates alone fill the quota: the search ends in this block."""
        for row in rows.tolist():
            name = self._table.names[row]
            victims = select_victims(self._preemptor, row, self._budgets, self._rules)
            if isinstance(victims, Status):
                self._refuse(row, victims)
            elif not victims.pods:
                self._refuse(row, no_victim_on(name))
            else:
                self._alone[row] = Candidate(name, victims)
                self._verdicts[row] = _CANDIDATE
                self._criteria[:, row] = criteria_of(victims, self._preemptor.now_us)
                quota.admit(-self._criteria[:1, row])
                if quota.is_filled:
                    break

    def _refuse(self, row: int, status: Status) -> None:
        self._verdicts[row] = len(self._statuses)
        self._statuses.append(status)
        self._passing.append(row)

    # -- candidates --------------------------------------------------------------------------------

    def criteria(self, rows: Indices) -> Ints:
        criteria = self._criteria[:, rows]
        started = criteria[_STARTED]
        started[started == _NOW] = self._preemptor.now_us
        return criteria

    def victims_on(self, rows: Indices) -> VictimColumns:
        """The victims on rows to be tried together. Not kept: only one candidate's are needed."""
        return VictimColumns(self._preemptor, rows, self._budgets)

    def candidates(self, rows: Indices) -> list[Candidate]:
        together = [row for row in rows.tolist() if row not in self._alone]
        found = self.victims_on(np.array(together)).candidates() if together else ()
        known = self._alone | dict(zip(together, found, strict=True))
        return [known[row] for row in rows.tolist()]


class _Chosen:
    """The admitted candidates as a shortlist: those without budget violations first."""

    def __init__(self, run: DryRun, rows: Indices) -> None:
        criteria = run.criteria(rows)
        violates = criteria[0] < 0
        if violates.any():
            order = np.argsort(violates, kind="stable")
            rows, criteria = rows[order], criteria[:, order]
        self._run = run
        self._rows = rows
        self.criteria = criteria

    def __len__(self) -> int:
        return len(self._rows)

    def candidate(self, index: int) -> Candidate:
        return self._run.candidates(self._rows[index : index + 1])[0]

    def candidates(self) -> list[Candidate]:
        return self._run.candidates(self._rows)
