"""Preemption results per node, cached for the pods of one class.

If every filter judges a node by that node and its pods, the dry run's outcome on a node depends
only on the preemptor's class, the row, the pods nominated to the node and, for the comparison of
candidates, the budgets. So it is cached per row:

    row        0           1            2          3
    verdict    candidate   no victims   unknown    Insufficient cpu
    criteria   0 -5 ..     -            -          -

A preemption evaluates the unknown rows among those it visits, and reads the others. Rows become
unknown when the table's logs or the nominator name them; new budgets make candidates unknown. The
outcome equals that of `dry_run.dry_run`, which handles all other pods.

A class without any candidate is retried after each event that may help. The cached verdicts are
then the answer, after the few changed rows have been evaluated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.framework.basis import Basis, filter_rules, is_lasting
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.columns import Ids, Indices, Ints
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.candidates import CRITERIA, Candidate, Quota, Shortlist
from kubesched.framework.preemption.dry_run import victims_on
from kubesched.framework.preemption.victim_columns import Broken, VictimColumns
from kubesched.framework.preemption.victims import Preemptor
from kubesched.framework.runtime.nominated import is_nominated
from kubesched.framework.status import Status

BYTES_LIMIT: Final = 64 * 1024 * 1024
"""Limit for all classes; the oldest class is dropped."""
BYTES_PER_ROW: Final = 8 * CRITERIA + 4
STATUS_LIMIT: Final = 1000
"""Limit of distinct verdicts per class; above it, all of them are dropped."""

_UNKNOWN, _CANDIDATE = -1, -2
"""Verdicts below 0; others are status numbers."""
_STARTED: Final = CRITERIA - 1
"""The criterion that is a time."""
_NOW: Final = 2**63 - 1
"""Replaces that time if no victim has started: the time of the choice."""


class KnownVictims:
    """The cached results for all classes of one profile."""

    def __init__(self, table: NodeTable, key: Hashable) -> None:
        """`key` is the key of the cached results in a class's memo."""
        self._table = table
        self._key = key
        self._memos: deque[dict[Hashable, Any]] = deque()

    def of(self, preemptor: Preemptor, budgets: Budgets) -> ClassVictims | None:
        """The cached results for the preemptor's class; None if they cannot be cached."""
        memo = preemptor.state.class_memo
        if memo is None or is_nominated(preemptor.framework, preemptor.pod):
            return None
        known: ClassVictims | None = memo.get(self._key)
        if known is not None and known.follow(preemptor, budgets):
            return known
        if not preemptor.scopes.are_row_local:
            return None
        rules = filter_rules(preemptor.framework, preemptor.state, preemptor.pod.pod).values()
        if not all(is_lasting(rule) for rule in rules):
            return None
        if known is None:
            self._make_room()
            self._memos.append(memo)
        nominator = preemptor.framework.handle.nominator
        basis = Basis(self._table, rules, nominator=nominator, follows_swaps=True)
        known = memo[self._key] = ClassVictims(preemptor, basis, budgets)
        return known

    def _make_room(self) -> None:
        fitting = BYTES_LIMIT // (BYTES_PER_ROW * max(self._table.capacity, 1))
        while len(self._memos) >= max(fitting, 1):
            self._memos.popleft().pop(self._key, None)


