"""Base of indexes over some of the pods on each row.

An index to which few pods are relevant follows the table's log instead of being updated with every
pod: `sync` compares the dirty rows. A cluster that never uses the index pays nothing for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo


class PodFollower(ABC):
    """Follows one table. Call `sync` before reading the index."""

    interesting: int
    """Flags of `api.pod_volumes`; pods with any of them are indexed."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._cursor = self._epoch = -1
        self._names: list[str] = []
        self._pods: dict[int, dict[str, PodInfo]] = {}

    def sync(self) -> None:
        table = self.table
        end = table.pod_log.end
        if self._cursor == end and self._epoch == table.epoch:
            return
        if self._epoch != table.epoch:
            self._table_grew(table.capacity)
            self._epoch = table.epoch
        self._names.extend([""] * (table.high_water - len(self._names)))
        changed = table.pod_log.since(self._cursor)
        for row in range(table.high_water) if changed is None else dict.fromkeys(changed):
            self._compare(row)
        self._cursor = end

    def _compare(self, row: int) -> None:
        table = self.table
        name = table.names[row]
        if name != self._names[row]:
            self._leave(row)
            self._names[row] = name
            if name:
                self._node_came(row, name)
        interesting = self.interesting
        present = {
            uid: pod for uid, pod in table.pods[row].items() if pod.volume_uses & interesting
        }
        known = self._pods.get(row)
        if not present and not known:
            return
        known = known or {}
        for uid, pod in known.items():
            if uid not in present:
                self._pod_left(row, pod)
        for uid, pod in present.items():
            if uid not in known:
                self._pod_came(row, pod)
            else:
                # Keep the record that was added, so that the same one is removed. A pod's volumes
                # never change.
                present[uid] = known[uid]
        if present:
            self._pods[row] = present
        else:
            self._pods.pop(row, None)

    def _leave(self, row: int) -> None:
        for pod in self._pods.pop(row, {}).values():
            self._pod_left(row, pod)
        if self._names[row]:
            self._node_left(row, self._names[row])

    @abstractmethod
    def _pod_came(self, row: int, pod: PodInfo) -> None: ...

    @abstractmethod
    def _pod_left(self, row: int, pod: PodInfo) -> None: ...

    def _node_came(self, row: int, name: str) -> None:  # noqa: B027  # for indexes by node name
        """A node was added at the row; its pods follow."""

    def _node_left(self, row: int, name: str) -> None:  # noqa: B027  # as above
        """The row's node was removed, after its pods."""

    def _table_grew(self, capacity: int) -> None:  # noqa: B027  # for indexes with columns
        """Rows up to `capacity` are about to be used."""
