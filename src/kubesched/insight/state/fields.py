"""What a snapshot keeps of every text field of a record.

Numbers, booleans and nested records are kept. Each field that holds text has one treatment:

| Treatment | Means |
|---|---|
| KEEP | an enumeration, a quantity, a time, a key: no user data |
| NAME | a name that scheduling compares; replaced under `--pseudonyms` |
| LABELS | label values in a text, list or dictionary (keys stay); replaced under `--pseudonyms` |
| IMAGE | a container image; `--pseudonyms` replaces repository, tag and digest separately |
| ADDRESS | an address; replaced under `--pseudonyms` unless it means "any" |
| ANNOTATIONS | the annotations that scheduling reads, see `ANNOTATIONS_READ` |
| DROP | not read by scheduling: omitted |

A field that is missing here is dropped. A test ensures that none is missing.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from kubesched.api import (
    apps_v1,
    meta,
    policy_v1,
    resource_v1,
    scheduling_v1,
    scheduling_v1alpha3,
    scheduling_v1beta1,
    storage_v1,
)
from kubesched.api.core_v1 import cluster, node, placement, pod, references, storage, volumes


class Treatment(Enum):
    """How to treat the text in a field."""

    KEEP = auto()
    NAME = auto()
    LABELS = auto()
    IMAGE = auto()
    ADDRESS = auto()
    ANNOTATIONS = auto()
    DROP = auto()


ANNOTATIONS_READ: dict[str, Treatment] = {
    "pv.kubernetes.io/bind-completed": Treatment.KEEP,
    "pv.kubernetes.io/bound-by-controller": Treatment.KEEP,
    "pv.kubernetes.io/provisioned-by": Treatment.KEEP,
    "storage.alpha.kubernetes.io/migrated-plugins": Treatment.KEEP,
    "storageclass.kubernetes.io/is-default-class": Treatment.KEEP,
    "volume.beta.kubernetes.io/storage-class": Treatment.NAME,
    "volume.kubernetes.io/selected-node": Treatment.NAME,
    "volume.kubernetes.io/storage-provisioner": Treatment.KEEP,
    "resource.kubernetes.io/extended-resource-claim": Treatment.KEEP,
    "resource.kubernetes.io/pod-claim-name": Treatment.NAME,
}

FIELDS: dict[type[Any], dict[str, Treatment]] = {}


def _fields(
    *records: type[Any],
    keep: str = "",
    name: str = "",
    labels: str = "",
    image: str = "",
    address: str = "",
    drop: str = "",
) -> None:
    listed = {
        Treatment.KEEP: keep,
        Treatment.NAME: name,
        Treatment.LABELS: labels,
        Treatment.IMAGE: image,
        Treatment.ADDRESS: address,
        Treatment.DROP: drop,
    }
    for record in records:
        table = FIELDS.setdefault(record, {})
        for treatment, words in listed.items():
            for word in words.split():
                assert word not in table, f"{record.__name__}.{word} is listed twice"
                table[word] = treatment


# -- metadata and selectors ----------------------------------------------------------------------

_fields(
    meta.ObjectMeta,
    keep="resource_version creation_timestamp deletion_timestamp",
    name="name namespace uid",
    labels="labels",
    drop="generate_name finalizers",
)
FIELDS[meta.ObjectMeta]["annotations"] = Treatment.ANNOTATIONS
_fields(meta.OwnerReference, keep="api_version kind", name="name uid")
_fields(meta.LabelSelector, labels="match_labels")
_fields(
    meta.LabelSelectorRequirement,
    placement.NodeSelectorRequirement,
    keep="key operator",
    labels="values",
)
_fields(placement.TopologySelectorLabelRequirement, keep="key", labels="values")
_fields(
    meta.Condition,
    pod.PodCondition,
    node.NodeCondition,
    storage.PersistentVolumeClaimCondition,
    keep="type status last_transition_time reason",
    drop="message",
)
_fields(apps_v1.ControllerCondition, keep="type status reason", drop="message")
_fields(pod.PodCondition, storage.PersistentVolumeClaimCondition, keep="last_probe_time")
_fields(node.NodeCondition, keep="last_heartbeat_time")
_fields(
    pod.Pod,
    node.Node,
    cluster.Namespace,
    cluster.Service,
    cluster.ReplicationController,
    storage.PersistentVolume,
    storage.PersistentVolumeClaim,
    storage_v1.StorageClass,
    storage_v1.CSINode,
    storage_v1.CSIDriver,
    storage_v1.CSIStorageCapacity,
    storage_v1.VolumeAttachment,
    policy_v1.PodDisruptionBudget,
    scheduling_v1.PriorityClass,
    apps_v1.ReplicaSet,
    apps_v1.StatefulSet,
    resource_v1.ResourceClaim,
    resource_v1.ResourceSlice,
    resource_v1.DeviceClass,
    scheduling_v1alpha3.CompositePodGroup,
    scheduling_v1beta1.PodGroup,
    scheduling_v1beta1.Workload,
    keep="kind api_version",
)
_fields(
    references.ObjectReference,
    keep="kind api_version resource_version",
    name="namespace name uid",
    drop="field_path",
)
_fields(references.TypedLocalObjectReference, keep="api_group kind", name="name")

# -- pods ----------------------------------------------------------------------------------------

_fields(
    pod.PodSpec,
    keep="restart_policy scheduler_name preemption_policy overhead",
    name="node_name priority_class_name runtime_class_name",
    labels="node_selector",
    drop="service_account_name",
)
_fields(
    placement.PodAffinityTerm,
    keep="topology_key match_label_keys mismatch_label_keys",
    name="namespaces",
)
_fields(
    placement.Toleration,
    resource_v1.DeviceToleration,
    keep="key operator effect",
    labels="value",
)
_fields(placement.Taint, resource_v1.DeviceTaint, keep="key effect time_added", labels="value")
_fields(
    placement.TopologySpreadConstraint,
    keep="topology_key when_unsatisfiable node_affinity_policy node_taints_policy match_label_keys",
)
_fields(pod.Container, keep="restart_policy", name="name", image="image")
_fields(pod.ContainerPort, keep="protocol", address="host_ip", drop="name")
_fields(pod.ResourceRequirements, keep="limits requests")
_fields(pod.ResourceClaim, name="name request")
_fields(pod.ContainerResizePolicy, keep="resource_name restart_policy")
_fields(pod.ContainerRestartRule, keep="action")
_fields(pod.ContainerRestartRuleOnExitCodes, keep="operator")
_fields(pod.VolumeMount, keep="bind_mount_options")
_fields(pod.PodOS, keep="name")
_fields(pod.PodSchedulingGate, keep="name")
_fields(pod.PodResourceClaim, name="name resource_claim_name resource_claim_template_name")
_fields(pod.PodSchedulingGroup, name="pod_group_name")
_fields(
    pod.PodStatus,
    keep="phase reason start_time qos_class resize allocated_resources",
    name="nominated_node_name",
    drop="message host_ip pod_ip",
)
_fields(pod.HostIP, pod.PodIP, drop="ip")
_fields(pod.ContainerStatus, keep="allocated_resources", name="name")
_fields(pod.ContainerStateWaiting, keep="reason", drop="message")
_fields(pod.ContainerStateRunning, keep="started_at")
_fields(
    pod.ContainerStateTerminated,
    keep="reason started_at finished_at",
    drop="message container_id",
)
_fields(pod.PodResourceClaimStatus, name="name resource_claim_name")
_fields(pod.PodExtendedResourceClaimStatus, name="resource_claim_name")
_fields(
    pod.ContainerExtendedResourceRequest, keep="resource_name", name="container_name request_name"
)
_fields(
    pod.NodeAllocatableResourceClaimStatus, keep="resources", name="resource_claim_name containers"
)

# -- volumes: identifiers of disks are names, other fields of a source are not read --------------

_fields(volumes.Volume, name="name")
_fields(volumes.GCEPersistentDiskVolumeSource, name="pd_name")
_fields(
    volumes.AWSElasticBlockStoreVolumeSource,
    volumes.CinderVolumeSource,
    volumes.PortworxVolumeSource,
    name="volume_id",
)
_fields(volumes.ISCSIVolumeSource, name="iqn")
_fields(volumes.PersistentVolumeClaimVolumeSource, name="claim_name")
_fields(volumes.RBDVolumeSource, name="monitors image pool")
_fields(volumes.VsphereVirtualDiskVolumeSource, name="volume_path")
_fields(volumes.AzureDiskVolumeSource, keep="kind", name="disk_uri")
_fields(volumes.CSIVolumeSource, keep="driver")
_fields(volumes.ImageVolumeSource, image="reference")
_fields(
    volumes.PersistentVolumeClaimSpec,
    keep="access_modes volume_mode",
    name="volume_name storage_class_name volume_attributes_class_name",
)
_fields(volumes.VolumeResourceRequirements, keep="limits requests")
_fields(
    storage.PersistentVolumeSpec,
    keep="capacity access_modes volume_mode",
    name="storage_class_name volume_attributes_class_name",
)
_fields(storage.CSIPersistentVolumeSource, keep="driver", name="volume_handle")
_fields(
    storage.PersistentVolumeStatus, keep="phase reason last_phase_transition_time", drop="message"
)
_fields(
    storage.PersistentVolumeClaimStatus,
    keep="phase access_modes capacity allocated_resources allocated_resource_statuses",
    name="current_volume_attributes_class_name",
)
_fields(
    storage_v1.StorageClass,
    keep="provisioner reclaim_policy volume_binding_mode",
    drop="parameters mount_options",
)
_fields(storage_v1.CSINodeDriver, keep="name topology_keys")
_fields(
    storage_v1.CSIStorageCapacity, keep="capacity maximum_volume_size", name="storage_class_name"
)
_fields(storage_v1.VolumeAttachmentSpec, keep="attacher", name="node_name")
_fields(storage_v1.VolumeAttachmentSource, name="persistent_volume_name")

# -- nodes and the rest --------------------------------------------------------------------------

_fields(node.NodePodPreemptionPolicy, keep="disable_resize_preemption")
_fields(node.NodeSpec, drop="pod_cidr pod_cidrs provider_id")
_fields(node.NodeStatus, keep="capacity allocatable phase declared_features", drop="volumes_in_use")
_fields(node.NodeAddress, drop="type address")
_fields(
    node.NodeSystemInfo,
    keep="kubelet_version operating_system architecture",
    drop="machine_id system_uuid boot_id kernel_version os_image container_runtime_version"
    " kube_proxy_version",
)
_fields(node.ContainerImage, image="names")
_fields(node.AttachedVolume, drop="name device_path")
_fields(cluster.ServiceSpec, labels="selector")
_fields(cluster.ReplicationControllerSpec, labels="selector")
_fields(
    policy_v1.PodDisruptionBudgetSpec,
    keep="min_available max_unavailable unhealthy_pod_eviction_policy",
)
_fields(scheduling_v1.PriorityClass, keep="preemption_policy", drop="description")

# -- devices and groups --------------------------------------------------------------------------

_fields(resource_v1.DeviceRequest, name="name")
_fields(resource_v1.ExactDeviceRequest, keep="allocation_mode", name="device_class_name")
_fields(resource_v1.DeviceSubRequest, keep="allocation_mode", name="name device_class_name")
_fields(resource_v1.CELDeviceSelector, keep="expression")
_fields(resource_v1.DeviceDerivedAttribute, keep="name expression")
_fields(resource_v1.CapacityRequirements, keep="requests")
_fields(resource_v1.DeviceConstraint, keep="match_attribute distinct_attribute", name="requests")
_fields(resource_v1.DeviceClaimConfiguration, name="requests")
_fields(resource_v1.OpaqueDeviceConfiguration, keep="driver", drop="parameters")
_fields(resource_v1.AllocationResult, keep="allocation_timestamp")
_fields(
    resource_v1.DeviceRequestAllocationResult,
    keep="driver binding_conditions binding_failure_conditions share_id consumed_capacity "
    "skip_node_operations",
    name="request pool device",
)
_fields(resource_v1.DeviceAllocationConfiguration, keep="source", name="requests")
_fields(resource_v1.ResourceClaimConsumerReference, keep="api_group resource", name="name uid")
_fields(resource_v1.AllocatedDeviceStatus, keep="driver share_id", name="pool device", drop="data")
_fields(resource_v1.NetworkDeviceData, drop="interface_name ips hardware_address")
_fields(resource_v1.ResourceSliceSpec, keep="driver", name="node_name")
_fields(resource_v1.ResourcePool, name="name")
_fields(
    resource_v1.Device,
    keep="attributes capacity binding_conditions binding_failure_conditions"
    " node_allocatable_resource_mappings",
    name="name node_name",
)
_fields(resource_v1.DeviceAttribute, keep="string_value version_value string_values version_values")
_fields(resource_v1.DeviceCapacity, resource_v1.Counter, keep="value")
_fields(resource_v1.CapacityRequestPolicy, keep="default valid_values")
_fields(resource_v1.CapacityRequestPolicyRange, keep="min max step")
_fields(resource_v1.DeviceCounterConsumption, keep="counter_set counters compatibility_groups")
_fields(resource_v1.NodeAllocatableResourceMapping, keep="capacity_key allocation_multiplier")
_fields(resource_v1.CounterSet, keep="name counters")
_fields(resource_v1.DeviceClassSpec, keep="extended_resource_name")
_fields(
    scheduling_v1alpha3.CompositePodGroupSpec,
    scheduling_v1beta1.PodGroupSpec,
    keep="preemption_policy",
    name="priority_class_name parent_composite_pod_group_name",
)
_fields(scheduling_v1beta1.WorkloadReference, name="workload_name template_name")
_fields(scheduling_v1beta1.TopologyConstraint, keep="key")
_fields(
    scheduling_v1beta1.PodGroupResourceClaim,
    name="name resource_claim_name resource_claim_template_name",
)
_fields(scheduling_v1beta1.PodGroupResourceClaimStatus, name="name resource_claim_name")
_fields(
    scheduling_v1beta1.PodGroupTemplate, keep="preemption_policy", name="name priority_class_name"
)
_fields(policy_v1.PodDisruptionBudgetStatus, name="disrupted_pods")