class ClassVictims:
    """The cached results for one class, by row."""

    def __init__(self, preemptor: Preemptor, basis: Basis, budgets: Budgets) -> None:
        table = self._table = preemptor.framework.handle.table
        self._scopes = preemptor.scopes
        self._basis = basis
        self._skipped = preemptor.state.skip_filter_plugins
        self._now_us = preemptor.now_us
        self._budgets = budgets
        self._verdicts: Ids = np.full(table.capacity, _UNKNOWN, dtype=np.int32)
        self._statuses: list[Status] = []
        self._criteria: Ints = np.zeros((CRITERIA, table.capacity), dtype=np.int64)
        self._passing: list[int] = []
        """Candidates for this preemption only: the order of their pods changes with time."""
        self._is_hopeless = False
        """True if the last evaluation found no candidate."""

    # -- invalidation ----------------------------------------------------------------------------

    def follow(self, preemptor: Preemptor, budgets: Budgets) -> bool:
        """Mark changed rows as unknown; False if no cached result can be used."""
        rows = self._basis.dirty_rows()
        if rows is None or not self._basis.holds() or len(self._statuses) > STATUS_LIMIT:
            return False
        if self._skipped != preemptor.state.skip_filter_plugins:
            return False
        if budgets is not self._budgets or preemptor.now_us < self._now_us:
            # New budgets, or the clock was set back: candidates compare differently.
            self._verdicts[self._verdicts == _CANDIDATE] = _UNKNOWN
        self._verdicts[[*rows, *self._passing]] = _UNKNOWN
        self._passing = []
        preemptor.scopes = self._scopes
        self._now_us, self._budgets = preemptor.now_us, budgets
        self._basis.settle()
        return True

    # -- candidates ------------------------------------------------------------------------------

    def still_none(self, preemptor: Preemptor, rows: Indices) -> NodeStatusColumns | None:
        """The verdicts on the rows, if there was no candidate last time and there is none now.

        The order of the rows does not matter then, so the caller need not draw one.
        """
        found = self.find(preemptor, rows, len(rows)) if self._is_hopeless else None
        return found if isinstance(found, NodeStatusColumns) else None

    def find(
        self, preemptor: Preemptor, rows: Indices, wanted: int
    ) -> Shortlist | NodeStatusColumns | None:
        """The candidates among the rows, in visiting order, or the verdicts if there are none.

        None if a dry run is needed: a filter failed for some row, or the pod needs no victim there.
        """
        try:
            chosen = self._choose(preemptor, rows, wanted)
        except Broken:
            return None
        verdicts = self._verdicts[rows]
        self._is_hopeless = not len(chosen) and bool((verdicts >= 0).all())
        if self._is_hopeless:
            return NodeStatusColumns(self._table, rows, verdicts, [*self._statuses])
        return _Chosen(self, preemptor, chosen) if len(chosen) else None

    def _choose(self, preemptor: Preemptor, rows: Indices, wanted: int) -> Indices:
        verdicts, quota, admitted = self._verdicts, Quota(wanted), [rows[:0]]
        left = rows[verdicts[rows] < 0]
        size = max(wanted, 1)
        while len(left) and not quota.is_filled:
            block, left = left[:size], left[size:]
            unknown = block[verdicts[block] == _UNKNOWN]
            if len(unknown):
                self._learn(preemptor, unknown)
                block = block[verdicts[block] == _CANDIDATE]
            admitted.append(block[quota.admit(-self._criteria[0, block])])
            size *= 2
        return np.concatenate(admitted)

    def _learn(self, preemptor: Preemptor, rows: Indices) -> None:
        """Evaluate rows. Rows where the pod fits without a victim stay unknown."""
        victims, rejected = victims_on(preemptor, rows, self._budgets)
        self._verdicts[rejected.rows] = self._numbers_of(rejected.statuses)[rejected.ids]
        if victims is None:
            return
        self._verdicts[victims.rows[victims.victim_count > 0]] = _CANDIDATE
        is_lasting, criteria = victims.started_before_now, victims.criteria
        self._passing += victims.rows[~is_lasting].tolist()
        is_now = is_lasting & (criteria[_STARTED] == preemptor.now_us)
        self._criteria[:, victims.rows] = criteria
        self._criteria[_STARTED, victims.rows[is_now]] = _NOW

    def _numbers_of(self, statuses: Sequence[Status]) -> Ids:
        numbers: list[int] = []
        for status in statuses:
            if status not in self._statuses:
                self._statuses.append(status)
            numbers.append(self._statuses.index(status))
        return np.array(numbers, dtype=np.int32)

    def criteria(self, rows: Indices) -> Ints:
        criteria = self._criteria[:, rows]
        started = criteria[_STARTED]
        started[started == _NOW] = self._now_us
        return criteria

    def victims_on(self, preemptor: Preemptor, rows: Indices) -> VictimColumns:
        """The victims on some candidates. Not cached: usually only one candidate's are needed."""
        return VictimColumns(preemptor, rows, self._budgets)


class _Chosen:
    """The admitted candidates as a shortlist: those without budget violations first."""

    def __init__(self, known: ClassVictims, preemptor: Preemptor, rows: Indices) -> None:
        criteria = known.criteria(rows)
        violates = criteria[0] < 0
        if violates.any():
            order = np.argsort(violates, kind="stable")
            rows, criteria = rows[order], criteria[:, order]
        self._known = known
        self._preemptor = preemptor
        self._rows = rows
        self.criteria = criteria

    def __len__(self) -> int:
        return len(self._rows)

    def candidate(self, index: int) -> Candidate:
        row = self._rows[index : index + 1]
        return self._known.victims_on(self._preemptor, row).candidate(0)

    def candidates(self) -> list[Candidate]:
        return self._known.victims_on(self._preemptor, self._rows).candidates()
