"""Queueing hints of VolumeBinding."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.api.storage_v1 import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from kubesched.framework.engine import reads
from kubesched.framework.events import Hint
from kubesched.plugins.helper.volumes.csi_migration import MIGRATED_PLUGINS
from kubesched.plugins.volume_binding.storage import volume_limit


@reads("class")
def after_class_change(pod: Pod, old: StorageClass | None, new: StorageClass) -> Hint:
    changed = old is None or (old.allowed_topologies or []) != (new.allowed_topologies or [])
    return Hint.QUEUE if changed else Hint.SKIP


@reads("class")
def after_csi_node_change(pod: Pod, old: CSINode | None, new: CSINode) -> Hint:
    changed = old is None or _migrated(old) != _migrated(new)
    return Hint.QUEUE if changed else Hint.SKIP


@reads("class")
def after_driver_update(pod: Pod, old: CSIDriver, new: CSIDriver) -> Hint:
    """The driver no longer reports capacity.

    # Upstream: only pods with an inline volume of the driver are brought back, although it is those
    # with claims that capacity kept waiting.
    """
    is_used = any(
        volume.csi is not None and volume.csi.driver == new.metadata.name
        for volume in pod.spec.volumes or ()
    )
    stopped = bool(old.spec.storage_capacity) and not new.spec.storage_capacity
    return Hint.QUEUE if is_used and stopped else Hint.SKIP


@reads("class")
def after_capacity_change(
    pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity
) -> Hint:
    """Larger volumes fit than before."""
    if old is None:
        return Hint.QUEUE
    before, after = volume_limit(old), volume_limit(new)
    grew = after is not None and (before is None or after > before)
    return Hint.QUEUE if grew else Hint.SKIP


def _migrated(node: CSINode) -> str:
    return (node.metadata.annotations or {}).get(MIGRATED_PLUGINS, "")
