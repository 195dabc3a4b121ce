"""Fragmentation: the share of free resources that cannot be used.

- *GPU fragmentation* as published with FGD ("Beware of Fragmentation", USENIX ATC 2023): the free
  GPU capacity that a random pod of the workload could not use, as a share of all free GPU capacity.
  For a pod class m and a node n, F(n, m) is all free capacity of the node's GPUs if the node cannot
  host m (too little cpu, memory or GPU, or the wrong model) or m requests no GPU; otherwise it is
  what is left on devices with less room than m requests of one. A node's fragmentation is the mean
  of F over the classes, weighted by their frequency in the trace.
- *Plain*: the share of a free resource on partly used nodes, where pods that need an empty node do
  not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.resources import pod_requests
from kubesched.framework.nodes.node_table import CPU, MEMORY, NodeTable
from kubesched.lab.traces.gpu_share import WHOLE, GpuLedger, wanted_milli

MOST_CLASSES = 256
"""Most frequent classes that are weighed; openb has fewer."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods with equal requests."""

    milli_cpu: int
    memory: int
    gpu_milli: int
    node_label: tuple[str, frozenset[str]] | None
    """A required node label and its values; None if any node matches."""


def class_of(pod: Pod) -> PodClass:
    requests = pod_requests(pod)
    label = None
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if required:
        wanted = (required.node_selector_terms or [])[0].match_expressions or []
        label = (wanted[0].key, frozenset(wanted[0].values or ()))
    return PodClass(requests.milli_cpu, requests.memory, wanted_milli(pod), label)


class GpuFragmentation:
    """The published measure over the nodes of a table; recomputes only changed rows."""

    def __init__(self, pods: Iterable[Pod], table: NodeTable, ledger: GpuLedger) -> None:
        counts = Counter(class_of(pod) for pod in pods).most_common(MOST_CLASSES)
        total = sum(count for _, count in counts)
        self._classes = [pod_class for pod_class, _ in counts]
        self._weights = [count / total for _, count in counts]
        self._table = table
        self._ledger = ledger
        self._by_row: Floats = np.zeros(0)
        self._cursor: int | None = None

    def rate(self) -> float:
        """Fragmented GPU capacity as a share of the free one; 0 if none is free."""
        self._refresh()
        left = self._ledger.left
        free = int(left.sum())
        return float(self._by_row[: len(left)].sum()) / free if free else 0.0

    def _refresh(self) -> None:
        table, size = self._table, len(self._ledger.left)
        changed = table.pod_log.since(self._cursor) if self._cursor is not None else None
        if changed is None or len(self._by_row) != size:
            self._by_row = np.zeros(size)
            rows = np.flatnonzero(table.alive[:size])
        else:
            rows = np.array(sorted({row for row in changed if row < size}), dtype=np.intp)
        self._cursor = table.pod_log.end
        if len(rows):
            self._by_row[rows] = self._of(rows)

    def _of(self, rows: npt.NDArray[np.intp]) -> Floats:
        table = self._table
        left = self._ledger.left[rows]
        free = left.sum(axis=1)
        cpu = table.allocatable[CPU].array[rows] - table.requested[CPU].array[rows]
        memory = table.allocatable[MEMORY].array[rows] - table.requested[MEMORY].array[rows]
        nodes = [table.nodes[row] for row in rows.tolist()]
        result = np.zeros(len(rows))
        for pods, weight in zip(self._classes, self._weights, strict=True):
            result += weight * fragment(pods, cpu, memory, left, free, _allowed(pods, nodes))
        result[~table.alive[rows]] = 0.0
        return result


def fragment(
    pods: PodClass, cpu: Ints, memory: Ints, left: Ints, free: Ints, allowed: npt.NDArray[np.bool_]
) -> Ints:
    """F(n, m) for one class over nodes. Shapes: left (nodes, devices), all others (nodes,)."""
    milli = pods.gpu_milli
    if not milli:
        return free
    share = min(milli, WHOLE)
    usable = left >= share
    enough = usable.sum(axis=1) * share >= milli
    hosts = allowed & enough & (cpu >= pods.milli_cpu) & (memory >= pods.memory)
    return np.where(hosts, np.where(usable, 0, left).sum(axis=1), free)


def _allowed(pods: PodClass, nodes: Sequence[Node | None]) -> npt.NDArray[np.bool_]:
    if pods.node_label is None:
        return np.ones(len(nodes), dtype=np.bool_)
    key, values = pods.node_label
    return np.array(
        [node is not None and (node.metadata.labels or {}).get(key) in values for node in nodes],
        dtype=np.bool_,
    )


def plain(free: Ints, is_used: npt.NDArray[np.bool_]) -> float:
    """Share of the free amount of a resource on used nodes; 0 if nothing is free."""
    total = int(free.sum())
    return int(free[is_used].sum()) / total if total else 0.0
