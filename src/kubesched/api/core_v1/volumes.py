"""Volumes as used by pods and provided by persistent volumes."""

from __future__ import annotations

from kubesched.api.meta import LabelSelector, Record, ResourceList


class UnreadVolumeSource(Record):
    """A source whose content is never read: Secret, ConfigMap, projected token, ephemeral claim."""


class GCEPersistentDiskVolumeSource(Record):
    """A Google Compute Engine disk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Record):
    """An AWS EBS volume."""

    volume_id: str = ""


class AzureDiskVolumeSource(Record):
    """An Azure data disk."""

    disk_uri: str = ""
    kind: str | None = None


class CinderVolumeSource(Record):
    """An OpenStack Cinder volume."""

    volume_id: str = ""


class PortworxVolumeSource(Record):
    """A Portworx volume."""

    volume_id: str = ""


class VsphereVirtualDiskVolumeSource(Record):
    """A vSphere virtual disk."""

    volume_path: str = ""


class RBDVolumeSource(Record):
    """A Ceph block device; `monitors` and `image` determine conflicts."""

    monitors: list[str] | None = None
    image: str = ""
    pool: str = ""
    read_only: bool = False


class ISCSIVolumeSource(Record):
    """An iSCSI disk; `iqn` determines conflicts."""

    iqn: str = ""
    read_only: bool = False


class ImageVolumeSource(Record):
    """An OCI image mounted as a volume."""

    reference: str = ""


class CSIVolumeSource(Record):
    """An inline volume of a CSI driver."""

    driver: str = ""


class PersistentVolumeClaimVolumeSource(Record):
    """A claim in the pod's namespace, by name."""

    claim_name: str = ""
    read_only: bool = False


class VolumeResourceRequirements(Record):
    """How much storage a claim requests."""

    limits: ResourceList | None = None
    requests: ResourceList | None = None


class PersistentVolumeClaimSpec(Record):
    """The storage that a claim requests, and the volume bound to it."""

    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Volume(Record):
    """A pod's volume: a name and one source (those that affect no decision are left out)."""

    name: str = ""
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    secret: UnreadVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    azure_file: UnreadVolumeSource | None = None
    config_map: UnreadVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    projected: UnreadVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: UnreadVolumeSource | None = None
    image: ImageVolumeSource | None = None
