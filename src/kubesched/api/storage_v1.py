"""storage.k8s.io/v1: storage classes, CSI drivers, and their limits on nodes."""

from __future__ import annotations

from kubesched.api.core_v1 import TopologySelectorTerm
from kubesched.api.meta import LabelSelector, ObjectMeta, RawQuantity, Record, constant


class StorageClass(Record):
    """How volumes of a class are provisioned and bound."""

    kind: str = constant("StorageClass")
    api_version: str = constant("storage.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    parameters: dict[str, str] | None = None
    reclaim_policy: str | None = None
    mount_options: list[str] | None = None
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] | None = None


class VolumeNodeResources(Record):
    """How many volumes of a driver a node can have."""

    count: int | None = None


class CSINodeDriver(Record):
    """A CSI driver as it runs on one node."""

    name: str = ""
    topology_keys: list[str] | None = None
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Record):
    """The drivers of a node."""

    drivers: list[CSINodeDriver] | None = None


class CSINode(Record):
    """The CSI drivers of a node; has the node's name."""

    kind: str = constant("CSINode")
    api_version: str = constant("storage.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Record):
    """Requirements and capabilities of a driver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Record):
    """A CSI driver installed in the cluster."""

    kind: str = constant("CSIDriver")
    api_version: str = constant("storage.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Record):
    """How much storage of a class is left for nodes of a topology segment."""

    kind: str = constant("CSIStorageCapacity")
    api_version: str = constant("storage.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: RawQuantity | None = None
    maximum_volume_size: RawQuantity | None = None


class VolumeAttachmentSource(Record):
    """The volume to attach."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Record):
    """Volume, node and attacher."""

    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()
    node_name: str = ""


class VolumeAttachmentStatus(Record):
    """Whether the volume is attached."""

    attached: bool = False


class VolumeAttachment(Record):
    """A request to attach a volume to a node."""

    kind: str = constant("VolumeAttachment")
    api_version: str = constant("storage.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
