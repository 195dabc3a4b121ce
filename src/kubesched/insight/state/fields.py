"""What a snapshot leaves out of its records: text that scheduling does not read.

Records have few fields beyond those that scheduling reads. The rest of an object is not decoded.
"""

from __future__ import annotations

from typing import Any

from kubesched.api import apps_v1, meta, resource_v1, scheduling_v1, storage_v1
from kubesched.api.core_v1 import node, pod, references, storage

ANNOTATIONS_READ = frozenset(
    (
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "pv.kubernetes.io/provisioned-by",
        "storage.alpha.kubernetes.io/migrated-plugins",
        "storageclass.kubernetes.io/is-default-class",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-provisioner",
        "resource.kubernetes.io/extended-resource-claim",
        "resource.kubernetes.io/pod-claim-name",
    )
)
"""The annotations that are kept."""

DROPPED: dict[type[Any], str] = {
    meta.ObjectMeta: "generate_name finalizers",
    meta.Condition: "message",
    pod.PodCondition: "message",
    node.NodeCondition: "message",
    storage.PersistentVolumeClaimCondition: "message",
    apps_v1.ControllerCondition: "message",
    pod.ContainerStateWaiting: "message",
    storage.PersistentVolumeStatus: "message",
    storage_v1.StorageClass: "parameters mount_options",
    scheduling_v1.PriorityClass: "description",
    references.ObjectReference: "field_path",
    pod.PodSpec: "service_account_name",
    pod.ContainerPort: "name",
    pod.PodStatus: "message host_ip pod_ip",
    pod.HostIP: "ip",
    pod.PodIP: "ip",
    pod.ContainerStateTerminated: "message container_id",
    node.NodeSpec: "pod_cidr pod_cidrs provider_id",
    node.NodeStatus: "volumes_in_use",
    node.NodeAddress: "type address",
    node.NodeSystemInfo: "machine_id system_uuid boot_id"
    " kernel_version os_image container_runtime_version kube_proxy_version",
    node.AttachedVolume: "name device_path",
    resource_v1.OpaqueDeviceConfiguration: "parameters",
    resource_v1.AllocatedDeviceStatus: "data",
    resource_v1.NetworkDeviceData: "interface_name ips hardware_address",
}
"""Record -> names of the fields that are left out."""
