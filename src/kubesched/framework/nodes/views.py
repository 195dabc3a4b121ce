"""Views of the node table that plugins read: columns over some rows.

`NodeColumns` shows the live table. `WhatIfColumns` shows rows with hypothetical pods added or
removed (nominated pods, preemption victims); filters read both the same way. All arrays have one
entry per row of the view, in the view's order, and must not be written to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import numpy.typing as npt

from kubesched.api.core_v1 import Node
from kubesched.api.host_ports import HostPort, any_conflict
from kubesched.framework.nodes.columns import Indices, InternedColumn, Ints, Mask, Rows
from kubesched.framework.nodes.node_info import NodeInfo, Resource
from kubesched.framework.nodes.node_table import CPU, EPHEMERAL_STORAGE, MEMORY, NodeTable
from kubesched.framework.nodes.pods import PodInfo

S = TypeVar("S", bound=np.generic)


class NodeColumns:
    """The table's columns over `rows`."""

    __slots__ = ("_candidates", "_length", "_rows", "table")

    is_bare: ClassVar[bool] = False
    """True for nodes without pods and images, as returned by extenders."""

    def __init__(self, table: NodeTable, rows: Rows | None = None) -> None:
        self.table = table
        self._rows: Rows | None = rows
        if rows is None:
            self._length = table.high_water
            self._rows = slice(0, self._length)
        elif isinstance(rows, slice):
            self._length = len(range(*rows.indices(table.high_water)))
        else:
            self._length = len(rows)

    @property
    def rows(self) -> Rows:
        """The rows of the table, in the view's order."""
        if self._rows is None:
            self._rows = self._find_rows()
        return self._rows

    def _find_rows(self) -> Rows:
        """Compute `rows` on first use, for views built without it."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._length

    def row_at(self, index: int) -> int:
        """The table row of the index-th entry."""
        if isinstance(self.rows, slice):
            return int(self.rows.start or 0) + index
        return int(self.rows[index])

    def row_indices(self) -> Indices:
        """The table rows as an index array."""
        if isinstance(self.rows, slice):
            return np.arange(*self.rows.indices(self.table.high_water))
        return self.rows

    def part_of(self, column: npt.NDArray[S]) -> npt.NDArray[S]:
        """The view's part of a column over all rows."""
        return column[self.rows]

    def among(self, indices: Indices) -> NodeColumns:
        """A view of some of these nodes, by their index here."""
        rows = self.rows
        if isinstance(rows, slice):
            return NodeColumns(self.table, indices + (rows.start or 0))
        return NodeColumns(self.table, rows[indices])

    @property
    def alive(self) -> Mask:
        return self.table.alive[self.rows]

    @property
    def candidates(self) -> Mask:
        """Nodes not rejected by a filter so far; all nodes outside of filtering."""
        candidates: Mask | None = getattr(self, "_candidates", None)
        return self.alive if candidates is None else candidates

    @candidates.setter
    def candidates(self, candidates: Mask) -> None:
        self._candidates = candidates

    # -- identity and derived values ---------------------------------------------------------------

    def name_at(self, index: int) -> str:
        return self.table.names[self.row_at(index)]

    def node_at(self, index: int) -> Node:
        node = self.table.nodes[self.row_at(index)]
        assert node is not None, "a dead row has no node"
        return node

    def label_ids(self, key: str) -> Indices:
        """Ids into `label_column(key).values`; -1 where the node lacks the label."""
        return self.part_of(self.table.label_column(key).ids)

    def label_column(self, key: str) -> InternedColumn[str]:
        return self.table.label_column(key)

    def interned(self, key: Hashable, derive: Callable[[Node], Any]) -> InternedColumn[Any]:
        """A column derived from node objects; index its `ids` with `rows` or use `lookup`."""
        return self.table.interned(key, derive)

    def lookup(
        self, column: InternedColumn[Any], table: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """`table[value id]` per row; the table's last slot is for nodes without a value."""
        looked_up: np.ndarray[Any, Any] = table[column.ids[self.rows]]
        return looked_up

    # -- counts ------------------------------------------------------------------------------------

    def may_lack(self, key: str) -> bool:
        """False when every node in the table has the label."""
        return self.table.label_column(key).present < self.table.node_count

    def number_of_values(self, key: str, among: Mask | None = None) -> int:
        """Number of distinct label values of the (given) nodes; a missing label counts as one."""
        ids = self.label_ids(key)
        if among is not None:
            ids = ids[among]
        is_present = np.zeros(len(self.label_column(key).values) + 1, dtype=np.bool_)
        is_present[ids] = True
        return int(np.count_nonzero(is_present))

    # -- resources ---------------------------------------------------------------------------------

    def allocatable(self, resource: int) -> Ints:
        return self.table.allocatable[resource].array[self.rows]

    def requested(self, resource: int) -> Ints:
        return self.table.requested[resource].array[self.rows]

    @property
    def nonzero_cpu(self) -> Ints:
        return self.table.nonzero_cpu.array[self.rows]

    @property
    def nonzero_memory(self) -> Ints:
        return self.table.nonzero_memory.array[self.rows]

    @property
    def pod_count(self) -> Ints:
        return self.table.pod_count.array[self.rows]

    @property
    def allowed_pods(self) -> Ints:
        return self.table.allowed_pods.array[self.rows]

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        """True where at least one of the wanted host ports is in use."""
        taken = np.zeros(self.table.capacity, dtype=np.bool_)
        rows = self.table.ports.conflicting_rows(wanted)
        if rows:
            taken[list(rows)] = True
        return taken[self.rows]

    def ports_at(self, index: int) -> set[HostPort]:
        """The host ports in use on the index-th node."""
        return self.table.ports_at(self.row_at(index))

    # -- pods --------------------------------------------------------------------------------------

    def pods_at(self, index: int) -> list[PodInfo]:
        return list(self.table.pods[self.row_at(index)].values())

    def what_if(
        self, index: int, *, add: Sequence[PodInfo] = (), remove: Sequence[PodInfo] = ()
    ) -> WhatIfColumns:
        """A view of only the index-th node, with some pods added and removed."""
        return WhatIfColumns(
            self.table, np.array([self.row_at(index)]), [list(add)], [list(remove)]
        )

    def info_at(self, index: int) -> NodeInfo:
        """The index-th node as an object."""
        return next(self.infos(np.array([index])))

    def infos(self, indices: Indices) -> Iterator[NodeInfo]:
        """These nodes as objects; each column is read once for all of them."""

        def read(column: Ints) -> list[int]:
            return cast("list[int]", column[indices].tolist())

        def amounts(of: Callable[[int], Ints], allowed: Iterable[int]) -> Iterator[Resource]:
            scalars = [(name, read(of(index))) for name, index in extended]
            basic = (read(of(index)) for index in (CPU, MEMORY, EPHEMERAL_STORAGE))
            for at, (cpu, memory, storage, pods) in enumerate(zip(*basic, allowed, strict=False)):
                others = {name: row[at] for name, row in scalars if row[at]}
                yield Resource(cpu, memory, storage, pods, others)

        table = self.table
        extended = [item for item in table.resource_index.items() if item[1] > EPHEMERAL_STORAGE]
        sums = zip(
            indices.tolist(),
            amounts(self.allocatable, read(self.allowed_pods)),
            amounts(self.requested, repeat(0)),
            map(Resource, read(self.nonzero_cpu), read(self.nonzero_memory)),
            strict=True,
        )
        for index, allocatable, requested, non_zero_requested in sums:
            pods = self.pods_at(index)
            for pod in pods:
                for name, amount in pod.requests.scalars.items():
                    if amount and name not in table.resource_index:
                        requested.scalars[name] = requested.scalars.get(name, 0) + amount
            images = {} if self.is_bare else table.images.states_of(self.row_at(index))
            ports = frozenset(self.ports_at(index))
            node = self.node_at(index)
            yield NodeInfo(node, pods, allocatable, requested, non_zero_requested, ports, images)


class PassingColumns(NodeColumns):
    """The rows selected by a mask over all used rows; row indices are computed on first use."""

    __slots__ = ("_gaps", "is_whole", "mask")

    def __init__(self, table: NodeTable, mask: Mask) -> None:
        self.table = table
        self.mask = mask
        self._length = int(np.count_nonzero(mask))
        self.is_whole = self._length == len(mask)
        """True if every row passes: columns are then slices, not copies."""
        self._gaps: list[int] | None = None
        self._rows = slice(0, self._length) if self.is_whole else None

    def _find_rows(self) -> Rows:
        return self.mask.nonzero()[0]

    def part_of(self, column: npt.NDArray[S]) -> npt.NDArray[S]:
        if self.is_whole:
            return column[: self._length]
        missing, rows = len(self.mask) - self._length, len(self.mask)
        if missing * 512 < rows:  # copying the runs between them takes a sixth of a lookup
            if self._gaps is None:
                self._gaps = [-1, *(~self.mask).nonzero()[0].tolist(), rows]
            return np.concatenate([column[a + 1 : b] for a, b in pairwise(self._gaps)])
        if missing * 64 < rows:
            return column[:rows][self.mask]
        return column.take(self.row_indices())

    def number_of_values(self, key: str, among: Mask | None = None) -> int:
        if among is None and self._length == self.table.node_count:
            return self.label_column(key).in_use + self.may_lack(key)
        return super().number_of_values(key, among)


class WhatIfColumns(NodeColumns):
    """Some rows with hypothetical pods added and removed.

    # Upstream: a node's ports are a set. Removing a pod frees a port that another pod on the node
    # shares, and adding it back claims the port again, so the order matters: removals are applied
    # first.
    """

    __slots__ = ("_added", "_delta", "_pods_delta", "_ports", "_removed")

    def __init__(
        self,
        table: NodeTable,
        rows: Indices,
        added: list[list[PodInfo]],
        removed: list[list[PodInfo]],
    ) -> None:
        super().__init__(table, rows)
        self._added = added
        self._removed = removed
        self._delta: dict[int | str, Ints] = {}
        self._ports: dict[int, set[HostPort]] = {}
        self._pods_delta = np.array(
            [len(a) - len(r) for a, r in zip(added, removed, strict=True)], dtype=np.int64
        )
        for index, (more, fewer) in enumerate(zip(added, removed, strict=True)):
            for sign, pods in ((-1, fewer), (1, more)):
                for pod in pods:
                    self._account(index, pod, sign)

    def _account(self, index: int, pod: PodInfo, sign: int) -> None:
        requests = pod.requests
        self._change(CPU, index, sign * requests.milli_cpu)
        self._change(MEMORY, index, sign * requests.memory)
        self._change(EPHEMERAL_STORAGE, index, sign * requests.ephemeral_storage)
        for name, amount in requests.scalars.items():
            resource = self.table.resource_index.get(name)
            if resource is not None:
                self._change(resource, index, sign * amount)
        cpu, memory = pod.nonzero_requests
        self._change("nonzero cpu", index, sign * cpu)
        self._change("nonzero memory", index, sign * memory)
        if pod.host_ports:
            ports = self._ports.setdefault(index, self.ports_at(index))
            if sign > 0:
                ports.update(pod.host_ports)
            else:
                ports.difference_update(pod.host_ports)

    def _change(self, what: int | str, index: int, amount: int) -> None:
        if amount:
            if what not in self._delta:
                self._delta[what] = np.zeros(len(self), dtype=np.int64)
            self._delta[what][index] += amount

    def _with_delta(self, what: int | str, base: Ints) -> Ints:
        delta = self._delta.get(what)
        return base if delta is None else base + delta

    def put(self, index: int, pod: PodInfo) -> None:
        """Add a pod to the index-th node. Only the owner of a view may change it."""
        if pod in self._removed[index]:
            self._removed[index].remove(pod)
        else:
            self._added[index].append(pod)
        self._pods_delta[index] += 1
        self._account(index, pod, 1)

    def take(self, index: int, pod: PodInfo) -> None:
        """Remove a live or added pod from the index-th node."""
        if pod in self._added[index]:
            self._added[index].remove(pod)
        else:
            self._removed[index].append(pod)
        self._pods_delta[index] -= 1
        self._account(index, pod, -1)

    def added_at(self, index: int) -> Sequence[PodInfo]:
        """Pods added to the index-th node that are not in the table."""
        return self._added[index]

    def removed_at(self, index: int) -> Sequence[PodInfo]:
        """Table pods removed from the index-th node."""
        return self._removed[index]

    def requested(self, resource: int) -> Ints:
        return self._with_delta(resource, super().requested(resource))

    @property
    def nonzero_cpu(self) -> Ints:
        return self._with_delta("nonzero cpu", super().nonzero_cpu)

    @property
    def nonzero_memory(self) -> Ints:
        return self._with_delta("nonzero memory", super().nonzero_memory)

    @property
    def pod_count(self) -> Ints:
        return super().pod_count + self._pods_delta

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        ports = list(wanted)
        taken = super().port_conflicts(ports)
        # Removed pods only free ports: recheck live conflicts and rows with added pods.
        for index in {*np.flatnonzero(taken).tolist(), *self._with_more_ports(ports)}:
            taken[index] = any_conflict(ports, self.ports_at(index))
        return taken

    def _with_more_ports(self, wanted: list[HostPort]) -> Iterable[int]:
        """Indices where a wanted port may be in use that is free in the table."""
        return self._ports

    def ports_at(self, index: int) -> set[HostPort]:
        known = self._ports.get(index)
        return super().ports_at(index) if known is None else known

    def pods_at(self, index: int) -> list[PodInfo]:
        gone = {pod.uid for pod in self.removed_at(index)}
        present = [pod for pod in super().pods_at(index) if pod.uid not in gone]
        return [*present, *self.added_at(index)]

    def what_if(
        self, index: int, *, add: Sequence[PodInfo] = (), remove: Sequence[PodInfo] = ()
    ) -> WhatIfColumns:
        view = WhatIfColumns(
            self.table,
            np.array([self.row_at(index)]),
            [[*self.added_at(index), *add]],
            [[*self.removed_at(index), *remove]],
        )
        view._ports[0] = _after(self.ports_at(index), remove, add)
        return view


class BareColumns(WhatIfColumns):
    """Nodes without pods and images: upstream's view after an extender returned node objects."""

    is_bare = True

    def __init__(self, table: NodeTable, rows: Indices) -> None:
        everyone = [list(table.pods[row].values()) for row in rows.tolist()]
        super().__init__(table, rows, [[] for _ in everyone], everyone)


class BulkWhatIfColumns(WhatIfColumns):
    """Many what-if rows at once, from sums that the caller has computed.

    Pods are looked up per row, and only for plugins that read them. The owner may change the sums
    in place between uses.
    """

    def __init__(
        self,
        table: NodeTable,
        rows: Indices,
        *,
        requested_delta: Callable[[int], Ints | None],
        pods_delta: Ints,
        added: Callable[[int], Sequence[PodInfo]] | None = None,
        removed: Callable[[int], Sequence[PodInfo]] | None = None,
        ports: Callable[[int], set[HostPort]] | None = None,
        takers: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        """The callbacks are evaluated lazily, by resource or by index into the view.

        Args:
            table: The live table.
            rows: The rows of the view.
            requested_delta: Resource -> change of the requests per row; None for no change.
            pods_delta: Change of the number of pods per row.
            added: Index -> pods added.
            removed: Index -> pods removed.
            ports: Index -> host ports in use. Default: the table's, minus those of removed pods,
                plus those of added.
            takers: Indices at which ports may be in use that are free in the table. Default: where
                pods with ports are added.
        """
        NodeColumns.__init__(self, table, rows)
        self.requested_delta = requested_delta
        self.pods_delta = pods_delta
        self._added_of = added
        self._removed_of = removed
        self._ports_of = ports
        self._takers = takers

    def _with_more_ports(self, wanted: list[HostPort]) -> Iterable[int]:
        if self._takers is not None:
            return self._takers()
        if self._added_of is None:
            return ()
        more = (
            [port for pod in self.added_at(i) for port in pod.host_ports] for i in range(len(self))
        )
        return [i for i, ports in enumerate(more) if ports and any_conflict(wanted, ports)]

    def ports_at(self, index: int) -> set[HostPort]:
        if self._ports_of is not None:
            return self._ports_of(index)
        live = NodeColumns.ports_at(self, index)
        return _after(live, self.removed_at(index), self.added_at(index))

    def added_at(self, index: int) -> Sequence[PodInfo]:
        return () if self._added_of is None else self._added_of(index)

    def removed_at(self, index: int) -> Sequence[PodInfo]:
        return () if self._removed_of is None else self._removed_of(index)

    def requested(self, resource: int) -> Ints:
        live = NodeColumns.requested(self, resource)
        delta = self.requested_delta(resource)
        return live if delta is None else live + delta

    @property
    def pod_count(self) -> Ints:
        return self.table.pod_count.array[self.rows] + self.pods_delta

    @property
    def nonzero_cpu(self) -> Ints:
        return self.table.nonzero_cpu.array[self.rows] + self._nonzero_delta(0)

    @property
    def nonzero_memory(self) -> Ints:
        return self.table.nonzero_memory.array[self.rows] + self._nonzero_delta(1)

    def _nonzero_delta(self, which: int) -> Ints:
        """Summed pod by pod: filters do not read these columns and what-ifs are not scored."""
        return np.array(
            [
                sum(pod.nonzero_requests[which] for pod in self.added_at(index))
                - sum(pod.nonzero_requests[which] for pod in self.removed_at(index))
                for index in range(len(self))
            ],
            dtype=np.int64,
        )


def _after(
    ports: Iterable[HostPort], removed: Iterable[PodInfo], added: Iterable[PodInfo]
) -> set[HostPort]:
    """The ports in use after removing some pods, then adding others."""
    taken = set(ports)
    for pod in removed:
        taken.difference_update(pod.host_ports)
    for pod in added:
        taken.update(pod.host_ports)
    return taken
