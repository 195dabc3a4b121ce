"""The potential victims on some nodes as arrays, for evaluating many nodes at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.framework.nodes.columns import Indices, Ints
from kubesched.framework.nodes.node_table import CPU, EPHEMERAL_STORAGE, MEMORY, NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.preemption.importance import started_us

NATIVE_RESOURCES: Final = 3
assert (CPU, MEMORY, EPHEMERAL_STORAGE) == (0, 1, 2), "amounts follow the table's resource index"


class LowerPods:
    """The pods below a priority on some rows: row after row, in table order."""

    def __init__(self, table: NodeTable, rows: Indices, priority: int) -> None:
        pods: list[PodInfo] = []
        counts: list[int] = []
        for row in rows.tolist():
            lower = [pod for pod in table.pods[row].values() if pod.priority < priority]
            pods += lower
            counts.append(len(lower))
        requests = [pod.requests for pod in pods]
        self.pods = pods
        self.counts: Indices = np.array(counts, dtype=np.intp)
        """Number of pods per row."""
        self.priority: Ints = np.array([pod.priority for pod in pods], dtype=np.int64)
        self.started: Ints = np.array([started_us(pod.pod) for pod in pods], dtype=np.int64)
        self.amounts: Ints = np.array(
            (
                [request.milli_cpu for request in requests],
                [request.memory for request in requests],
                [request.ephemeral_storage for request in requests],
            ),
            dtype=np.int64,
        )
        """Requests, (resources, pods), in the order of the table's resource index."""
        self.have_scalars = any(request.scalars for request in requests)
