"""Why preemption helps a class of pods on no node, kept up to date.

A class that fits nowhere is tried again whenever something changes, and mostly nothing has changed for preemption: one row of
thousands is dirty. Where every filter judges a node by that node and its pods, the verdict of the dry run on a node depends on the
class, the row and the pods nominated to it, so only dirty rows are evaluated again. Budgets and start times do not matter: they
rank candidates, but do not make one.

    row             0           1             2           3
    filters         unsched.    unresolvable  unsched.    unsched.
    dry run         no victims  -             no victims  Insufficient cpu
    kept verdict    no victims  not helpful   no victims  Insufficient cpu       dirty rows: evaluated again

If a dirty row turns out to be a candidate, what is kept is dropped, and the caller looks for candidates on all rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.equivalence.basis import Basis, filter_rules, is_lasting
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.row_statuses import NO_VERDICT, RowStatuses
from kubesched.framework.runtime.nominated import is_nominated
from kubesched.framework.status import Code, NodeToStatus, unresolvable
from kubesched.preemption.budgets import Budgets
from kubesched.preemption.dry_run import dry_run
from kubesched.preemption.row_pods import RowPodsCache
from kubesched.preemption.search import Search
from kubesched.preemption.victims import USUAL_RULES, Preemptor
from kubesched.snapshot.columns import Ids, Indices
from kubesched.snapshot.node_table import NodeTable

NOT_HELPFUL: Final = unresolvable("Preemption is not helpful for scheduling")
"""The verdict on nodes that the filters reject for good."""
BYTES_LIMIT: Final = 64 * 1024 * 1024
"""For the verdicts of all classes; the oldest class is dropped."""
BYTES_PER_ROW: Final = 4
FEW_ROWS: Final = 64
"""With more dirty rows than this, and than a quarter of all rows, a dry run over all rows is as cheap."""


class KeptVerdicts:
    """The verdicts of all classes of one profile that have no candidate."""

    def __init__(self, table: NodeTable, row_pods: RowPodsCache, key: Hashable) -> None:
        """`key` is the key of the verdicts in the memo of a class."""
        self._table = table
        self._row_pods = row_pods
        self._key = key
        self._memos: deque[dict[Hashable, Any]] = deque()

    def recall(
        self, preemptor: Preemptor, statuses: NodeToStatus, budgets: Budgets
    ) -> Search[NodeToStatus | None]:
        """The verdicts on all nodes; None if there may be a candidate, or nothing is kept for this pod."""
        memo = preemptor.state.class_memo
        kept: _ClassVerdicts | None = None if memo is None else memo.get(self._key)
        if memo is None or kept is None or is_nominated(preemptor.framework, preemptor.pod):
            return None
        verdicts = yield from kept.follow(preemptor, statuses, budgets, self._row_pods)
        if verdicts is None:
            memo[self._key] = None
        return verdicts

    def keep(self, preemptor: Preemptor, verdicts: NodeToStatus) -> None:
        """After a dry run over all rows that found no candidate and no error."""
        memo = preemptor.state.class_memo
        if (
            memo is None
            or not isinstance(verdicts, NodeStatusColumns)
            or is_nominated(preemptor.framework, preemptor.pod)
            or not preemptor.scopes.are_row_local
        ):
            return
        rules = filter_rules(preemptor.framework, preemptor.state, preemptor.pod.pod).values()
        if not all(is_lasting(rule) for rule in rules):
            return
        if self._key not in memo:
            self._make_room()
            self._memos.append(memo)
        memo[self._key] = _ClassVerdicts(preemptor, Basis(self._table, rules), verdicts)

    def _make_room(self) -> None:
        fitting = BYTES_LIMIT // (BYTES_PER_ROW * max(self._table.capacity, 1))
        while len(self._memos) >= max(fitting, 1):
            self._memos.popleft().pop(self._key, None)


class _ClassVerdicts:
    """The verdicts of one class, in row order."""

    def __init__(self, preemptor: Preemptor, basis: Basis, verdicts: NodeStatusColumns) -> None:
        self._table = preemptor.framework.handle.table
        self._nominator = preemptor.framework.handle.nominator
        self._scopes = preemptor.scopes
        self._basis = basis
        self._skipped = preemptor.state.skip_filter_plugins
        self._verdicts = _over_all_rows(self._table, verdicts)
        self._pods, self._swaps, self._nominations = self._ends()

    def _ends(self) -> tuple[int, int, int]:
        nominations = 0 if self._nominator is None else self._nominator.version
        return self._table.pod_log.end, self._table.swap_log.end, nominations

    def follow(
        self, preemptor: Preemptor, statuses: NodeToStatus, budgets: Budgets, row_pods: RowPodsCache
    ) -> Search[NodeToStatus | None]:
        """The verdicts as they are now; None if only a dry run over all rows can tell them."""
        if (
            not self._basis.holds()
            or self._skipped != preemptor.state.skip_filter_plugins
            or not isinstance(statuses, NodeStatusColumns)
        ):
            return None
        dirty = self._dirty_rows()
        if dirty is None:
            return None
        ends = self._ends()  # what changes while the search is suspended is dirty the next time
        if len(dirty):
            preemptor.scopes = self._scopes
            renewed = yield from self._renewed(dirty, preemptor, statuses, budgets, row_pods)
            if renewed is None:
                return None
            self._verdicts = renewed
        self._pods, self._swaps, self._nominations = ends
        return self._verdicts

    def _dirty_rows(self) -> Indices | None:
        """Rows that changed or were nominated, in ascending order; None if these are too many."""
        table, nominator, row_of = self._table, self._nominator, self._table.row_of
        pods, swapped = table.pod_log.since(self._pods), table.swap_log.since(self._swaps)
        names: Sequence[str] | None = ()
        if nominator is not None and nominator.version != self._nominations:
            names = nominator.changes_since(self._nominations)
        if pods is None or swapped is None or names is None:
            return None
        rows = {*pods, *swapped, *[row_of[name] for name in names if name in row_of]}
        if len(rows) > max(FEW_ROWS, table.high_water // 4):
            return None
        return np.array(sorted(rows), dtype=np.intp)

    def _renewed(
        self,
        dirty: Indices,
        preemptor: Preemptor,
        statuses: NodeStatusColumns,
        budgets: Budgets,
        row_pods: RowPodsCache,
    ) -> Search[RowStatuses | None]:
        ids: Ids = np.full(len(dirty), NO_VERDICT, dtype=np.int32)
        distinct = [NOT_HELPFUL]
        is_alive = self._table.alive[dirty]
        ids[is_alive] = 0
        alive = np.flatnonzero(is_alive)
        tried = alive[statuses.has_code(dirty[alive], Code.UNSCHEDULABLE)]
        if len(tried):
            done = yield from dry_run(
                preemptor, dirty[tried], len(tried), budgets, row_pods, USUAL_RULES
            )
            if done.shortlist is not None or done.errors:
                return None
            verdicts = done.statuses()
            ids[tried] = verdicts.ids + 1
            distinct += verdicts.statuses
        return self._verdicts.replaced(dirty, ids, distinct)


def _over_all_rows(table: NodeTable, verdicts: NodeStatusColumns) -> RowStatuses:
    """With a verdict for every node: that of nodes that were not tried is the same for all."""
    ids = np.zeros(table.high_water, dtype=np.int32)
    ids[verdicts.rows] = verdicts.ids + 1
    rows = np.flatnonzero(table.alive[: table.high_water])
    all_rows = NodeStatusColumns(table, rows, ids[rows], [NOT_HELPFUL, *verdicts.statuses])
    over_all = RowStatuses.of(table, all_rows)
    assert over_all is not None, "these verdicts are not by name"
    return over_all
