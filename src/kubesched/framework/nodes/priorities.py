"""Pod requests per row, summed by priority: the room that preemption could make.

Most clusters use one priority or a handful. A priority has columns while a pod of it is on a node.

Invariant: for every priority, columns equal a recount over the pods on nodes (`check_invariants`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

import numpy as np

from kubesched.framework.nodes.columns import Indices, IntColumn, Ints, Rows
from kubesched.framework.nodes.pod_batch import amounts_of
from kubesched.framework.nodes.pods import PodInfo

PRIORITY_LIMIT: Final = 64
"""Maximum number of priorities with columns (32 bytes per row each). Others are only counted."""

PodsAt = Callable[[int], Iterable[PodInfo]]
"""Row -> its pods."""

_CPU, _MEMORY, _EPHEMERAL_STORAGE, _NATIVE_RESOURCES = 0, 1, 2, 3


class RequestSums:
    """Number and requests of a set of pods, per row."""

    def __init__(self, capacity: int) -> None:
        self.total = 0
        self.pod_count = IntColumn(capacity)
        self.requested = {index: IntColumn(capacity) for index in range(_NATIVE_RESOURCES)}

    def column(self, resource: int) -> IntColumn:
        """The column of a resource, created on first use."""
        column = self.requested.get(resource)
        if column is None:
            column = self.requested[resource] = IntColumn(len(self.pod_count.array))
        return column

    def add(self, pod: PodInfo, row: int, sign: int, resource_index: dict[str, int]) -> None:
        requests, requested = pod.requests, self.requested
        self.total += sign
        self.pod_count.cells[row] += sign
        requested[_CPU].add(row, sign * requests.milli_cpu)
        requested[_MEMORY].add(row, sign * requests.memory)
        if requests.ephemeral_storage:
            requested[_EPHEMERAL_STORAGE].add(row, sign * requests.ephemeral_storage)
        for name, amount in requests.scalars.items():
            index = resource_index.get(name)
            if index is not None:
                self.column(index).add(row, sign * amount)

    def add_columns(self, rows: Indices, amounts: Mapping[int, Ints], sign: int) -> None:
        """Add pods on these rows, by their amounts."""
        self.total += sign * len(rows)
        np.add.at(self.pod_count.array, rows, sign)
        for resource, column in amounts.items():
            np.add.at(self.column(resource).array, rows, sign * column)

    def grow(self, capacity: int) -> None:
        for column in (self.pod_count, *self.requested.values()):
            column.grow(capacity)


class PriorityIndex:
    """Sums per row and priority, maintained by the node table."""

    def __init__(self, capacity: int, resource_index: dict[str, int]) -> None:
        """`resource_index` is the table's own; it is only read here."""
        self._capacity = capacity
        self._resource_index = resource_index
        self._sums: dict[int, RequestSums] = {}
        self._overflow: dict[int, int] = {}
        """Number of pods by priority, for priorities beyond PRIORITY_LIMIT."""

    # -- pods added and removed --------------------------------------------------------------------

    def add(self, pod: PodInfo, row: int, sign: int) -> None:
        """Add (1) or subtract (-1) a pod's requests for resources that have columns."""
        priority = pod.priority
        sums = self._sums.get(priority)
        if sums is None:
            sums = self._begin(priority, sign)
        if sums is not None:
            sums.add(pod, row, sign, self._resource_index)
            if not sums.total:
                del self._sums[priority]

    def add_columns(
        self, priority: int, rows: Indices, amounts: Mapping[int, Ints], sign: int
    ) -> None:
        """Add or subtract pods of one priority, by their amounts."""
        sums = self._sums.get(priority)
        if sums is None:
            sums = self._begin(priority, sign * len(rows))
        if sums is not None:
            sums.add_columns(rows, amounts, sign)
            if not sums.total:
                del self._sums[priority]

    def _begin(self, priority: int, number: int) -> RequestSums | None:
        """New sums; None if pods of this priority are only counted, which happens here."""
        if priority not in self._overflow and len(self._sums) < PRIORITY_LIMIT:
            sums = self._sums[priority] = RequestSums(self._capacity)
            return sums
        left = self._overflow.get(priority, 0) + number
        if left:
            self._overflow[priority] = left
        else:
            del self._overflow[priority]
        return None

    def add_resource(self, pod: PodInfo, row: int, resource: int, amount: int) -> None:
        """Add a counted pod's request for a resource whose column was just created."""
        sums = self._sums.get(pod.priority)
        if sums is not None:
            sums.column(resource).add(row, amount)

    def drop_resource(self, resource: int) -> None:
        for sums in self._sums.values():
            sums.requested.pop(resource, None)

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for sums in self._sums.values():
            sums.grow(capacity)

    # -- lookup ------------------------------------------------------------------------------------

    def below(self, priority: int, pods_at: PodsAt) -> Below:
        """The pods below a priority; `pods_at` lists the pods of a row."""
        sums = [sums for other, sums in self._sums.items() if other < priority]
        rest = {other for other in self._overflow if other < priority}
        return Below(self._capacity, sums, rest, pods_at, self._resource_index)

    def has_below(self, priority: int) -> bool:
        """True if any pod on a node is below a priority."""
        for other in self._sums:
            if other < priority:
                return True
        return bool(self._overflow) and any(other < priority for other in self._overflow)

    # -- self-check --------------------------------------------------------------------------------

    def check_invariants(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        fresh = PriorityIndex(self._capacity, self._resource_index)
        counted: dict[int, int] = {}
        for row, pod in pods:
            counted[pod.priority] = counted.get(pod.priority, 0) + 1
            if pod.priority in self._sums:
                fresh._sums.setdefault(pod.priority, RequestSums(self._capacity)).add(
                    pod, row, 1, self._resource_index
                )
        own = {priority: sums.total for priority, sums in self._sums.items()} | self._overflow
        assert own == counted, f"priorities drifted: {own}, not {counted}"
        for priority, sums in self._sums.items():
            other = fresh._sums[priority]
            assert (sums.pod_count.array == other.pod_count.array).all(), (
                f"pods of priority {priority} drifted"
            )
            for resource, column in sums.requested.items():
                assert (column.array == other.column(resource).array).all(), (
                    f"requests of priority {priority} drifted"
                )


class Below:
    """Number and requests of the pods below a priority, per row. Valid until the table changes."""

    def __init__(
        self,
        capacity: int,
        sums: Sequence[RequestSums],
        rest: Set[int],
        pods_at: PodsAt,
        resource_index: Mapping[str, int],
    ) -> None:
        """Pods of the priorities in `rest`, which lack columns, are added up on demand."""
        self._sums, self._rest = sums, rest
        self._pods_at, self._resource_index = pods_at, resource_index
        self._every_row: Indices = np.arange(capacity)
        self._added_up: tuple[Rows, RequestSums] | None = None

    def pod_count(self, rows: Rows) -> Ints:
        return self._total([sums.pod_count.array[rows] for sums in self._sums], None, rows)

    def requested(self, resource: int, rows: Rows) -> Ints:
        columns = [sums.requested.get(resource) for sums in self._sums]
        tracked = [column.array[rows] for column in columns if column is not None]
        return self._total(tracked, resource, rows)

    def _total(self, tracked: list[Ints], resource: int | None, rows: Rows) -> Ints:
        if self._rest:
            sums = self._of_rest(rows)
            tracked.append((sums.pod_count if resource is None else sums.column(resource)).array)
        total = tracked[0] if tracked else np.zeros(len(self._every_row), dtype=np.int64)[rows]
        for more in tracked[1:]:
            total = total + more
        return total

    def _of_rest(self, rows: Rows) -> RequestSums:
        """Sums by index into `rows`; kept, because several resources are asked for in a row."""
        if self._added_up is None or self._added_up[0] is not rows:
            at_rows = [self._pods_at(row) for row in self._every_row[rows].tolist()]
            at = [
                (i, p) for i, pods in enumerate(at_rows) for p in pods if p.priority in self._rest
            ]
            amounts = amounts_of([pod for _, pod in at], self._resource_index)
            sums = RequestSums(len(at_rows))
            sums.add_columns(np.array([i for i, _ in at], dtype=np.intp), amounts, 1)
            self._added_up = rows, sums
        return self._added_up[1]
