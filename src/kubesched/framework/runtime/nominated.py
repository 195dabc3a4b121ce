"""Filtering with nominated pods.

A node that is nominated for other pods of equal or higher priority (the *rivals* of this pod) must
have room for them too. But they may also be placed elsewhere, and a pod with affinity must not rely
on them. So such a node must pass twice: with the rivals on it, and without.

During a wave of preemptions thousands of nodes can have nominated pods. They are therefore kept as
columns and, where the pod's filters allow, all such nodes are evaluated together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Nominator
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.columns import Indices, Ints
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.priorities import PriorityIndex, RequestSums
from kubesched.framework.nodes.views import BulkWhatIfColumns, NodeColumns
from kubesched.framework.runtime.filter import CaringPlugins, FilterOutcome, run_filters
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.pre_filter import run_add_pod
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Verdicts

NO_NOMINATIONS: Final = -1
"""The nominations version if there are no rivals."""


class Rivals:
    """The nominated pods that need room besides a pod, by row.

    Valid until nominations or nodes change.
    """

    def __init__(self, nominated: NominatedPods, priority: int, own: PodInfo | None) -> None:
        """Pods of at least this priority, except `own`: the pod itself, if it is nominated too."""
        self._nominated = nominated
        self._priority = priority
        self._own = own
        self._requested: dict[int, Ints] = {}
        self._pod_count = nominated.sum_of(None, priority, own)

        self.rows: Indices = np.flatnonzero(self._pod_count)
        """The rows with rivals, in ascending order."""

    def among(self, rows: Indices) -> Indices:
        """Indices into `rows` of the rows that have rivals."""
        return np.flatnonzero(self._pod_count[rows])

    def pod_count(self, rows: Indices) -> Ints:
        return self._pod_count[rows]

    def requested(self, resource: int, rows: Indices) -> Ints:
        """The rivals' requests."""
        known = self._requested.get(resource)
        if known is None:
            known = self._nominated.sum_of(resource, self._priority, self._own)
            self._requested[resource] = known
        return known[rows]

    def pods_at(self, row: int) -> list[PodInfo]:
        return [
            pod
            for pod in self._nominated.pods_at(row)
            if pod.priority >= self._priority and pod is not self._own
        ]

    def columns(self, rows: Indices) -> BulkWhatIfColumns:
        """A view of these rows with the rivals on them."""
        return BulkWhatIfColumns(
            self._nominated.table,
            rows,
            requested_delta=lambda resource: self.requested(resource, rows),
            pods_delta=self.pod_count(rows),
            added=lambda index: self.pods_at(int(rows[index])),
        )


