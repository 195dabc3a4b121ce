"""Inline disks that pods on one node must not share, by row and pod."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kubesched.api.core_v1 import Pod, Volume
from kubesched.api.pod_volumes import DISK
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.plugins.helper.grouping import leave_group
from kubesched.plugins.helper.volumes.pod_followers import PodFollower


class Disk(NamedTuple):
    """An inline disk as mounted by one pod."""

    identity: Hashable
    """Disks with different identities are never the same."""
    read_only: bool
    monitors: frozenset[str] | None = None
    """Ceph monitors; two RBD disks are the same only if they share one."""

    def conflicts_with(self, other: Disk) -> bool:
        if self.identity != other.identity or (self.read_only and other.read_only):
            return False
        if self.monitors is None or other.monitors is None:
            return True
        return not self.monitors.isdisjoint(other.monitors)


def disks_of(pod: Pod) -> list[Disk]:
    return [disk for volume in pod.spec.volumes or () for disk in _disks(volume)]


def _disks(volume: Volume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Disk(("GCE PD", gce.pd_name), gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        # Upstream: an EBS volume is never shared, not even by readers.
        yield Disk(("AWS EBS", ebs.volume_id), read_only=False)
    if (iscsi := volume.iscsi) is not None:
        yield Disk(("iSCSI", iscsi.iqn), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        monitors = frozenset(rbd.monitors or ())
        yield Disk(("RBD", rbd.pool, rbd.image), rbd.read_only, monitors)


def conflict(mine: Sequence[Disk], theirs: Iterable[Disk]) -> bool:
    return any(disk.conflicts_with(other) for other in theirs for disk in mine)


class SharedDisks(PodFollower):
    """Every inline disk in use, by identity."""

    interesting = DISK

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._users: dict[Hashable, dict[tuple[int, str], list[Disk]]] = {}

    def conflicting_rows(self, wanted: Sequence[Disk]) -> list[int]:
        """Rows with a pod whose disks conflict with a wanted one."""
        self.sync()
        return [
            row
            for disk in wanted
            for (row, _), theirs in self._users.get(disk.identity, {}).items()
            if conflict((disk,), theirs)
        ]

    def _pod_came(self, row: int, pod: PodInfo) -> None:
        for disk in disks_of(pod.pod):
            users = self._users.setdefault(disk.identity, {})
            users.setdefault((row, pod.uid), []).append(disk)

    def _pod_left(self, row: int, pod: PodInfo) -> None:
        for disk in disks_of(pod.pod):
            leave_group(self._users, disk.identity, (row, pod.uid))
