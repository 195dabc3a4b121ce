"""Shared GPUs: pods take whole devices or a part of one.

A node offers 1,000 units of one extended resource per GPU, so NodeResourcesFit and all scores see
the sums. Sums do not show the room on a single device: a pod that requests less than 1,000 units
must get them from one GPU, and one that requests a multiple gets whole free GPUs. The ledger tracks
what is left of each device; the Filter plugin `GpuShare` reads it.

A shared pod gets the fullest device with room, the first if several are equal; whole GPUs are taken
in order.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from kubesched.api.core_v1 import Node, Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from kubesched.framework.interfaces import EnqueueExtensions, FilterPlugin, Plugin, ReservePlugin
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import Status, unschedulable
from kubesched.framework.verdicts import Verdicts

GPU_MILLI = "alibabacloud.com/gpu-milli"
WHOLE = 1000
"""Units per GPU."""
PLUGIN = "GpuShare"
NO_DEVICE = "node(s) had no GPU with enough left"

Left = npt.NDArray[np.int64]


def wanted_milli(pod: Pod) -> int:
    """The units that a pod requests."""
    total = 0
    for container in pod.spec.containers or ():
        total += int((container.resources.requests or {}).get(GPU_MILLI, 0))
    return total


def devices_for(left: Left, milli: int) -> list[int] | None:
    """The devices of one node that such a pod would get; None if it does not fit."""
    if milli < WHOLE:
        best, best_left = -1, WHOLE + 1
        for device, amount in enumerate(left.tolist()):
            if milli <= amount < best_left:
                best, best_left = device, amount
        return [best] if best >= 0 else None
    free = np.flatnonzero(left == WHOLE)
    count = -(-milli // WHOLE)
    return free[:count].tolist() if len(free) >= count else None


class GpuLedger:
    """The units left on every device, by row of the node table, and the pods that use the rest."""

    def __init__(self) -> None:
        self.left: Left = np.zeros((0, 0), dtype=np.int64)
        """Row, device; 0 beyond a node's devices."""
        self._held: dict[str, tuple[int, list[int], int]] = {}
        """Pod UID -> row, devices, units of each."""

    def set_node(self, table: NodeTable, node: Node) -> None:
        """Add a node. A changed node keeps its devices, which pods may use."""
        row = table.row_of[node.metadata.name]
        count = int((node.status.allocatable or {}).get(GPU_MILLI, 0)) // WHOLE
        rows, devices = self.left.shape
        if row >= rows or count > devices:
            grown = np.zeros((max(table.capacity, row + 1), max(count, devices)), dtype=np.int64)
            grown[:rows, :devices] = self.left
            self.left = grown
        self.left[row] = 0
        self.left[row, :count] = WHOLE

    def take(self, row: int, pod: Pod) -> bool:
        """Allocate a pod's devices; False if there is no room."""
        milli = wanted_milli(pod)
        if not milli or pod.metadata.uid in self._held:
            return True
        devices = devices_for(self.left[row], milli)
        if devices is None:
            return False
        per_device = milli if milli < WHOLE else WHOLE
        self.left[row, devices] -= per_device
        self._held[pod.metadata.uid] = (row, devices, per_device)
        return True

    def give_back(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            row, devices, per_device = held
            self.left[row, devices] += per_device

    def held_by(self, uid: str) -> tuple[int, list[int], int] | None:
        return self._held.get(uid)


class GpuShare(FilterPlugin, ReservePlugin, EnqueueExtensions):
    """Rejects nodes without a device that has room; allocates devices at Reserve."""

    name = PLUGIN
    ledger: ClassVar[GpuLedger]

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        milli = wanted_milli(pod)
        if not milli:
            return None
        left = self.ledger.left[nodes.row_indices()]
        if isinstance(nodes, WhatIfColumns):
            left = self._with_changes(left.copy(), nodes)
        share = min(milli, WHOLE)
        lacks: Mask = (left >= share).sum(axis=1) * share < milli
        return Verdicts.reject(lacks, unschedulable(NO_DEVICE))

    def _with_changes(self, left: Left, nodes: WhatIfColumns) -> Left:
        for index in range(len(nodes)):
            for removed in nodes.removed_at(index):
                held = self.ledger.held_by(removed.uid)
                if held is not None:
                    left[index, held[1]] += held[2]
            for added in nodes.added_at(index):
                milli = wanted_milli(added.pod)
                devices = devices_for(left[index], milli) if milli else None
                if devices is not None:
                    left[index, devices] -= min(milli, WHOLE)
        return left

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        # Devices only change when pods arrive on or leave the node.
        return Rule(Scope.ROW)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        row = self.handle.table.row_of[node_name]
        return None if self.ledger.take(row, pod) else unschedulable(NO_DEVICE)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.ledger.give_back(pod.metadata.uid)

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(Resource.POD, Action.DELETE), self.after_pod_left),
            ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD)),
        ]

    def after_pod_left(self, pod: Pod, old: Pod, new: Pod | None) -> Hint:
        """Whether the departed pod's node now has a device for this one."""
        row = self.handle.table.row_of.get(old.spec.node_name)
        if row is None or not wanted_milli(old):
            return Hint.SKIP
        room = devices_for(self.ledger.left[row], wanted_milli(pod))
        return Hint.SKIP if room is None else Hint.QUEUE


def gpu_share_with(ledger: GpuLedger) -> type[Plugin]:
    """The plugin for this ledger; the profiles of a configuration share one."""
    return type(PLUGIN, (GpuShare,), {"ledger": ledger})
