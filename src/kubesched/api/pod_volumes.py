"""Which volumes of a pod affect its placement, as a set of flags.

Most pods have none, only projected tokens, ConfigMaps and scratch directories, so all volume code
checks these flags first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubesched.api.core_v1 import Volume

# Plain integers: they are tested for every pod, and enum flags are several times slower.
CLAIM: Final = 1
"""A persistentVolumeClaim."""
EPHEMERAL: Final = 2
"""A generic ephemeral volume: a claim created for the pod."""
DISK: Final = 4
"""An inline disk that two pods on one node may not share: GCE PD, AWS EBS, iSCSI, RBD."""
MIGRATABLE: Final = 8
"""An inline volume of an in-tree plugin that a CSI driver has taken over."""
INLINE_CSI: Final = 16
"""An inline volume of a CSI driver."""


def volume_uses(volumes: Iterable[Volume] | None) -> int:
    """The flags of all volumes; 0 if no decision depends on them."""
    uses = 0
    for volume in volumes or ():
        if volume.persistent_volume_claim is not None:
            uses |= CLAIM
        elif volume.ephemeral is not None:
            uses |= EPHEMERAL
        elif volume.projected is None and volume.config_map is None and volume.secret is None:
            uses |= _inline_uses(volume)
    return uses


def _inline_uses(volume: Volume) -> int:
    if volume.csi is not None:
        return INLINE_CSI
    if volume.gce_persistent_disk is not None or volume.aws_elastic_block_store is not None:
        return DISK | MIGRATABLE
    if volume.iscsi is not None or volume.rbd is not None:
        return DISK
    is_migratable = (
        volume.azure_disk is not None
        or volume.azure_file is not None
        or volume.cinder is not None
        or volume.vsphere_volume is not None
        or volume.portworx_volume is not None
    )
    return MIGRATABLE if is_migratable else 0
