"""PersistentVolume and PersistentVolumeClaim."""

from __future__ import annotations

from kubesched.api.core_v1.placement import NodeSelector
from kubesched.api.core_v1.references import ObjectReference
from kubesched.api.core_v1.volumes import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    PersistentVolumeClaimSpec,
    PortworxVolumeSource,
    UnreadVolumeSource,
    VsphereVirtualDiskVolumeSource,
)
from kubesched.api.meta import ObjectMeta, Record, ResourceList, constant


class CSIPersistentVolumeSource(Record):
    """A volume managed by a CSI driver; (driver, handle) is its identity."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Record):
    """The nodes that can access the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Record):
    """The volume: size, source, class and the claim it is bound to."""

    capacity: ResourceList | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    azure_file: UnreadVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    csi: CSIPersistentVolumeSource | None = None
    access_modes: list[str] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(Record):
    """Phase of the volume: Pending, Available, Bound, Released or Failed."""

    phase: str = ""
    message: str = ""
    reason: str = ""
    last_phase_transition_time: str | None = None


class PersistentVolume(Record):
    """A piece of storage in the cluster."""

    kind: str = constant("PersistentVolume")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimCondition(Record):
    """One aspect of a claim's state, such as a pending resize."""

    type: str = ""
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class PersistentVolumeClaimStatus(Record):
    """The claim's phase, actual size and access modes."""

    phase: str = ""
    access_modes: list[str] | None = None
    capacity: ResourceList | None = None
    conditions: list[PersistentVolumeClaimCondition] | None = None
    allocated_resources: ResourceList | None = None
    allocated_resource_statuses: dict[str, str] | None = None
    current_volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Record):
    """A user's request for storage."""

    kind: str = constant("PersistentVolumeClaim")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()
