"""The pods of each row as numbers: what choosing victims on many nodes at once reads of them.

Kept per row and dropped when the row changes, so that between two preemptions only a few rows are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kubesched.preemption.importance import NOT_STARTED, started_us
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import CPU, EPHEMERAL_STORAGE, MEMORY, NodeTable
from kubesched.snapshot.pods import PodInfo

PRIORITY: Final = 0
STARTED: Final = 1
"""Microseconds since the epoch, or NOT_STARTED."""
FIRST_LINE: Final = 2
"""Columns from here on: requests of the native resources, in the order of the table's lines."""
_COLUMNS: Final = FIRST_LINE + 3
assert (CPU, MEMORY, EPHEMERAL_STORAGE) == (0, 1, 2), "the columns follow the table's lines"


class RowPods:
    """One row's pods and their numbers, (pods, columns), in the same order."""

    __slots__ = ("has_scalars", "numbers", "pods")

    def __init__(self, pods: Sequence[PodInfo], numbers: Ints, *, has_scalars: bool) -> None:
        self.pods = pods
        self.numbers = numbers
        self.has_scalars = has_scalars


class RowPodsCache:
    """`RowPods` by row, for the rows somebody asked about."""

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
        """All at once: making one array costs about as much as reading ten pods."""
        table = self._table
        numbers: list[tuple[int, int, int, int, int]] = []
        bounds = [0]
        by_row: list[list[PodInfo]] = []
        for row in rows:
            pods = list(table.pods[row].values())
            by_row.append(pods)
            for pod in pods:
                requests = pod.requests
                started = NOT_STARTED if pod.pod.status.start_time is None else started_us(pod.pod)
                numbers.append(
                    (
                        pod.priority,
                        started,
                        requests.milli_cpu,
                        requests.memory,
                        requests.ephemeral_storage,
                    )
                )
            bounds.append(len(numbers))
        matrix = np.array(numbers, dtype=np.int64).reshape(-1, _COLUMNS)
        for at, row in enumerate(rows):
            pods = by_row[at]
            self._known[row] = RowPods(
                pods,
                matrix[bounds[at] : bounds[at + 1]],
                has_scalars=any(pod.requests.scalars for pod in pods),
            )
