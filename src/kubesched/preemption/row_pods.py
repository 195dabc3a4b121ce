"""The pods of each row as numbers, for selecting victims on many nodes at once.

Cached per row and invalidated by the row logs, so that between two preemptions only a few rows are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from kubesched.preemption.importance import NOT_STARTED, started_us
from kubesched.snapshot.columns import Indices, Ints, Rows
from kubesched.snapshot.node_table import CPU, EPHEMERAL_STORAGE, MEMORY, NodeTable
from kubesched.snapshot.pods import PodInfo

PRIORITY: Final = 0
STARTED: Final = 1
"""Microseconds since the epoch, or NOT_STARTED."""
FIRST_RESOURCE: Final = 2
"""Columns from here on: requests of the native resources, in the order of the table's resource index."""
_COLUMNS: Final = FIRST_RESOURCE + 3
assert (CPU, MEMORY, EPHEMERAL_STORAGE) == (0, 1, 2), (
    "the columns follow the table's resource index"
)


@dataclass(frozen=True, slots=True, eq=False)
class RowPods:
    """One row's pods and their numbers, (pods, columns), the most important first.

    Pods without a start time come after all others of their priority.
    """

    pods: Sequence[PodInfo]
    numbers: Ints
    has_scalars: bool


class RowPodsCache:
    """`RowPods` by row, filled on demand."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: dict[int, RowPods] = {}
        self._pod_cursor = table.pod_log.end
        self._swap_cursor = table.swap_log.end

    def of(self, rows: Sequence[int]) -> list[RowPods]:
        """The pods of some rows, as they are now."""
        self._forget_changed()
        known = self._known
        missing = [row for row in rows if row not in known]
        if missing:
            self._read(missing)
        return [known[row] for row in rows]

    def _forget_changed(self) -> None:
        table, known = self._table, self._known
        for changed in (
            table.pod_log.since(self._pod_cursor),
            table.swap_log.since(self._swap_cursor),
        ):
            if changed is None:
                known.clear()
            else:
                for row in changed:
                    known.pop(row, None)
        self._pod_cursor, self._swap_cursor = table.pod_log.end, table.swap_log.end

    def _read(self, rows: Sequence[int]) -> None:
        """Read all rows into one array: creating an array costs about as much as reading ten pods."""
        table = self._table
        numbers: list[int] = []
        sorted_rows: list[tuple[int, list[PodInfo], bool]] = []
        for row in rows:
            pods = sorted(table.pods[row].values(), key=_rank)
            has_scalars = False
            for pod in pods:
                requests = pod.requests
                has_scalars = has_scalars or bool(requests.scalars)
                numbers += (
                    pod.priority,
                    started_us(pod.pod),
                    requests.milli_cpu,
                    requests.memory,
                    requests.ephemeral_storage,
                )
            sorted_rows.append((row, pods, has_scalars))
        matrix = np.array(numbers, dtype=np.int64).reshape(-1, _COLUMNS)
        start = 0
        for row, pods, has_scalars in sorted_rows:
            end = start + len(pods)
            self._known[row] = RowPods(pods, matrix[start:end], has_scalars=has_scalars)
            start = end


def _rank(pod: PodInfo) -> tuple[int, float]:
    started = started_us(pod.pod)
    return -pod.priority, inf if started == NOT_STARTED else started


class CountedBelow:
    """The interface of `snapshot.priorities.Below`, counted pod by pod: for clusters with too many priorities."""

    def __init__(
        self, table: NodeTable, rows: Indices, pods: Sequence[RowPods], priority: int
    ) -> None:
        """`pods` belong to `rows`, in the same order. Other rows must not be read."""
        self._table = table
        self._priority = priority
        self._pods = pods
        self._rows = rows
        numbers = np.concatenate([row_pods.numbers for row_pods in pods])
        owner = np.repeat(rows, [len(row_pods.pods) for row_pods in pods])
        lower = numbers[:, PRIORITY] < priority
        self._numbers, self._owner = numbers[lower], owner[lower]

    def pod_count(self, rows: Rows) -> Ints:
        return np.bincount(self._owner, minlength=self._table.high_water)[rows]

    def requested(self, resource: int, rows: Rows) -> Ints:
        sums = np.zeros(self._table.high_water, dtype=np.int64)
        if resource < _COLUMNS - FIRST_RESOURCE:
            np.add.at(sums, self._owner, self._numbers[:, FIRST_RESOURCE + resource])
            return sums[rows]
        name = self._table.resource_name(resource)
        for row, row_pods in zip(self._rows.tolist(), self._pods, strict=True):
            if row_pods.has_scalars:
                sums[row] = sum(
                    pod.requests.scalars.get(name, 0)
                    for pod in row_pods.pods
                    if pod.priority < self._priority
                )
        return sums[rows]
