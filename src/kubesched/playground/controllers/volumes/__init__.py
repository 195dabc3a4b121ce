"""Persistent volumes: claims find volumes, volumes find their end.

    selection   which volume suits a claim (pure)
    binder      the two-way handshake between claims and volumes, reclaiming
    ephemeral   claims that live as long as their pod
    protection  nothing in use disappears
    csi         what a storage driver publishes about nodes and capacity

Volumes are made by `kubesched.playground.controllers.volumes.provisioner`.
"""

from kubesched.playground.controllers.volumes.binder import VolumeBinder as VolumeBinder
from kubesched.playground.controllers.volumes.csi import CsiPublisher as CsiPublisher
from kubesched.playground.controllers.volumes.csi import StorageDriver as StorageDriver
from kubesched.playground.controllers.volumes.ephemeral import (
    EphemeralVolumes as EphemeralVolumes,
)
from kubesched.playground.controllers.volumes.protection import (
    VolumeProtection as VolumeProtection,
)
