"""Victim selection on many nodes at once.

If every relevant filter judges a node by that node and its pods alone, or ignores the potential
victims, the what-ifs of different nodes are independent, and one array operation performs a step
for all of them:

    screen     drops rows without any pod of lower priority, using the table's sums by priority. No
               pod is read, so nodes that cannot help cost almost nothing
    reprieve   adds back the most important pod of each remaining row and filters all rows; pods
               without room are removed again. Then each row's second pod, and so on

The outcome equals `victims.select_victims` for each node.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kubesched.api.host_ports import HostPort
from kubesched.framework.extenders import Victims
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.columns import Indices, Ints, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_batch import amounts_of
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.priorities import Below
from kubesched.framework.nodes.views import BulkWhatIfColumns
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.candidates import PRIORITY_OFFSET, Candidate
from kubesched.framework.preemption.importance import NOT_STARTED, started_us
from kubesched.framework.preemption.victims import Preemptor
from kubesched.framework.runtime.filter import FilterOutcome, run_filters
from kubesched.framework.runtime.nominated import Rivals, rivals_of
from kubesched.framework.status import Status


class Broken(Exception):
    """A filter failed for some node of a block; evaluate node by node to find out which."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)


def filter_what_if(
    preemptor: Preemptor,
    view: BulkWhatIfColumns,
    rivals: Rivals | None,
    plugins: list[FilterPlugin] | None,
) -> FilterOutcome:
    """Filter what-if rows; rows with nominated pods must pass both with and without them.

    Raises:
        Broken: a filter failed.
    """
    outcome = _filtered(preemptor, view, plugins)
    if rivals is not None:
        indices = rivals.among(view.row_indices())
        if len(indices):
            contested = _with_rivals(view, rivals, indices)
            outcome.overrule(indices, _filtered(preemptor, contested, plugins))
    return outcome


def _filtered(
    preemptor: Preemptor, view: BulkWhatIfColumns, plugins: list[FilterPlugin] | None
) -> FilterOutcome:
    outcome = run_filters(preemptor.framework, preemptor.state, preemptor.pod.pod, view, plugins)
    if outcome.error is not None:
        raise Broken(outcome.error)
    return outcome


def _with_rivals(view: BulkWhatIfColumns, rivals: Rivals, indices: Indices) -> BulkWhatIfColumns:
    """The rows at these indices of a view, with their rivals added."""
    rows = view.row_indices()[indices]

    def delta(resource: int) -> Ints:
        less = view.requested_delta(resource)
        more = rivals.requested(resource, rows)
        return more if less is None else more + less[indices]

    return BulkWhatIfColumns(
        view.table,
        rows,
        requested_delta=delta,
        pods_delta=rivals.pod_count(rows) + view.pods_delta[indices],
        added=lambda index: rivals.pods_at(int(rows[index])),
        removed=lambda index: view.removed_at(int(indices[index])),
        ports=lambda index: view.ports_at(int(indices[index])).union(
            *(pod.host_ports for pod in rivals.pods_at(int(rows[index])))
        ),
        takers=lambda: range(len(rows)),
    )


def without_lower(
    table: NodeTable, rows: Indices, below: Below, priority: int
) -> BulkWhatIfColumns:
    """The rows without any pod below a priority."""

    def removed(index: int) -> list[PodInfo]:
        return [pod for pod in table.pods[int(rows[index])].values() if pod.priority < priority]

    return BulkWhatIfColumns(
        table,
        rows,
        requested_delta=lambda resource: -below.requested(resource, rows),
        pods_delta=-below.pod_count(rows),
        removed=removed,
    )


