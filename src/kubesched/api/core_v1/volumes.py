"""Volumes as pods ask for them and as persistent volumes provide them."""

from __future__ import annotations

from kubesched.api.core_v1.references import (
    LocalObjectReference,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from kubesched.api.meta import LabelSelector, ObjectMeta, RawQuantity, Record, ResourceList


class GCEPersistentDiskVolumeSource(Record):
    """A Google Compute Engine disk."""

    pd_name: str = ""
    fs_type: str = ""
    partition: int = 0
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Record):
    """An AWS EBS volume."""

    volume_id: str = ""
    fs_type: str = ""
    partition: int = 0
    read_only: bool = False


class AzureDiskVolumeSource(Record):
    """An Azure data disk."""

    disk_name: str = ""
    disk_uri: str = ""
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    kind: str | None = None


class AzureFileVolumeSource(Record):
    """An Azure file share; the namespace is known only for persistent volumes."""

    secret_name: str = ""
    share_name: str = ""
    read_only: bool = False
    secret_namespace: str | None = None


class CinderVolumeSource(Record):
    """An OpenStack Cinder volume."""

    volume_id: str = ""
    fs_type: str = ""
    read_only: bool = False


class PortworxVolumeSource(Record):
    """A Portworx volume."""

    volume_id: str = ""
    fs_type: str = ""
    read_only: bool = False


class VsphereVirtualDiskVolumeSource(Record):
    """A vSphere virtual disk."""

    volume_path: str = ""
    fs_type: str = ""
    storage_policy_name: str = ""
    storage_policy_id: str = ""


class RBDVolumeSource(Record):
    """A Ceph block device; `monitors` and `image` decide on conflicts."""

    monitors: list[str] | None = None
    image: str = ""
    fs_type: str = ""
    pool: str = ""
    user: str = ""
    keyring: str = ""
    read_only: bool = False


class ISCSIVolumeSource(Record):
    """An iSCSI disk; `iqn` decides on conflicts."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: list[str] | None = None


class FCVolumeSource(Record):
    """A Fibre Channel disk."""

    target_wwns: list[str] | None = None
    lun: int | None = None
    fs_type: str = ""
    read_only: bool = False
    wwids: list[str] | None = None


class NFSVolumeSource(Record):
    """An NFS export."""

    server: str = ""
    path: str = ""
    read_only: bool = False


class HostPathVolumeSource(Record):
    """A path on the node."""

    path: str = ""
    type: str | None = None


class LocalVolumeSource(Record):
    """A disk or directory that exists on one node."""

    path: str = ""
    fs_type: str | None = None


class EmptyDirVolumeSource(Record):
    """Scratch space that lives as long as the pod."""

    medium: str = ""
    size_limit: RawQuantity | None = None


class SecretVolumeSource(Record):
    """A Secret as files."""

    secret_name: str = ""
    default_mode: int | None = None
    optional: bool | None = None


class ConfigMapVolumeSource(Record):
    """A ConfigMap as files."""

    name: str = ""
    default_mode: int | None = None
    optional: bool | None = None


class ProjectedVolumeSource(Record):
    """Several sources in one directory. Nearly every pod has one; its parts are not read here."""

    default_mode: int | None = None


class ImageVolumeSource(Record):
    """An OCI image mounted as a volume."""

    reference: str = ""
    pull_policy: str = ""


class CSIVolumeSource(Record):
    """An inline volume of a CSI driver."""

    driver: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] | None = None
    node_publish_secret_ref: LocalObjectReference | None = None


class PersistentVolumeClaimVolumeSource(Record):
    """A claim of the pod's namespace, by name."""

    claim_name: str = ""
    read_only: bool = False


class VolumeResourceRequirements(Record):
    """How much storage a claim asks for."""

    limits: ResourceList | None = None
    requests: ResourceList | None = None


class PersistentVolumeClaimSpec(Record):
    """What storage a claim wants, and which volume it got."""

    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimTemplate(Record):
    """The claim to make for a pod's ephemeral volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolumeSource(Record):
    """A claim made for this pod and deleted with it; it is named `<pod>-<volume>`."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(Record):
    """A pod's volume: a name and one source (those that no decision depends on are left out)."""

    name: str = ""
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    fc: FCVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
