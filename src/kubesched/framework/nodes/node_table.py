"""The node table: resources, labels, taints, ports, images and pods of all nodes, one row per node.

A node owns a row while it exists; rows are reused. A pod whose node is not in the table is a
*ghost*: it is stored separately until the node arrives, becomes a ghost again if the node is
removed, and affects no decision meanwhile. Ghosts exist because pods and nodes have separate
watches: a pod can arrive before its node, and outlive it.

Consumers of derived values follow three logs:

    pod_log    rows whose pods or node changed
    node_log   rows whose node object changed, was added or removed; always in `pod_log` as well
    swap_log   rows where a pod object was replaced by one with equal sums; for consumers with pods

The table does not distinguish assumed from confirmed pods; the cache does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.host_ports import HostPort
from kubesched.api.resources import NodeAllocatable, node_allocatable
from kubesched.framework.nodes.columns import (
    ABSENT,
    Ids,
    Indices,
    IntColumn,
    InternedColumn,
    Mask,
    RowLog,
)
from kubesched.framework.nodes.images import ImageIndex
from kubesched.framework.nodes.namespaces import NamespaceLabels
from kubesched.framework.nodes.node_order import NodeOrder
from kubesched.framework.nodes.pod_batch import PodBatch
from kubesched.framework.nodes.pod_index import PodIndex
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.ports import HostPortIndex
from kubesched.framework.nodes.priorities import Below, PriorityIndex, RequestSums

CPU, MEMORY, EPHEMERAL_STORAGE = 0, 1, 2
"""Indices of the resources in every table. A scalar resource gets the next free index."""
T = TypeVar("T")

_NATIVE_RESOURCES = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": EPHEMERAL_STORAGE}


class NodeTable:
    """Columns over nodes and the indexes kept beside them."""

    def __init__(self, capacity: int = 64) -> None:
        self.capacity = capacity
        self.high_water = 0
        """Rows from this one on were never used."""
        self.epoch = 0
        """Increases when arrays are reallocated (references are stale) or resources change."""
        self.alive: Mask = np.zeros(capacity, dtype=np.bool_)
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.pods: list[dict[str, PodInfo]] = []
        self.row_of: dict[str, int] = {}
        self.ghosts: dict[str, dict[str, PodInfo]] = {}
        self._free: list[int] = []

        self.resource_index: dict[str, int] = dict(_NATIVE_RESOURCES)
        """Resource name -> its key in `allocatable` and `requested`.

        Only for resources that a node offers or a plugin compares. Pods can name any number of
        other resources; no node has capacity for those.
        """
        self._next_resource = len(_NATIVE_RESOURCES)
        self._offers: Counter[str] = Counter()
        """Scalar resource -> number of nodes that offer it."""
        self._compared: set[str] = set()
        """Resources that keep their columns even if no node offers them."""
        self.allocatable = {index: IntColumn(capacity) for index in _NATIVE_RESOURCES.values()}
        self._sums = RequestSums(capacity)
        self.requested = self._sums.requested
        self.nonzero_cpu = IntColumn(capacity)
        self.nonzero_memory = IntColumn(capacity)
        self.pod_count = self._sums.pod_count
        self.allowed_pods = IntColumn(capacity)

        self._interned: dict[Hashable, InternedColumn[Any]] = {}
        self._label_keys: dict[str, int] = {}
        """Label key -> number of nodes with the label."""
        self._absent_labels: WeakValueDictionary[str, InternedColumn[str]] = WeakValueDictionary()
        """Weakly held columns of labels that no node has.

        Pods can name any number of them, so they share one array and skip node updates.
        """
        self._nowhere = _no_ids(capacity)
        self._derived: dict[Callable[[NodeTable], Any], Any] = {}
        self.ports = HostPortIndex()
        self.images = ImageIndex(capacity)
        self.claims: dict[str, dict[int, int]] = {}
        """`namespace/claim` -> row -> number of pod volumes on that row that name it."""
        self.namespaces = NamespaceLabels()
        self.pod_log = RowLog(max(8192, 2 * capacity))
        self.node_log = RowLog(max(8192, 2 * capacity))
        self.swap_log = RowLog(max(8192, 2 * capacity))
        self.pod_index = PodIndex(self)
        self.priorities = PriorityIndex(capacity, self.resource_index)
        self.order = NodeOrder()
        self._positioned: Indices | None = None
        self._position: Ids = np.zeros(0, dtype=np.int32)
        self._refresh_cursor = 0
        self._touched: dict[int, None] = {}
        """Otherwise unchanged rows that see current image counts from the next cycle on."""

    # -- nodes -------------------------------------------------------------------------------------

    @property
    def node_count(self) -> int:
        return len(self.row_of)

    @property
    def free_rows(self) -> list[int]:
        """Free rows in the order they became free; the last one is reused first."""
        return list(self._free)

    def set_node(self, node: Node) -> int:
        """Add or update a node; returns its row."""
        name = node.metadata.name
        row = self.row_of.get(name)
        if row is None:
            allocatable = node_allocatable(node)  # may raise: call it before any change
            row = self._take_row(name)
            self._write_node(row, None, node, allocatable)
            for pod in self.ghosts.pop(name, {}).values():
                self._add_to_row(pod, row)
        else:
            old = self.nodes[row]
            assert old is not None, f"row {row} of node {name} has no node"
            if not _scheduling_relevant_change(old, node):
                # A heartbeat, several per second in a large cluster: the row is not dirty.
                self.nodes[row] = node
                self._touched[row] = None
                return row
            is_same_size = old.status.allocatable == node.status.allocatable
            self._write_node(row, old, node, None if is_same_size else node_allocatable(node))
        return row

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods become ghosts."""
        row = self.row_of.pop(name)
        node = self.nodes[row]
        self._count_labels(node, None)
        pods = self.pods[row]
        for pod in list(pods.values()):
            self._remove_from_row(pod, row)
            self._ghosts_of(name)[pod.uid] = pod
        self.order.remove(row, name)
        self.alive[row] = False
        self.nodes[row] = None
        self.names[row] = ""
        self.allowed_pods.cells[row] = 0
        for column in self.allocatable.values():
            column.cells[row] = 0
        self._count_offers(node, None)
        self._write_interned(row, None)
        self.images.set_row(row, None)
        # The row may be reused before consumers read the log: they recompute from current state.
        self._free.append(row)
        self._log_node(row)

    def _take_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = self.high_water
            if row == self.capacity:
                self._grow(2 * self.capacity)
            self.high_water += 1
            self.names.append("")
            self.nodes.append(None)
            self.pods.append({})
        self.row_of[name] = row
        self.names[row] = name
        self.alive[row] = True
        return row

    def _write_node(
        self, row: int, old: Node | None, node: Node, allocatable: NodeAllocatable | None
    ) -> None:
        """Write a node's columns; `allocatable` is None if unchanged."""
        self.nodes[row] = node
        self._count_labels(old, node)
        self.order.put(row, node)
        if allocatable is not None:
            self._count_offers(old, allocatable)
            self._write_allocatable(row, allocatable)
        self._write_interned(row, node)
        if old is None or old.status.images != node.status.images:
            self.images.set_row(row, node)
        elif node.status.images:
            self.images.renew_row(row, node)
        self._log_node(row)

    def _write_interned(self, row: int, node: Node | None) -> None:
        for interned in self._interned.values():
            interned.set_row(row, node)
            if interned.forget_unused():
                self.epoch += 1

    def _write_allocatable(self, row: int, allocatable: NodeAllocatable) -> None:
        for column in self.allocatable.values():
            column.cells[row] = 0
        self.allocatable[CPU].cells[row] = allocatable.milli_cpu
        self.allocatable[MEMORY].cells[row] = allocatable.memory
        self.allocatable[EPHEMERAL_STORAGE].cells[row] = allocatable.ephemeral_storage
        self.allowed_pods.cells[row] = allocatable.allowed_pods
        for name, amount in allocatable.scalars.items():
            self.allocatable[self.resource_index[name]].cells[row] = amount

    def compare_resource(self, name: str) -> int:
        """The index of a resource; creates permanent columns for it if needed."""
        self._compared.add(name)
        return self._ensure_resource(name)

    def resource_name(self, index: int) -> str:
        """The resource with that index."""
        return next(name for name, known in self.resource_index.items() if known == index)

    def _count_offers(self, old: Node | None, new: NodeAllocatable | None) -> None:
        """Add and drop columns when the set of resources that a node offers changes."""
        before = node_allocatable(old).scalars.keys() if old is not None else set()
        after = new.scalars.keys() if new is not None else set()
        for name in after - before:
            self._offers[name] += 1
            self._ensure_resource(name)
        for name in before - after:
            self._offers[name] -= 1
            if not self._offers[name]:
                del self._offers[name]
                if name not in self._compared:
                    self._drop_resource(name)

    def _ensure_resource(self, name: str) -> int:
        index = self.resource_index.get(name)
        if index is None:
            index = self.resource_index[name] = self._next_resource
            self._next_resource += 1
            self.allocatable[index] = IntColumn(self.capacity)
            requested = self.requested[index] = IntColumn(self.capacity)
            for row, pod in self.all_pods():
                amount = pod.requests.scalars.get(name)
                if amount:
                    requested.add(row, amount)
                    self.priorities.add_resource(pod, row, index, amount)
            self.epoch += 1  # answers may assume that no node offers this resource
        return index

    def _drop_resource(self, name: str) -> None:
        index = self.resource_index.pop(name)
        del self.allocatable[index], self.requested[index]
        self.priorities.drop_resource(index)
        self.epoch += 1

    def mark_changed(self, node_name: str) -> None:
        """Have plugins asked again about a node that they know something new of.

        For answers under a rule that depend on other objects, too, of which there is at most one
        per node: with a premise, a change of one would discard the answers of all nodes.
        """
        row = self.row_of.get(node_name)
        if row is not None:
            self._log_node(row)

    def _log_node(self, row: int) -> None:
        self.node_log.append(row)
        self.pod_log.append(row)

    def _grow(self, capacity: int) -> None:
        alive = np.zeros(capacity, dtype=np.bool_)
        alive[: self.capacity] = self.alive
        self.alive = alive
        for column in (
            *self.allocatable.values(),
            self.nonzero_cpu,
            self.nonzero_memory,
            self.allowed_pods,
        ):
            column.grow(capacity)
        self._sums.grow(capacity)
        for interned in self._interned.values():
            interned.grow(capacity)
        self._nowhere = _no_ids(capacity)
        for absent in self._absent_labels.values():
            absent.ids = self._nowhere
        self.images.grow(capacity)
        self.pod_index.grow(capacity)
        self.priorities.grow(capacity)
        for log in (self.pod_log, self.node_log, self.swap_log):
            log.bound = max(8192, 2 * capacity)
        self.capacity = capacity
        self._positioned = None
        self.epoch += 1

    # -- pods --------------------------------------------------------------------------------------

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        row = self.row_of.get(node_name)
        if row is None:
            self._ghosts_of(node_name)[pod.uid] = pod
        else:
            self._add_to_row(pod, row)

    def _ghosts_of(self, node_name: str) -> dict[str, PodInfo]:
        ghosts = self.ghosts.get(node_name)
        if ghosts is None:
            ghosts = {}
            self.ghosts[node_name] = ghosts
        return ghosts

    def remove_pod(self, pod: PodInfo, node_name: str) -> None:
        row = self.row_of.get(node_name)
        if row is not None:
            self._remove_from_row(pod, row)
            return
        waiting = self.ghosts[node_name]
        del waiting[pod.uid]
        if not waiting:
            del self.ghosts[node_name]

    def _add_to_row(self, pod: PodInfo, row: int) -> None:
        assert pod.uid not in self.pods[row], f"pod {pod.key} is on node {self.names[row]} already"
        self.pods[row][pod.uid] = pod
        self._account(pod, row, 1)
        if pod.host_ports:
            self.ports.add(row, pod.host_ports)
        self.pod_index.add(pod, row)
        self.pod_log.append(row)

    def _remove_from_row(self, pod: PodInfo, row: int) -> None:
        del self.pods[row][pod.uid]
        self._account(pod, row, -1)
        if pod.host_ports:
            self.ports.remove(row, pod.host_ports)
        self.pod_index.remove(pod, row)
        self.pod_log.append(row)

    def take_out(self, pods: Sequence[PodInfo]) -> PodBatch:
        """Remove many pods until `put_back`. Undo changes made in between first."""
        rows = [self.row_of[pod.pod.spec.node_name] for pod in pods]
        batch = PodBatch(pods, rows, self.resource_index)
        batch.listed = {row: self.pods[row] for row in rows}
        for row, listed in batch.listed.items():
            self.pods[row] = dict(listed)
        for pod, row in zip(pods, rows, strict=True):
            del self.pods[row][pod.uid]
        for port, on_rows in batch.ports.items():
            batch.ports[port] = self.ports.remove_rows(port, on_rows)
        self._account_batch(batch, -1)
        return batch

    def put_back(self, batch: PodBatch) -> None:
        """Restore everything, including the order of the pods and shared ports that were free."""
        for row, listed in batch.listed.items():
            self.pods[row] = listed
        for pod, label_class in zip(batch.pods, batch.label_classes, strict=True):
            pod.label_class = label_class
        for port, on_rows in batch.ports.items():
            self.ports.add_rows(port, on_rows)
        self._account_batch(batch, 1)

    def _account_batch(self, batch: PodBatch, sign: int) -> None:
        rows = batch.rows
        self._sums.add_columns(rows, batch.amounts, sign)
        for column, amounts in zip(
            (self.nonzero_cpu, self.nonzero_memory), batch.nonzero, strict=True
        ):
            np.add.at(column.array, rows, sign * amounts)
        for priority, part in batch.by_priority.items():
            amounts_of_part = {index: each[part] for index, each in batch.amounts.items()}
            self.priorities.add_columns(priority, rows[part], amounts_of_part, sign)
        for claim, row in batch.claims:
            self._count_claim(claim, row, sign)
        self.pod_index.add_batch(batch, sign)
        self.pod_log.extend(batch.listed)

    def replace_pod(self, pod: PodInfo, newer: Pod) -> None:
        """Replace a pod object by a newer one with the same requests, ports, volumes and terms.

        The row becomes dirty only if labels changed, or if the pod is being deleted now.

        # Upstream: the pod is removed and added again, which refreshes the node's snapshot record;
        # hence `_touched`.
        """
        row = self.row_of.get(newer.spec.node_name)
        if not _counted_alike(pod.pod, newer):
            self._relabel(pod, newer, row)
        pod.pod = newer
        if row is not None:
            self._touched[row] = None
            self.swap_log.append(row)
            if pod.host_ports:
                self._renew_ports(pod, row)

    def _relabel(self, pod: PodInfo, newer: Pod, row: int | None) -> None:
        """Count a pod by its new labels; an API server adds the node's topology to bound pods."""
        if row is not None:
            self.pod_index.remove(pod, row)
        pod.pod = newer
        pod.label_key = pod.class_key = pod.shape_key = None
        if row is not None:
            self.pod_index.add(pod, row)
            self.pods[row][pod.uid] = self.pods[row].pop(pod.uid)  # as if it came last
            self.pod_log.append(row)

    def _renew_ports(self, pod: PodInfo, row: int) -> None:
        """Claim the pod's ports again.

        # Upstream: adding the pod again claims its ports, even those freed by a pod that shared
        # them and left.
        """
        if not all(self.ports.is_taken(row, port) for port in pod.host_ports):
            self.ports.add(row, pod.host_ports)
            self.pod_log.append(row)

    def ports_at(self, row: int) -> set[HostPort]:
        """The host ports in use on a row."""
        return {
            port
            for pod in self.pods[row].values()
            for port in pod.host_ports
            if self.ports.is_taken(row, port)
        }

    def _account(self, pod: PodInfo, row: int, sign: int) -> None:
        self._sums.add(pod, row, sign, self.resource_index)
        cpu, memory = pod.nonzero_requests
        self.nonzero_cpu.add(row, sign * cpu)
        self.nonzero_memory.add(row, sign * memory)
        self.priorities.add(pod, row, sign)
        for claim in pod.claims:
            self._count_claim(claim, row, sign)

    def count_copies(self, pod: PodInfo, rows: Indices, sign: int) -> None:
        """Count a pod on many rows at once, for a moment and only in their sums; or no more."""
        for name, resource in self.resource_index.items():
            self.requested[resource].array[rows] += sign * pod.requests.get(name)
        cpu, memory = pod.nonzero_requests
        self.nonzero_cpu.array[rows] += sign * cpu
        self.nonzero_memory.array[rows] += sign * memory
        self.pod_count.array[rows] += sign
        self.pod_log.extend(rows.tolist())

    def _count_claim(self, claim: str, row: int, sign: int) -> None:
        rows = self.claims.setdefault(claim, {})
        rows[row] = rows.get(row, 0) + sign
        if not rows[row]:
            del rows[row]
        if not rows:
            del self.claims[claim]

    def all_pods(self) -> Iterator[tuple[int, PodInfo]]:
        """(row, pod) of every pod on an existing node, in row order."""
        return ((row, pod) for row, pods in enumerate(self.pods) for pod in pods.values())

    def pods_below(self, priority: int) -> Below:
        """Sums over the pods below a priority, per row."""
        return self.priorities.below(priority, lambda row: self.pods[row].values())

    # -- columns on demand -------------------------------------------------------------------------

    def interned(self, key: Hashable, derive: Callable[[Node], Any]) -> InternedColumn[Any]:
        """A column of values derived from each node, built on first use and then kept current.

        `key` identifies `derive`: equal keys must mean equal functions.
        """
        column = self._interned.get(key)
        if column is None:
            column = self._interned[key] = InternedColumn(derive, self.capacity)
            for row in range(self.high_water):
                column.set_row(row, self.nodes[row])
        return column

    def derived(self, kind: Callable[[NodeTable], T]) -> T:
        """A shared structure derived from this table; `kind(table)` builds it on first use."""
        derived: T | None = self._derived.get(kind)
        if derived is None:
            derived = self._derived[kind] = kind(self)
        return derived

    def label_column(self, key: str) -> InternedColumn[str]:
        """The values of one node label."""
        column: InternedColumn[str] | None = self._interned.get(("label", key))
        if column is None:
            column = self._absent_labels.get(key)
        return self._new_label_column(key) if column is None else column

    def _new_label_column(self, key: str) -> InternedColumn[str]:
        def label(node: Node) -> str | None:
            return (node.metadata.labels or {}).get(key)

        if key in self._label_keys:
            return self.interned(("label", key), label)
        column = InternedColumn(label, 0)
        column.ids = self._nowhere
        self._absent_labels[key] = column
        return column

    def label_keys(self) -> list[str]:
        """All labels of all nodes."""
        return list(self._label_keys)

    def has_label_keys(self, keys: AbstractSet[str]) -> bool:
        """True if each key is a label of some node."""
        return keys <= self._label_keys.keys()

    def _count_labels(self, old: Node | None, new: Node | None) -> None:
        before = (old.metadata.labels if old is not None else None) or {}
        after = (new.metadata.labels if new is not None else None) or {}
        if before == after:
            return
        counts = self._label_keys
        for key in after.keys() - before.keys():
            counts[key] = counts.get(key, 0) + 1
            absent = self._absent_labels.pop(key, None)
            if absent is not None:
                # The label's first node: from now on node updates write the column.
                absent.ids = np.full(self.capacity, ABSENT, dtype=np.intp)
                self._interned["label", key] = absent
                self.epoch += 1
        for key in before.keys() - after.keys():
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
                self._forget_label(key)

    def _forget_label(self, key: str) -> None:
        """Clear the column of a label that no node has any more, and free the rest."""
        column = self._interned.pop(("label", key), None)
        if column is not None:
            column.clear(self._nowhere)
            self._absent_labels[key] = column
            self.epoch += 1

    # -- order -------------------------------------------------------------------------------------

    @property
    def order_rows(self) -> Indices:
        """Rows in upstream's node list order."""
        return self.order.rows()

    @property
    def position(self) -> Ids:
        """Per row, its position in `order_rows`; undefined for dead rows."""
        rows = self.order.rows()
        if self._positioned is not rows:
            self._position = np.zeros(self.capacity, dtype=np.int32)
            self._position[rows] = np.arange(len(rows), dtype=np.int32)
            self._positioned = rows
        return self._position

    # -- cycle boundary ----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Begin a scheduling cycle: changed rows see current image counts.

        Also fixes the node order for the cycle, as upstream does when it takes its snapshot.
        """
        self.order.fix()
        changed = self.pod_log.since(self._refresh_cursor)
        for row in range(self.high_water) if changed is None else changed:
            self.images.refresh_row(row)
        if self._touched:
            touched, self._touched = self._touched, {}
            # These rows were not logged as dirty, but a new image count makes them dirty.
            self.pod_log.extend([row for row in touched if self.images.refresh_row(row)])
        self._refresh_cursor = self.pod_log.end

    def begin_anew(self) -> None:
        """Reset node order and image counts to those of a newly built table.

        # Upstream: both lag behind. A checkpoint of a recording cannot hold how far.
        """
        self.refresh()
        self.order.begin_anew()
        for row in range(self.high_water):
            if self.images.refresh_row(row):
                self.pod_log.append(row)

    # -- self-check --------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Assert that all incremental state equals a recount of the nodes and pods."""
        assert {name: row for row, name in enumerate(self.names) if name} == self.row_of
        assert sorted(self.order_rows.tolist()) == sorted(self.row_of.values()), (
            "the node order drifted"
        )
        for name, row in self.row_of.items():
            assert self.alive[row], f"row {row} of node {name} is dead"
            node = self.nodes[row]
            assert node is not None, f"row {row} of node {name} has no node"
            self._check_sums(row, node)
            for key, column in self._interned.items():
                value_id = column.ids[row]
                value = None if value_id < 0 else column.values[value_id]
                assert value == column.derive(node), f"column {key} of node {name} drifted"
        claims: dict[str, dict[int, int]] = {}
        for row, pod in self.all_pods():
            for claim in pod.claims:
                rows = claims.setdefault(claim, {})
                rows[row] = rows.get(row, 0) + 1
        assert self.claims == claims, "claims are miscounted"
        offers = Counter(
            name for node in self.nodes if node for name in node_allocatable(node).scalars
        )
        assert self._offers == offers, "offers of resources are miscounted"
        columns = {*_NATIVE_RESOURCES, *offers, *self._compared}
        assert self.resource_index.keys() == columns, "resources have too many or too few columns"
        labels = Counter(key for node in self.nodes if node for key in node.metadata.labels or ())
        assert self._label_keys == labels, "label keys are miscounted"
        for key, column in self._absent_labels.items():
            assert key not in labels, f"label {key} is not absent"
            assert column.ids is self._nowhere, f"the column of absent label {key} has ids"
            assert ("label", key) not in self._interned, f"label {key} has two columns"
        for row in range(self.high_water):
            if not self.names[row]:
                assert not self.alive[row], f"free row {row} is alive"
                assert not self.pods[row], f"free row {row} holds pods"
                assert self.pod_count.cells[row] == 0, f"free row {row} counts pods"
        self.pod_index.check_invariants(self.all_pods())
        self.priorities.check_invariants(self.all_pods())

    def _check_sums(self, row: int, node: Node) -> None:
        """Assert that a row's sums match its node and pods, and that every used port has a pod."""
        room, pods = node_allocatable(node), self.pods[row].values()
        requests = [pod.requests for pod in pods]
        nonzero = [pod.nonzero_requests for pod in pods]
        sums = [
            (self.allocatable[CPU], room.milli_cpu),
            (self.allocatable[MEMORY], room.memory),
            (self.allocatable[EPHEMERAL_STORAGE], room.ephemeral_storage),
            (self.allowed_pods, room.allowed_pods),
            (self.requested[CPU], sum(asked.milli_cpu for asked in requests)),
            (self.requested[MEMORY], sum(asked.memory for asked in requests)),
            (self.requested[EPHEMERAL_STORAGE], sum(asked.ephemeral_storage for asked in requests)),
            (self.nonzero_cpu, sum(cpu for cpu, _ in nonzero)),
            (self.nonzero_memory, sum(memory for _, memory in nonzero)),
            (self.pod_count, len(pods)),
        ]
        for resource, index in self.resource_index.items():
            if index >= len(_NATIVE_RESOURCES):
                asked_for = sum(asked.scalars.get(resource, 0) for asked in requests)
                sums.append((self.allocatable[index], room.scalars.get(resource, 0)))
                sums.append((self.requested[index], asked_for))
        for column, expected in sums:
            # Sums of absurd quantities wrap around.
            drift = (column.cells[row] - expected) % 2**64
            assert not drift, f"a sum of node {node.metadata.name} drifted"
        there = {port for pod in pods for port in pod.host_ports}
        assert self.ports.ports_of(row) <= there, f"ports of node {node.metadata.name} drifted"


def _counted_alike(old: Pod, new: Pod) -> bool:
    """True if both versions of a pod are of one label class."""
    before, after = old.metadata, new.metadata
    return before.labels == after.labels and (before.deletion_timestamp is None) == (
        after.deletion_timestamp is None
    )


def _scheduling_relevant_change(old: Node, new: Node) -> bool:
    """True if anything changed that a plugin may read; condition timestamps do not count."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
        or old.metadata.uid != new.metadata.uid
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
        or old.status.images != new.status.images
        or old.status.declared_features != new.status.declared_features
        or conditions_of(old) != conditions_of(new)
    )


def conditions_of(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions or ()}


def _no_ids(capacity: int) -> Indices:
    ids: Indices = np.full(capacity, ABSENT, dtype=np.intp)
    ids.flags.writeable = False
    return ids