class NominatedPods:
    """All nominated pods on existing nodes, as sums by row and priority."""

    def __init__(self, table: NodeTable, nominator: Nominator) -> None:
        self.table = table
        self._nominator = nominator
        self._nodes = -1
        self._start()

    def _start(self) -> None:
        table = self.table
        self._version = self._nominator.version
        self._nodes, self._epoch = table.node_log.end, table.epoch
        self._sums = RequestSums(table.capacity)
        self._priorities = PriorityIndex(table.capacity, table.resource_index)
        self._held: dict[str, tuple[int, Sequence[PodInfo]]] = {}
        self._by_row: dict[int, Sequence[PodInfo]] = {}
        self._by_uid: dict[str, tuple[int, PodInfo]] = {}
        self._rivals: dict[int, Rivals | None] = {}
        for name in self._nominator.nominated_nodes():
            self._put(name)

    @property
    def version(self) -> int:
        return self._nominator.version

    def holds(self, uid: str) -> bool:
        """True if that pod is nominated."""
        return uid in self._by_uid

    def pods_at(self, row: int) -> Sequence[PodInfo]:
        return self._by_row.get(row, ())

    def rivals_of(self, pod: PodInfo) -> Rivals | None:
        """The other nominated pods of equal or higher priority; None if there are none."""
        self._sync()
        if not self._held:
            return None
        own = self._by_uid.get(pod.uid)
        if own is not None:
            rivals = Rivals(self, pod.priority, own[1])
            return rivals if len(rivals.rows) else None
        if pod.priority not in self._rivals:
            rivals = Rivals(self, pod.priority, None)
            self._rivals[pod.priority] = rivals if len(rivals.rows) else None
        return self._rivals[pod.priority]

    def sum_of(self, resource: int | None, priority: int, without: PodInfo | None) -> Ints:
        """Per row, requests (or for None, number) of the pods of at least that priority."""
        table, sums = self.table, self._sums
        rows = slice(0, table.high_water)
        below = self._priorities.below(priority, self.pods_at)
        if resource is None:
            total = sums.pod_count.array[rows] - below.pod_count(rows)
        elif resource in sums.requested:
            total = sums.requested[resource].array[rows] - below.requested(resource, rows)
        else:
            return np.zeros(table.high_water, dtype=np.int64)
        if without is not None and without.priority >= priority:
            asks = 1 if resource is None else without.requests.get(table.resource_name(resource))
            total[self._by_uid[without.uid][0]] -= asks
        return total

    def _sync(self) -> None:
        table, nominator = self.table, self._nominator
        if self._epoch != table.epoch:
            self._start()
            return
        has_same_nodes = self._nodes == table.node_log.end
        if has_same_nodes and self._version == nominator.version:
            return
        names: Iterable[str] | None = None
        if has_same_nodes:
            names = nominator.changes_since(self._version)
        if names is None:
            # Nodes with nominated pods may have been added, removed, or moved to another row.
            names = (*self._held, *nominator.nominated_nodes())
        changed = dict.fromkeys(names)
        self._version, self._nodes = nominator.version, table.node_log.end
        self._rivals.clear()
        for name in changed:
            self._take(name)
        for name in changed:
            self._put(name)

    def _put(self, name: str) -> None:
        row = self.table.row_of.get(name)
        pods = () if row is None else self._nominator.nominated_pods_for_node(name)
        if row is None or not pods:
            return
        self._held[name] = (row, pods)
        self._by_row[row] = pods
        for pod in pods:
            self._by_uid[pod.uid] = (row, pod)
            self._sums.add(pod, row, 1, self.table.resource_index)
            self._priorities.add(pod, row, 1)

    def _take(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is None:
            return
        row, pods = held
        del self._by_row[row]
        for pod in pods:
            # The pod may have been nominated to another node since, and be counted there.
            if self._by_uid.get(pod.uid, (None,))[0] == row:
                del self._by_uid[pod.uid]
            self._sums.add(pod, row, -1, self.table.resource_index)
            self._priorities.add(pod, row, -1)


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
    """The first pass: the entries of a live view with rivals, and verdicts with rivals added."""
    rivals = rivals_of(framework, pod)
    if rivals is None:
        return None
    rows = nodes.row_indices()
    indices = rivals.among(rows)
    if not len(indices):
        return None
    rows, caring = rows[indices], CaringPlugins(framework, state, pod.pod)
    pods = (pod for row in rows.tolist() for pod in rivals.pods_at(row))
    if caring.are_row_local or (caring.can_tell and not any(map(caring.care, pods))):
        outcome = run_filters(framework, state, pod.pod, rivals.columns(rows))
        if outcome.error is None or caring.are_row_local:
            return indices, outcome
    codes = np.zeros(len(indices), dtype=np.int32)
    statuses: list[Status] = []
    for at, row in enumerate(rows.tolist()):
        node = NodeColumns(nodes.table, np.array([row]))
        status = _filter_with(framework, state, pod, node, rivals.pods_at(row))
        if status is not None:
            if not status.is_rejected:
                return indices, FilterOutcome(codes == 0, status)
            statuses.append(status)
            codes[at] = len(statuses)
    outcome = FilterOutcome(codes == 0)
    outcome.add("", Verdicts.numbered(codes, statuses))
    return indices, outcome


def filter_node_with_nominated(
    framework: Framework,
    state: CycleState,
    pod: PodInfo,
    node: NodeColumns,
    plugins: list[FilterPlugin] | None = None,
) -> Status | None:
    """Both passes of the (given) plugins for a view of one node, which may be a what-if.

    None if the node passes; an Error status if a plugin failed.
    """
    rivals = rivals_of(framework, pod)
    if rivals is not None:
        pods = rivals.pods_at(node.row_at(0))
        if pods:
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
    """The nominated pods that need room besides this pod; None if there are none."""
    nominated: NominatedPods | None = framework.caches.get(NominatedPods)
    if nominated is None:
        nominator = framework.handle.nominator
        if nominator is None:
            return None
        nominated = NominatedPods(framework.handle.table, nominator)
        framework.caches[NominatedPods] = nominated
    return nominated.rivals_of(pod)


def is_nominated(framework: Framework, pod: PodInfo) -> bool:
    """True if the pod itself is nominated to an existing node."""
    rivals_of(framework, pod)  # synchronizes with the nominator
    nominated: NominatedPods | None = framework.caches.get(NominatedPods)
    return nominated is not None and nominated.holds(pod.uid)


def nominations_version(framework: Framework, pod: PodInfo) -> int | None:
    """Changes when the rivals of this class's pods change; None for a nominated pod."""
    if rivals_of(framework, pod) is None:
        return NO_NOMINATIONS
    nominated: NominatedPods = framework.caches[NominatedPods]
    return None if nominated.holds(pod.uid) else nominated.version
