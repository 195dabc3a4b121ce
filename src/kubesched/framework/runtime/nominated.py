"""Filtering with nominated pods in place.

A node on which room is being made for other pods must have room for them and for this pod. Where pods of equal or
higher priority are nominated, a node therefore has to pass twice: with them on it, and without.

While a wave of preemptions is under way thousands of nodes can have a nominated pod, so these pods are kept as columns
and, where the pod's filters allow, all such nodes are judged together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Nominator
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.runtime.filter import FilterOutcome, is_row_local, run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.pre_filter import run_add_pod
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Verdicts
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import CPU, EPHEMERAL_STORAGE, MEMORY, NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import BulkWhatIfColumns, NodeColumns

Indices = np.ndarray[Any, np.dtype[np.intp]]


class Rivals:
    """Nominated pods that a pod has to leave room for, by row."""

    __slots__ = ("_pods", "_requested", "_slots", "_table", "pod_count", "rows")

    def __init__(self, table: NodeTable, rows: Indices, pods: Sequence[PodInfo]) -> None:
        """The i-th of `pods` is nominated to the i-th of `rows`, which are in ascending order."""
        self._table = table
        self.rows, first, counts = np.unique(rows, return_index=True, return_counts=True)
        self.pod_count: Ints = counts.astype(np.int64)
        ends = np.append(first[1:], len(pods))
        self._pods = [pods[a:b] for a, b in zip(first.tolist(), ends.tolist(), strict=True)]
        self._requested: dict[int, Ints] = {}
        self._slots: Ints = np.full(table.high_water, -1, dtype=np.int64)
        self._slots[self.rows] = np.arange(len(self.rows))

    def among(self, rows: Indices) -> tuple[Indices, Indices]:
        """Which of the given rows have rivals: their indices, and for each which entry here is about it."""
        slots = self._slots[rows]
        indices = np.flatnonzero(slots >= 0)
        return indices, slots[indices]

    def requested(self, line: int) -> Ints:
        """What the rivals ask for, per entry."""
        known = self._requested.get(line)
        if known is None:
            amount = _amount_of(self._table, line)
            known = self._requested[line] = np.array(
                [sum([amount(pod) for pod in pods]) for pods in self._pods], dtype=np.int64
            )
        return known

    def pods_at(self, entry: int) -> Sequence[PodInfo]:
        return self._pods[entry]

    def columns(self, entries: Indices) -> BulkWhatIfColumns:
        """The live rows of these entries with the rivals on them."""
        return BulkWhatIfColumns(
            self._table,
            self.rows[entries],
            requested_delta=lambda line: self.requested(line)[entries],
            pods_delta=self.pod_count[entries],
            added=lambda index: self._pods[int(entries[index])],
        )


def _amount_of(table: NodeTable, line: int) -> Callable[[PodInfo], int]:
    if line == CPU:
        return lambda pod: pod.requests.milli_cpu
    if line == MEMORY:
        return lambda pod: pod.requests.memory
    if line == EPHEMERAL_STORAGE:
        return lambda pod: pod.requests.ephemeral_storage
    name = next(name for name, known in table.lines.items() if known == line)
    return lambda pod: pod.requests.scalars.get(name, 0)


class NominatedPods:
    """All nominated pods whose node exists; follows the nominator and the table."""

    def __init__(self, table: NodeTable, nominator: Nominator) -> None:
        self._table = table
        self._nominator = nominator
        self._position: tuple[int, int, int] | None = None
        self._pods: list[PodInfo] = []
        self._rows: Indices = np.zeros(0, dtype=np.intp)
        self._priorities: Ints = np.zeros(0, dtype=np.int64)
        self._uids: set[str] = set()
        self._rivals: dict[int, Rivals | None] = {}

    def rivals_of(self, pod: PodInfo) -> Rivals | None:
        """The pods of equal or higher priority, this one left out; None when there are none."""
        self._sync()
        if not self._pods:
            return None
        if pod.uid in self._uids:
            return self._find(pod)
        priority = pod.priority
        if priority not in self._rivals:
            self._rivals[priority] = self._find(pod)
        return self._rivals[priority]

    @property
    def version(self) -> int:
        return self._nominator.version

    def holds(self, uid: str) -> bool:
        """Is that pod nominated itself?"""
        return uid in self._uids

    def _find(self, pod: PodInfo) -> Rivals | None:
        chosen = [
            index
            for index in np.flatnonzero(self._priorities >= pod.priority).tolist()
            if self._pods[index].uid != pod.uid
        ]
        if not chosen:
            return None
        return Rivals(self._table, self._rows[chosen], [self._pods[index] for index in chosen])

    def _sync(self) -> None:
        table, nominator = self._table, self._nominator
        # A row count that has grown makes the look-up by row too short.
        position = (nominator.version, table.node_log.end, table.high_water)
        if position == self._position:
            return
        self._position = position
        self._rivals.clear()
        row_of = table.row_of
        found = [
            (row, name)
            for name in nominator.nominated_nodes()
            if (row := row_of.get(name)) is not None
        ]
        found.sort()
        self._pods, rows = [], []
        for row, name in found:
            pods = nominator.nominated_pods_for_node(name)
            self._pods += pods
            rows += [row] * len(pods)
        self._rows = np.array(rows, dtype=np.intp)
        self._priorities = np.array([pod.priority for pod in self._pods], dtype=np.int64)
        self._uids = {pod.uid for pod in self._pods}


def filter_with_nominated_pods(
    framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeColumns
) -> FilterOutcome:
    """Run the filters over live rows; those with nominated pods must pass with and without them."""
    outcome = run_filters(framework, state, pod.pod, nodes)
    if outcome.error is not None:
        return outcome
    contested = filter_contested(framework, state, pod, nodes)
    if contested is None:
        return outcome
    indices, with_rivals = contested
    if with_rivals.error is not None:
        outcome.error = with_rivals.error
    else:
        # Upstream: the pass with nominated pods comes first and its rejection is the one reported.
        outcome.overrule(indices, with_rivals)
    return outcome


def filter_contested(
    framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeColumns
) -> tuple[Indices, FilterOutcome] | None:
    """The first pass: which entries of a live view have rivals on them, and the verdicts on these with them in place."""
    rivals = rivals_of(framework, pod)
    if rivals is None:
        return None
    indices, entries = rivals.among(nodes.row_indices())
    if not len(indices):
        return None
    if is_row_local(framework, state):
        return indices, run_filters(framework, state, pod.pod, rivals.columns(entries))
    codes = np.zeros(len(indices), dtype=np.int32)
    statuses: list[Status] = []
    for at, (index, entry) in enumerate(zip(indices.tolist(), entries.tolist(), strict=True)):
        node = nodes.subset(np.array([index]))
        status = _filter_with(framework, state, pod, node, rivals.pods_at(entry))
        if status is not None:
            if not status.is_rejected:
                return indices, FilterOutcome(codes == 0, status)
            statuses.append(status)
            codes[at] = len(statuses)
    outcome = FilterOutcome(codes == 0)
    outcome.add("", Verdicts(codes, lambda code: statuses[code - 1]))
    return indices, outcome


def filter_node_with_nominated(
    framework: Framework,
    state: CycleState,
    pod: PodInfo,
    node: NodeColumns,
    plugins: list[FilterPlugin] | None = None,
) -> Status | None:
    """Both passes of the (given) plugins for a view of one node, which may be a what-if.

    None when the node passes; what broke is an Error status.
    """
    rivals = rivals_of(framework, pod)
    if rivals is not None:
        _, entries = rivals.among(node.row_indices())
        if len(entries):
            pods = rivals.pods_at(int(entries[0]))
            status = _filter_with(framework, state, pod, node, pods, plugins)
            if status is not None:
                return status
    outcome = run_filters(framework, state, pod.pod, node, plugins)
    return outcome.error or outcome.status_at(0)


def _filter_with(
    framework: Framework,
    state: CycleState,
    pod: PodInfo,
    node: NodeColumns,
    rivals: Sequence[PodInfo],
    plugins: list[FilterPlugin] | None = None,
) -> Status | None:
    """The verdict on one node with the rivals on it."""
    what_if_state = state.clone()
    view = node
    for rival in rivals:
        failed = run_add_pod(framework, what_if_state, pod.pod, rival, view)
        if failed is not None:
            return failed
        view = view.what_if(0, add=[rival])
    outcome = run_filters(framework, what_if_state, pod.pod, view, plugins)
    return outcome.error or outcome.status_at(0)


def rivals_of(framework: Framework, pod: PodInfo) -> Rivals | None:
    """Nominated pods this pod has to leave room for; None when there are none, or nobody nominates."""
    nominated = framework.nominated
    if nominated is None:
        nominator = framework.handle.nominator
        if nominator is None:
            return None
        nominated = framework.nominated = NominatedPods(framework.handle.table, nominator)
    return nominated.rivals_of(pod)


def nominations_version(framework: Framework, pod: PodInfo) -> int | None:
    """Changes when the rivals of such pods change; None for a pod that is nominated itself and so has its own."""
    if rivals_of(framework, pod) is None:
        return -1
    nominated = framework.nominated
    assert nominated is not None, "rivals are nominated pods"
    return None if nominated.holds(pod.uid) else nominated.version
