"""Unique names of CSI volumes of pods and claims.

Two volumes are the same if driver and handle are equal: a claim used by two pods, an in-tree disk
and its migrated form. A claim without a volume counts as well, under a generated unique name.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod, Volume
from kubesched.api.storage_v1 import StorageClass
from kubesched.framework.handle import Lister, Listers
from kubesched.plugins.helper.volumes.claims import claim_use, class_of_claim
from kubesched.plugins.helper.volumes.csi_migration import (
    TranslationError,
    inline_handle,
    plugin_named,
    plugin_of,
    volume_handle,
)

NO_NAME: Final = "PersistentVolumeClaim had no name"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class CsiVolume(NamedTuple):
    """A volume in its driver's terms."""

    driver: str
    name: str
    """`<driver>/<handle>`."""
    needs_csi_node: bool
    """True for a migrated in-tree volume: it counts only on nodes with a CSINode."""


class VolumeUse(NamedTuple):
    """A pod's volume that may have to be attached: a claim or an inline volume."""

    claim: str
    """`namespace/name`; empty for an inline volume."""
    owner: str = ""
    """UID of the pod that must own the claim; set for ephemeral volumes."""
    inline: CsiVolume | None = None


class CannotTell(Exception):
    """A pod's volumes cannot be listed; the message is upstream's."""


class VolumeNames:
    """Resolves claims through the current volumes and storage classes."""

    def __init__(self, listers: Listers, random: Random) -> None:
        self.claims: Lister[PersistentVolumeClaim] = listers.of(PersistentVolumeClaim)
        self.volumes: Lister[PersistentVolume] = listers.of(PersistentVolume)
        self.classes: Lister[StorageClass] = listers.of(StorageClass)
        self._prefix = "".join(random.choices(_LETTERS, k=32))

    def of_claim(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        """The claim's volume; None if it is not a CSI volume."""
        volume = self.volumes.get("", claim.spec.volume_name) if claim.spec.volume_name else None
        return self._by_class(claim) if volume is None else of_volume(volume)

    def _by_class(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        class_name = class_of_claim(claim)
        storage_class = self.classes.get("", class_name) if class_name else None
        if storage_class is None:
            # Such a claim must be bound before its pod is scheduled, so it is not counted.
            return None
        handle = f"{self._prefix}-{claim.metadata.namespace}/{claim.metadata.name}"
        plugin = plugin_named(storage_class.provisioner)
        if plugin is None:
            return _named(storage_class.provisioner, handle)
        return _named(plugin.driver, handle, migrated=True) if plugin.is_migrated else None


def of_volume(volume: PersistentVolume) -> CsiVolume | None:
    """A persistent volume, translated if its in-tree plugin is migrated.

    # Upstream: here, unlike for node affinity, the plugins migrated on the node are not checked.
    """
    csi = volume.spec.csi
    if csi is not None:
        return _named(csi.driver, csi.volume_handle)
    plugin = plugin_of(volume.spec)
    if plugin is None or not plugin.is_migrated:
        return None
    try:
        return _named(plugin.driver, volume_handle(plugin, volume), migrated=True)
    except TranslationError:
        return None


def of_inline(volume: Volume) -> CsiVolume | None:
    """An inline volume of a migrated in-tree plugin; raises CannotTell."""
    plugin = plugin_of(volume)
    if plugin is None or not plugin.is_migrated:
        return None
    try:
        handle = inline_handle(plugin, volume)
    except TranslationError as error:
        raise CannotTell(f"converting volume({volume.name}) from inline to csi: {error}") from error
    # Upstream: an empty handle counts here, while that of a claim's volume does not.
    return CsiVolume(plugin.driver, f"{plugin.driver}/{handle}", needs_csi_node=True)


def uses_of_pod(pod: Pod) -> list[VolumeUse]:
    """The volumes a pod may need attached, without duplicates; raises CannotTell."""
    namespace = pod.metadata.namespace
    uses: dict[VolumeUse, None] = {}
    for volume in pod.spec.volumes or ():
        use = claim_use(pod, volume)
        if use is None:
            inline = of_inline(volume)
            if inline is not None:
                uses[VolumeUse("", inline=inline)] = None
        elif not use.name:
            raise CannotTell(NO_NAME)
        else:
            owner = pod.metadata.uid if use.is_ephemeral else ""
            uses[VolumeUse(f"{namespace}/{use.name}", owner)] = None
    return list(uses)


def _named(driver: str, handle: str, *, migrated: bool = False) -> CsiVolume | None:
    return CsiVolume(driver, f"{driver}/{handle}", migrated) if driver and handle else None