class VictimColumns:
    """The victims on some rows, as a shortlist.

    Every row has a potential victim, but may turn out to need none.
    """

    def __init__(self, preemptor: Preemptor, rows: Indices, budgets: Budgets) -> None:
        """The pod must fit the rows without their pods of lower priority.

        Raises:
            Broken: a filter failed.
        """
        self.rows = rows
        self._preemptor = preemptor
        self._rank()
        self._violating = self._find_violating(budgets)
        self._amounts, self._column_of = self._find_amounts()
        self._reprieve(rivals_of(preemptor.framework, preemptor.pod))
        self._summarize()

    # -- potential victims, most important first ---------------------------------------------------

    def _rank(self) -> None:
        """Flat columns over all potential victims, row after row, most important first."""
        preemptor = self._preemptor
        on_nodes = [
            preemptor.framework.handle.table.pods[row].values() for row in self.rows.tolist()
        ]
        lower = [[p for p in pods if p.priority < preemptor.pod.priority] for pods in on_nodes]
        self._counts: Indices = np.array([len(pods) for pods in lower], dtype=np.intp)
        assert self._counts.all(), "a row without possible victims was not screened out"
        listed = [pod for pods in lower for pod in pods]
        priority = np.array([pod.priority for pod in listed], dtype=np.int64)
        started = np.array([started_us(pod.pod) for pod in listed], dtype=np.int64)
        owner = np.repeat(np.arange(len(self.rows)), self._counts)
        counted_from = np.where(started == NOT_STARTED, preemptor.now_us, started)
        order = np.lexsort((counted_from, -priority, owner))
        self._pods = [listed[at] for at in order.tolist()]
        self._priority: Ints = priority[order]
        self._said_to_start: Ints = started[order]
        self._started: Ints = counted_from[order]
        self._owner: Indices = owner  # rows stay together
        self._first: Indices = np.cumsum(self._counts) - self._counts
        self._rank_of: Indices = np.arange(len(owner)) - self._first[owner]

    def _pods_of(self, index: int) -> list[PodInfo]:
        """The potential victims on the index-th row."""
        start = int(self._first[index])
        return self._pods[start : start + int(self._counts[index])]

    def _find_violating(self, budgets: Budgets) -> Mask | None:
        if budgets.is_empty:
            return None
        verdicts = [
            violates
            for index in range(len(self.rows))
            for violates in budgets.violated_by(self._pods_of(index))
        ]
        violating = np.array(verdicts, dtype=np.bool_)
        return violating if violating.any() else None

    def _find_amounts(self) -> tuple[Ints, dict[int, int]]:
        """Amounts that each pod frees, (pods, resources), and the column of each resource."""
        resource_index = self._preemptor.framework.handle.table.resource_index
        amounts = amounts_of(self._pods, resource_index)
        column_of = {resource: at for at, resource in enumerate(amounts)}
        return np.column_stack([*amounts.values()]), column_of

    # -- reprieve ----------------------------------------------------------------------------------

    def _reprieve(self, rivals: Rivals | None) -> None:
        """Add pods back in turn, on all rows at once: first those protected by a budget."""
        self._gone: Mask = np.ones(len(self._owner), dtype=np.bool_)
        self._requested_delta: Ints = -np.add.reduceat(self._amounts, self._first, axis=0)
        self._pods_delta: Ints = -self._counts.astype(np.int64)
        self._everywhere = self._view()
        turns = self._turns()
        by_turn = np.lexsort((self._owner, turns))
        start = 0
        for size in np.bincount(turns).tolist():
            self._let_back(by_turn[start : start + size], rivals)
            start += size

    def _turns(self) -> Indices:
        if self._violating is None:
            return self._rank_of
        order = np.lexsort((self._rank_of, ~self._violating, self._owner))
        turns = np.empty_like(self._rank_of)
        turns[order] = self._rank_of  # positions within a row start at 0 in both orders
        return turns

    def _let_back(self, pods: Indices, rivals: Rivals | None) -> None:
        """Add back one pod per given row; remove it again where the preemptor no longer fits."""
        at = self._owner[pods]
        self._requested_delta[at] += self._amounts[pods]
        self._pods_delta[at] += 1
        self._gone[pods] = False
        outcome = filter_what_if(
            self._preemptor,
            self._everywhere if len(at) == len(self.rows) else self._view(at),
            rivals,
            self._preemptor.caring.pod_dependent,
        )
        crowded = ~outcome.passing
        if crowded.any():
            pods, at = pods[crowded], at[crowded]
            self._requested_delta[at] -= self._amounts[pods]
            self._pods_delta[at] -= 1
            self._gone[pods] = True

    def _view(self, at: Indices | None = None) -> BulkWhatIfColumns:
        """A view of all rows that follows later changes of the sums, or a copy of some rows."""
        columns = self._column_of
        if at is None:
            delta, pods_delta, rows = self._requested_delta, self._pods_delta, self.rows
        else:
            delta, pods_delta = self._requested_delta[at], self._pods_delta[at]
            rows = self.rows[at]

        def requested_delta(resource: int) -> Ints | None:
            column = columns.get(resource)
            return None if column is None else delta[:, column]

        return BulkWhatIfColumns(
            self._preemptor.framework.handle.table,
            rows,
            requested_delta=requested_delta,
            pods_delta=pods_delta,
            removed=lambda index: self._gone_from(index if at is None else int(at[index])),
            ports=lambda index: self._ports_at(index if at is None else int(at[index])),
            takers=lambda: np.flatnonzero(
                self._holds_ports if at is None else self._holds_ports[at]
            ).tolist(),
        )

    @cached_property
    def _holds_ports(self) -> Mask:
        """Rows on which the ports in use depend on which pods are added back."""
        lower = (self._pods_of(index) for index in range(len(self.rows)))
        return np.array([any(pod.host_ports for pod in pods) for pods in lower], dtype=np.bool_)

    def _ports_at(self, index: int) -> set[HostPort]:
        """The ports in use on a row without the removed pods.

        Upstream's result for shared ports depends on the order of changes. This one does not: a pod
        that was added back and stayed holds no port that the preemptor wants.
        """
        ports = self._preemptor.framework.handle.table.ports_at(int(self.rows[index]))
        if self._holds_ports[index]:
            pods, gone = self._pods_of(index), self._gone_from(index)
            ports.difference_update(*(pod.host_ports for pod in pods))
            ports.update(*(pod.host_ports for pod in pods if pod not in gone))
        return ports

    def _gone_from(self, index: int) -> list[PodInfo]:
        start = int(self._first[index])
        gone = self._gone[start : start + int(self._counts[index])].tolist()
        return [pod for pod, is_gone in zip(self._pods_of(index), gone, strict=True) if is_gone]

    # -- the outcome -------------------------------------------------------------------------------

    def _summarize(self) -> None:
        """Compute the criteria of each row for the choice between candidates."""
        gone, first = self._gone, self._first
        priorities = self._priority
        lowest = np.iinfo(np.int64).min
        self.victim_count: Ints = -self._pods_delta
        violations: Ints = (
            np.zeros(len(self.rows), dtype=np.int64)
            if self._violating is None
            else np.add.reduceat((gone & self._violating).astype(np.int64), first)
        )
        highest = np.maximum.reduceat(np.where(gone, priorities, lowest), first)
        total = np.add.reduceat(np.where(gone, priorities + PRIORITY_OFFSET, 0), first)
        is_highest = gone & (priorities == highest[self._owner])
        earliest = np.minimum.reduceat(
            np.where(is_highest, self._started, np.iinfo(np.int64).max), first
        )
        self.criteria: Ints = np.stack(
            (-violations, -highest, -total, -self.victim_count, earliest)
        )

    @property
    def started_before_now(self) -> Mask:
        """Rows where all started victims started before now, so their order will not change."""
        latest: Ints = np.maximum.reduceat(self._said_to_start, self._first)
        return latest < self._preemptor.now_us

    def __len__(self) -> int:
        return len(self.rows)

    def candidate(self, index: int) -> Candidate:
        """The index-th row's node and its victims, most important first."""
        name = self._preemptor.framework.handle.table.names[int(self.rows[index])]
        pods = tuple(pod.pod for pod in self._gone_from(index))
        return Candidate(name, Victims(pods, -int(self.criteria[0, index])))

    def candidates(self) -> list[Candidate]:
        return [self.candidate(index) for index in range(len(self))]
