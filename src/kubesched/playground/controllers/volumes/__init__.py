"""Persistent volumes: binding, provisioning, protection and reclaiming.

selection    which volume fits a claim (pure)
binder       two-way binding of claims and volumes, reclaiming
provisioner  creates and deletes volumes for claims
ephemeral    claims that live as long as their pod
protection   finalizers that keep objects in use from being deleted
csi          what a storage driver publishes about itself and nodes
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
