"""Victims per node, kept between the preemptions of one class of pods.

Where every filter judges a node by that node and its pods, the victims on a node depend on nothing but the preemptor's
class, the row, the budgets, and the pods nominated to the node. So the outcome of the dry run is kept per row:

    verdict    unknown, no candidate, or candidate
    criteria   what the choice between candidates depends on
    victims    which of the row's pods would have to go

A preemption then evaluates the rows it visits that are unknown (`dry_run.victims_on`) and reads the others. Rows become
unknown when the table's logs or the nominator name them; a new set of budgets makes all rows unknown. The outcome equals
that of `dry_run.dry_run`, which remains the way for all other pods, and for the statuses of a pod without candidates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from kubesched.equivalence.basis import Basis, filter_rules, is_lasting
from kubesched.framework.extenders import Victims
from kubesched.framework.runtime.nominated import is_nominated
from kubesched.preemption.budgets import Budgets
from kubesched.preemption.candidates import CRITERIA, Candidate, Quota, Shortlist
from kubesched.preemption.dry_run import victims_on
from kubesched.preemption.row_pods import RowPods, RowPodsCache
from kubesched.preemption.search import Pace, Search, portions
from kubesched.preemption.victim_columns import Broken, VictimColumns
from kubesched.preemption.victims import Preemptor
from kubesched.snapshot.columns import Indices, Ints
from kubesched.snapshot.node_table import NodeTable

CLASS_LIMIT: Final = 64
"""Classes with kept victims at most; the oldest is dropped."""
BYTES_LIMIT: Final = 64 * 1024 * 1024
BYTES_PER_ROW: Final = 8 * CRITERIA + 1
"""Without the lists of victims, which only candidates have."""

_UNKNOWN, _NO_CANDIDATE, _CANDIDATE = 0, 1, 2
_STARTED: Final = CRITERIA - 1
"""The criterion that is a time."""
_NOW: Final = 2**63 - 1
"""In place of that time if no victim has started: whenever the choice is made."""


class KnownVictims:
    """Kept victims of all classes of one profile."""

    def __init__(self, table: NodeTable, row_pods: RowPodsCache, key: Hashable) -> None:
        """`key` is the key of the kept victims in the memo of a class."""
        self._table = table
        self._row_pods = row_pods
        self._key = key
        self._memos: deque[dict[Hashable, Any]] = deque()

    def find(
        self, preemptor: Preemptor, rows: Indices, wanted: int, budgets: Budgets
    ) -> Search[Shortlist | None]:
        """The candidates among the rows, in visiting order; None if there are none, or victims of this pod are not kept."""
        if not self._table.priorities.has_below(preemptor.pod.priority):
            return None
        kept = self._kept_for(preemptor, budgets)
        if kept is None:
            return None
        try:
            return (yield from kept.find(preemptor, rows, wanted, self._row_pods))
        except Broken:
            # A filter failed for some node: only the dry run tells whether that matters.
            return None

    def _kept_for(self, preemptor: Preemptor, budgets: Budgets) -> _ClassVictims | None:
        memo = preemptor.state.class_memo
        if memo is None or is_nominated(preemptor.framework, preemptor.pod):
            return None
        kept: _ClassVictims | None = memo.get(self._key)
        if kept is not None and kept.follow(preemptor, budgets):
            return kept
        if not preemptor.scopes.are_row_local:
            return None
        rules = filter_rules(preemptor.framework, preemptor.state, preemptor.pod.pod).values()
        if not all(is_lasting(rule) for rule in rules):
            return None
        if kept is None:
            self._make_room()
            self._memos.append(memo)
        kept = memo[self._key] = _ClassVictims(preemptor, Basis(self._table, rules), budgets)
        return kept

    def _make_room(self) -> None:
        fitting = BYTES_LIMIT // (BYTES_PER_ROW * max(self._table.capacity, 1))
        while len(self._memos) >= max(min(fitting, CLASS_LIMIT), 1):
            self._memos.popleft().pop(self._key, None)


class _ClassVictims:
    """The victims of one class, by row."""

    def __init__(self, preemptor: Preemptor, basis: Basis, budgets: Budgets) -> None:
        table = self._table = preemptor.framework.handle.table
        self._nominator = preemptor.framework.handle.nominator
        self._scopes = preemptor.scopes
        self._basis = basis
        self._skipped = preemptor.state.skip_filter_plugins
        self._budgets = budgets
        self._now_us = preemptor.now_us
        self._verdicts = np.zeros(table.capacity, dtype=np.int8)
        self._criteria: Ints = np.zeros((CRITERIA, table.capacity), dtype=np.int64)
        self._victims: dict[int, tuple[RowPods, list[int]]] = {}
        """By row: its pods, and the indices of those that would have to go."""
        self._passing: list[int] = []
        """Rows known for this preemption only: a pod there starts now or in the future, so time changes the order."""
        self._move_cursors()

    # -- what is known still ---------------------------------------------------------------------------------------

    def follow(self, preemptor: Preemptor, budgets: Budgets) -> bool:
        """Forget the rows that changed; False if nothing that is kept can be used."""
        if (
            budgets is not self._budgets
            or preemptor.now_us < self._now_us  # the clock was set back
            or not self._basis.holds()
            or self._skipped != preemptor.state.skip_filter_plugins
        ):
            return False
        self._now_us = preemptor.now_us
        preemptor.scopes = self._scopes
        table, nominator, row_of = self._table, self._nominator, self._table.row_of
        pod_rows, swapped = table.pod_log.since(self._pods), table.swap_log.since(self._swaps)
        names = () if nominator is None else nominator.changes_since(self._nominations)
        if pod_rows is None or swapped is None or names is None:
            return False
        rows = [*pod_rows, *swapped, *[row_of[name] for name in names if name in row_of]]
        rows += self._passing
        self._passing = []
        for row in rows:
            self._victims.pop(row, None)
        self._verdicts[rows] = _UNKNOWN
        self._move_cursors()
        return True

    def _move_cursors(self) -> None:
        table, nominator = self._table, self._nominator
        self._pods, self._swaps = table.pod_log.end, table.swap_log.end
        self._nominations = 0 if nominator is None else nominator.version

    # -- candidates ------------------------------------------------------------------------------------------------

    def find(
        self, preemptor: Preemptor, rows: Indices, wanted: int, row_pods: RowPodsCache
    ) -> Search[Shortlist | None]:
        """Raises `Broken` if a filter failed for some row."""
        verdicts, quota, admitted, pace = self._verdicts, Quota(wanted), [], Pace()
        left = rows[verdicts[rows] != _NO_CANDIDATE]
        size = max(wanted, 1)
        while len(left) and not quota.is_filled:
            block, left = left[:size], left[size:]
            unknown = block[verdicts[block] == _UNKNOWN]
            if len(unknown):
                for start, end, work in portions(self._table, unknown):
                    if pace.is_spent():
                        yield
                    part = unknown[start:end]
                    victims = victims_on(preemptor, part, self._budgets, row_pods)
                    self._learn(part, victims, preemptor.now_us)
                    pace.spend(work)
                block = block[verdicts[block] == _CANDIDATE]
            admitted.append(block[quota.admit(-self._criteria[0, block])])
            size *= 2
        chosen = np.concatenate(admitted) if admitted else rows[:0]
        return _Chosen(self, chosen, preemptor.now_us) if len(chosen) else None

    def _learn(self, rows: Indices, victims: VictimColumns | None, now_us: int) -> None:
        self._verdicts[rows] = _NO_CANDIDATE
        if victims is None:
            return
        helps, criteria = victims.victim_count > 0, victims.criteria
        self._verdicts[victims.rows[helps]] = _CANDIDATE
        is_lasting = victims.started_before_now
        started = criteria[_STARTED]
        self._criteria[:, victims.rows] = criteria
        self._criteria[_STARTED, victims.rows] = np.where(
            is_lasting & (started == now_us), _NOW, started
        )
        self._passing += victims.rows[~is_lasting].tolist()
        self._victims.update(zip(victims.rows.tolist(), victims.victims(), strict=True))

    def criteria(self, rows: Indices, now_us: int) -> Ints:
        criteria = self._criteria[:, rows]
        started = criteria[_STARTED]
        started[started == _NOW] = now_us
        return criteria

    def candidate(self, row: int) -> Candidate:
        pods, gone = self._victims[row]
        victims = tuple(pods.pods[index].pod for index in gone)
        return Candidate(self._table.names[row], Victims(victims, -int(self._criteria[0, row])))


class _Chosen:
    """The admitted candidates as a shortlist: those without budget violations first."""

    def __init__(self, kept: _ClassVictims, rows: Indices, now_us: int) -> None:
        criteria = kept.criteria(rows, now_us)
        violates = criteria[0] < 0
        if violates.any():
            order = np.argsort(violates, kind="stable")
            rows, criteria = rows[order], criteria[:, order]
        self._kept = kept
        self._rows = rows
        self.criteria = criteria

    def __len__(self) -> int:
        return len(self._rows)

    def candidate(self, index: int) -> Candidate:
        return self._kept.candidate(int(self._rows[index]))
