"""Nodes: capacity, taints, and reported state."""

from __future__ import annotations

from kubesched.api.core_v1.placement import Taint
from kubesched.api.meta import ObjectMeta, Record, ResourceList, constant


class NodePodPreemptionPolicy(Record):
    """Restrictions of preemption on the node."""

    disable_resize_preemption: list[str] | None = None


class NodeSpec(Record):
    """Settings of the node made by an administrator or controller."""

    pod_cidr: str = ""
    pod_cidrs: list[str] | None = None
    provider_id: str = ""
    unschedulable: bool = False
    taints: list[Taint] | None = None
    pod_preemption_policy: NodePodPreemptionPolicy | None = None


class NodeCondition(Record):
    """One aspect of a node's health."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(Record):
    """An address or name of the node."""

    type: str = ""
    address: str = ""


class NodeSystemInfo(Record):
    """Versions and identity of the machine."""

    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class ContainerImage(Record):
    """An image on the node under all its names."""

    names: list[str] | None = None
    size_bytes: int = 0


class AttachedVolume(Record):
    """A volume attached to the node."""

    name: str = ""
    device_path: str = ""


class NodeStatus(Record):
    """Capacity and state of the node."""

    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    phase: str = ""
    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None
    node_info: NodeSystemInfo = NodeSystemInfo()
    images: list[ContainerImage] | None = None
    volumes_in_use: list[str] | None = None
    volumes_attached: list[AttachedVolume] | None = None
    declared_features: list[str] | None = None


class Node(Record):
    """A machine that runs pods."""

    kind: str = constant("Node")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
