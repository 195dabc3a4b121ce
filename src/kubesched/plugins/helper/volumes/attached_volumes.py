"""Number of volumes of each CSI driver per node: a column per driver, kept current.

A node's volumes are those its pods use and those attached according to VolumeAttachments; a volume
that is both, or is used by several pods, counts once. A row is counted again when its pods or
attachments change, or an object that was read for it: a claim, its volume, or its class. `sync`
does so, so a cluster without such pods pays nothing.

Volumes that count only on nodes with a CSINode are counted everywhere: a node without one has no
limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.api.pod_volumes import CLAIM, EPHEMERAL, MIGRATABLE
from kubesched.api.storage_v1 import StorageClass, VolumeAttachment
from kubesched.framework.handle import Lister
from kubesched.framework.nodes.columns import IntColumn
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.plugins.helper.grouping import leave_group
from kubesched.plugins.helper.volumes.claims import class_of_claim
from kubesched.plugins.helper.volumes.volume_names import (
    CannotTell,
    CsiVolume,
    VolumeNames,
    VolumeUse,
    uses_of_pod,
)
from kubesched.plugins.helper.volumes.wiring import changed_key

ATTACHABLE: Final = CLAIM | EPHEMERAL | MIGRATABLE

ObjectKey = tuple[type[ApiObject], str]
"""A kind, and `namespace/name` or the name of a cluster-scoped object."""


@dataclass(slots=True)
class _Row:
    """What was counted at a row, and what it depends on."""

    used: dict[str, CsiVolume] = field(default_factory=dict)
    attached: list[CsiVolume] = field(default_factory=list)
    reads: dict[ObjectKey, None] = field(default_factory=dict)


_NOTHING: Final = _Row()


class AttachedVolumes:
    """Follows pods, claims, volumes, classes and VolumeAttachments. Call `sync` before reading."""

    def __init__(
        self, table: NodeTable, names: VolumeNames, attachments: Lister[VolumeAttachment]
    ) -> None:
        self.table = table
        self._names = names
        self._cursor = self._epoch = -1
        self._rows: dict[int, _Row] = {}
        self._rows_using: dict[str, dict[int, None]] = {}
        self._rows_reading: dict[ObjectKey, dict[int, None]] = {}
        self._stale: set[int] = set()
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}
        """By node and name."""
        self._counts: dict[str, IntColumn] = {}
        self.broken: dict[int, str] = {}
        """Row -> why its pods' volumes cannot be counted; only rows with such a problem."""
        for attachment in attachments.list():
            self._attachment_changed(None, attachment)
        self._stops = [
            names.claims.subscribe(partial(self._changed, PersistentVolumeClaim)),
            names.volumes.subscribe(partial(self._changed, PersistentVolume)),
            names.classes.subscribe(partial(self._changed, StorageClass)),
            attachments.subscribe(self._attachment_changed),
        ]

    def close(self) -> None:
        for stop in self._stops:
            stop()
        self._stops.clear()

    # -- lookup ------------------------------------------------------------------------------------

    def counts(self, driver: str) -> IntColumn:
        """Volumes of the driver at each row."""
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = IntColumn(self.table.capacity)
        return column

    def rows_using(self, name: str) -> Iterable[int]:
        """Rows with a pod that uses the volume, without rows where it is only attached."""
        return self._rows_using.get(name, ())

    def attached_at(self, row: int) -> list[CsiVolume]:
        """The volumes attached to a row according to VolumeAttachments."""
        return self._rows.get(row, _NOTHING).attached

    def used_by(
        self, pods: Iterable[PodInfo], reads: dict[ObjectKey, None] | None = None
    ) -> dict[str, CsiVolume]:
        """The volumes of these pods, by name; adds the objects read. Raises CannotTell."""
        reads = {} if reads is None else reads
        volumes: dict[str, CsiVolume] = {}
        for pod in pods:
            if pod.volume_uses & ATTACHABLE:
                for use in uses_of_pod(pod.pod):
                    volume = use.inline or self._volume_of(use, pod, reads)
                    if volume is not None:
                        volumes[volume.name] = volume
        return volumes

    def _volume_of(
        self, use: VolumeUse, pod: PodInfo, reads: dict[ObjectKey, None]
    ) -> CsiVolume | None:
        namespace, _, name = use.claim.partition("/")
        claim: PersistentVolumeClaim | None = self._names.claims.get(namespace, name)
        reads[PersistentVolumeClaim, use.claim] = None
        if claim is None:
            return None
        reads[PersistentVolume, claim.spec.volume_name] = None
        reads[StorageClass, class_of_claim(claim)] = None
        if use.owner and _owner(claim) != use.owner:
            raise CannotTell(
                f"PVC {use.claim} was not created for pod {pod.key} (pod is not owner)"
            )
        return self._names.of_claim(claim)

    # -- changes -----------------------------------------------------------------------------------

    def _changed(self, kind: type[ApiObject], old: ApiObject | None, new: ApiObject | None) -> None:
        self._stale.update(self._rows_reading.get((kind, changed_key(old, new)), ()))

    def _attachment_changed(
        self, old: VolumeAttachment | None, new: VolumeAttachment | None
    ) -> None:
        if old is not None:
            leave_group(self._attachments, old.spec.node_name, key_of(old.metadata))
        if new is not None:
            here = self._attachments.setdefault(new.spec.node_name, {})
            here[key_of(new.metadata)] = new
        for changed in (old, new):
            row = None if changed is None else self.table.row_of.get(changed.spec.node_name)
            if row is not None:
                self._stale.add(row)

    # -- counting ----------------------------------------------------------------------------------

    def sync(self) -> None:
        table = self.table
        if self._epoch != table.epoch:
            self._epoch = table.epoch
            for column in self._counts.values():
                column.grow(table.capacity)
        changed = table.pod_log.since(self._cursor)
        self._cursor = table.pod_log.end
        self._stale.update(range(table.high_water) if changed is None else changed)
        while self._stale:
            self._count_again(self._stale.pop())

    def _count_again(self, row: int) -> None:
        self._forget(row)
        now, node = _Row(), self.table.names[row]
        try:
            now.used = self.used_by(self.table.pods[row].values(), now.reads)
        except CannotTell as problem:
            self.broken[row] = str(problem)
        if node in self._attachments:
            now.attached = self._attached_to(node, now.reads)
        if not (now.used or now.attached or now.reads):
            return
        self._rows[row] = now
        for name in now.used:
            self._rows_using.setdefault(name, {})[row] = None
        for key in now.reads:
            self._rows_reading.setdefault(key, {})[row] = None
        self._add(row, now, 1)

    def _forget(self, row: int) -> None:
        self.broken.pop(row, None)
        before = self._rows.pop(row, None)
        if before is not None:
            for name in before.used:
                leave_group(self._rows_using, name, row)
            for key in before.reads:
                leave_group(self._rows_reading, key, row)
            self._add(row, before, -1)

    def _add(self, row: int, counted: _Row, sign: int) -> None:
        for volume in ({held.name: held for held in counted.attached} | counted.used).values():
            self.counts(volume.driver).cells[row] += sign

    def _attached_to(self, node: str, reads: dict[ObjectKey, None]) -> list[CsiVolume]:
        """Attached volumes; several attachments of one volume count once.

        # Upstream: in-tree volumes are never counted here, migrated or not.
        """
        attached: dict[str, CsiVolume] = {}
        for attachment in self._attachments[node].values():
            attacher, name = attachment.spec.attacher, attachment.spec.source.persistent_volume_name
            if not attacher or name is None:
                continue
            reads[PersistentVolume, name] = None
            volume = self._names.volumes.get("", name)
            if volume is not None and volume.spec.csi is not None:
                unique = f"{attacher}/{volume.spec.csi.volume_handle}"
                attached[unique] = CsiVolume(attacher, unique, needs_csi_node=False)
        return list(attached.values())


def _owner(claim: PersistentVolumeClaim) -> str:
    controller = claim.metadata.controller()
    return "" if controller is None else controller.uid
