"""Number of volumes of each CSI driver per node: a column per driver, kept current.

A node's volumes are those its pods use and those attached according to VolumeAttachments; a volume
that is both, or is used by several pods, counts once. The volume behind a claim changes when the
claim is bound, or when its volume or class appears: such changes are recorded as they happen and
applied in `sync`.

    _claims     claims in use on some row: the volume behind each, and its users by row
    _mounted    volume name -> row -> number of uses by pods there
    _attached   volume name -> row -> 1 if a VolumeAttachment exists
    _counts     driver -> column: number of volumes in `_mounted` or `_attached` at a row

Volumes that count only on nodes with a CSINode are counted everywhere: a node without one has no
limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.pod_volumes import CLAIM, EPHEMERAL, MIGRATABLE
from kubesched.api.storage_v1 import StorageClass, VolumeAttachment
from kubesched.framework.handle import Lister
from kubesched.framework.nodes.columns import IntColumn
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.plugins.helper.grouping import leave_group
from kubesched.plugins.helper.volumes.claims import class_of_claim
from kubesched.plugins.helper.volumes.pod_followers import PodFollower
from kubesched.plugins.helper.volumes.volume_names import (
    CannotTell,
    CsiVolume,
    VolumeNames,
    VolumeUse,
    uses_of_pod,
)
from kubesched.plugins.helper.volumes.wiring import changed_key

ATTACHABLE: Final = CLAIM | EPHEMERAL | MIGRATABLE

_NOWHERE: Final[Mapping[int, int]] = {}


class _Claim:
    """A claim in use."""

    __slots__ = ("class_name", "owner", "users", "volume", "volume_name")

    def __init__(self) -> None:
        self.volume: CsiVolume | None = None
        self.volume_name = ""
        self.class_name = ""
        self.owner: str | None = None
        """UID of the controlling object, or empty; None while the claim does not exist."""
        self.users: dict[tuple[int, VolumeUse], list[PodInfo]] = {}


class AttachedVolumes(PodFollower):
    """Follows pods, claims, volumes, classes and VolumeAttachments."""

    interesting = ATTACHABLE

    def __init__(
        self, table: NodeTable, names: VolumeNames, attachments: Lister[VolumeAttachment]
    ) -> None:
        super().__init__(table)
        self._resolver = names
        self._claims: dict[str, _Claim] = {}
        self._claims_by_volume: dict[str, dict[str, None]] = {}
        self._claims_by_class: dict[str, dict[str, None]] = {}
        self._stale_claims: set[str] = set()
        self._attachments = attachments
        self._by_node: dict[str, dict[str, VolumeAttachment]] = {}
        self._nodes_by_volume: dict[str, dict[str, None]] = {}
        self._stale_nodes: set[str] = set()
        self._attached_at: dict[int, list[CsiVolume]] = {}
        self._mounted: dict[str, dict[int, int]] = {}
        self._attached: dict[str, dict[int, int]] = {}
        self._counts: dict[str, IntColumn] = {}
        self._broken: dict[int, dict[tuple[str, str], str]] = {}
        for attachment in attachments.list():
            self._attachment_changed(None, attachment)
        self._stops = [
            names.claims.subscribe(self._claim_changed),
            names.volumes.subscribe(self._volume_changed),
            names.classes.subscribe(self._class_changed),
            attachments.subscribe(self._attachment_changed),
        ]

    def close(self) -> None:
        for stop in self._stops:
            stop()
        self._stops.clear()

    # -- lookup ------------------------------------------------------------------------------------

    def sync(self) -> None:
        super().sync()
        while self._stale_claims:
            self._resolve_again(self._stale_claims.pop())
        while self._stale_nodes:
            self._attach_again(self._stale_nodes.pop())

    def counts(self, driver: str) -> IntColumn:
        """Volumes of the driver at each row."""
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = IntColumn(self.table.capacity)
        return column

    def rows_using(self, name: str) -> Iterable[int]:
        """Rows with a pod that uses the volume, without rows where it is only attached."""
        return self._mounted.get(name, _NOWHERE)

    @property
    def broken(self) -> Mapping[int, Mapping[tuple[str, str], str]]:
        """Row -> why its pods' volumes cannot be counted; only rows with such a problem."""
        return self._broken

    def used_by(self, pods: Iterable[PodInfo]) -> dict[str, CsiVolume]:
        """The volumes of these pods, by name; raises CannotTell."""
        volumes: dict[str, CsiVolume] = {}
        for pod in pods:
            if pod.volume_uses & ATTACHABLE:
                for use in uses_of_pod(pod.pod):
                    volume = use.inline or self._volume_of(use, pod)
                    if volume is not None:
                        volumes[volume.name] = volume
        return volumes

    def attached_at(self, row: int) -> list[CsiVolume]:
        """The volumes attached to a row according to VolumeAttachments."""
        return self._attached_at.get(row, [])

    def _volume_of(self, use: VolumeUse, pod: PodInfo) -> CsiVolume | None:
        namespace, _, name = use.claim.partition("/")
        claim = self._resolver.claims.get(namespace, name)
        if claim is None:
            return None
        if use.owner and _owner(claim) != use.owner:
            raise CannotTell(_not_owned(use.claim, pod))
        return self._resolver.of_claim(claim)

    # -- pods --------------------------------------------------------------------------------------

    def _pod_came(self, row: int, pod: PodInfo) -> None:
        try:
            uses = uses_of_pod(pod.pod)
        except CannotTell as problem:
            self._broken.setdefault(row, {})[pod.uid, ""] = str(problem)
            return
        for use in uses:
            if use.inline is not None:
                self._mount(use.inline, row)
                continue
            claim = self._claims.get(use.claim)
            if claim is None:
                claim = self._claims[use.claim] = _Claim()
                self._load(use.claim, claim)
            claim.users.setdefault((row, use), []).append(pod)
            if claim.volume is not None:
                self._mount(claim.volume, row)
            if use.owner and claim.owner not in (None, use.owner):
                self._note_not_owned(row, use, pod)

    def _pod_left(self, row: int, pod: PodInfo) -> None:
        try:
            uses = uses_of_pod(pod.pod)
        except CannotTell:
            leave_group(self._broken, row, (pod.uid, ""))
            return
        for use in uses:
            if use.inline is not None:
                self._unmount(use.inline, row)
                continue
            claim = self._claims[use.claim]
            users = claim.users[row, use]
            users[:] = [user for user in users if user.uid != pod.uid]
            if not users:
                del claim.users[row, use]
            if claim.volume is not None:
                self._unmount(claim.volume, row)
            leave_group(self._broken, row, (pod.uid, use.claim))
            if not claim.users:
                self._unlink(use.claim, claim)
                del self._claims[use.claim]

    def _note_not_owned(self, row: int, use: VolumeUse, pod: PodInfo) -> None:
        self._broken.setdefault(row, {})[pod.uid, use.claim] = _not_owned(use.claim, pod)

    # -- claims ------------------------------------------------------------------------------------

    def _load(self, key: str, claim: _Claim) -> None:
        """Resolve the claim to its current volume."""
        namespace, _, name = key.partition("/")
        record = self._resolver.claims.get(namespace, name)
        if record is None:
            claim.volume, claim.owner, claim.volume_name, claim.class_name = None, None, "", ""
            return
        claim.volume = self._resolver.of_claim(record)
        claim.owner = _owner(record)
        claim.volume_name, claim.class_name = record.spec.volume_name, class_of_claim(record)
        if claim.volume_name:
            self._claims_by_volume.setdefault(claim.volume_name, {})[key] = None
        if claim.class_name:
            self._claims_by_class.setdefault(claim.class_name, {})[key] = None

    def _unlink(self, key: str, claim: _Claim) -> None:
        leave_group(self._claims_by_volume, claim.volume_name, key)
        leave_group(self._claims_by_class, claim.class_name, key)

    def _resolve_again(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        before, owner_before = claim.volume, claim.owner
        self._unlink(key, claim)
        self._load(key, claim)
        if (claim.volume, claim.owner) == (before, owner_before):
            return
        for (row, use), users in claim.users.items():
            for user in users:
                if before is not None:
                    self._unmount(before, row)
                if claim.volume is not None:
                    self._mount(claim.volume, row)
                if use.owner and claim.owner not in (None, use.owner):
                    self._note_not_owned(row, use, user)
                else:
                    leave_group(self._broken, row, (user.uid, use.claim))

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        key = changed_key(old, new)
        if key in self._claims:
            self._stale_claims.add(key)

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        name = changed_key(old, new)
        self._stale_claims.update(self._claims_by_volume.get(name, ()))
        self._stale_nodes.update(self._nodes_by_volume.get(name, ()))

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        name = changed_key(old, new)
        self._stale_claims.update(self._claims_by_class.get(name, ()))

    # -- attachments -------------------------------------------------------------------------------

    def _attachment_changed(
        self, old: VolumeAttachment | None, new: VolumeAttachment | None
    ) -> None:
        if old is not None:
            self._drop_attachment(old)
        if new is not None:
            self._by_node.setdefault(new.spec.node_name, {})[new.metadata.name] = new
            name = new.spec.source.persistent_volume_name
            if name is not None:
                self._nodes_by_volume.setdefault(name, {})[new.spec.node_name] = None
            self._stale_nodes.add(new.spec.node_name)

    def _drop_attachment(self, gone: VolumeAttachment) -> None:
        node, volume = gone.spec.node_name, gone.spec.source.persistent_volume_name
        leave_group(self._by_node, node, gone.metadata.name)
        others = self._by_node.get(node, {}).values()
        if volume is not None and not any(
            attachment.spec.source.persistent_volume_name == volume for attachment in others
        ):
            leave_group(self._nodes_by_volume, volume, node)
        self._stale_nodes.add(node)

    def _attach_again(self, node: str) -> None:
        row = self.table.row_of.get(node)
        if row is not None:
            self._detach(row)
            self._attach(row, node)

    def _node_came(self, row: int, name: str) -> None:
        self._stale_nodes.discard(name)
        self._attach(row, name)

    def _node_left(self, row: int, name: str) -> None:
        self._detach(row)

    def _attach(self, row: int, node: str) -> None:
        """Count attached volumes; several attachments of one volume count once.

        # Upstream: in-tree volumes are never counted here, migrated or not.
        """
        attached: dict[str, CsiVolume] = {}
        for attachment in self._by_node.get(node, {}).values():
            attacher, name = (
                attachment.spec.attacher,
                attachment.spec.source.persistent_volume_name,
            )
            volume = self._resolver.volumes.get("", name) if attacher and name is not None else None
            if volume is not None and volume.spec.csi is not None:
                unique = f"{attacher}/{volume.spec.csi.volume_handle}"
                attached[unique] = CsiVolume(attacher, unique, needs_csi_node=False)
        if not attached:
            return
        self._attached_at[row] = list(attached.values())
        for held in attached.values():
            rows = self._attached.setdefault(held.name, {})
            rows[row] = 1
            if row not in self._mounted.get(held.name, _NOWHERE):
                self.counts(held.driver).cells[row] += 1

    def _detach(self, row: int) -> None:
        for volume in self._attached_at.pop(row, ()):
            leave_group(self._attached, volume.name, row)
            if row not in self._mounted.get(volume.name, _NOWHERE):
                self.counts(volume.driver).cells[row] -= 1

    # -- counting ----------------------------------------------------------------------------------

    def _mount(self, volume: CsiVolume, row: int) -> None:
        rows = self._mounted.setdefault(volume.name, {})
        uses = rows[row] = rows.get(row, 0) + 1
        if uses == 1 and row not in self._attached.get(volume.name, _NOWHERE):
            self.counts(volume.driver).cells[row] += 1

    def _unmount(self, volume: CsiVolume, row: int) -> None:
        rows = self._mounted[volume.name]
        rows[row] -= 1
        if rows[row]:
            return
        leave_group(self._mounted, volume.name, row)
        if row not in self._attached.get(volume.name, _NOWHERE):
            self.counts(volume.driver).cells[row] -= 1

    def _table_grew(self, capacity: int) -> None:
        for column in self._counts.values():
            if len(column.array) < capacity:
                column.grow(capacity)


def _owner(claim: PersistentVolumeClaim) -> str:
    controller = claim.metadata.controller()
    return "" if controller is None else controller.uid


def _not_owned(claim: str, pod: PodInfo) -> str:
    return f"PVC {claim} was not created for pod {pod.key} (pod is not owner)"
