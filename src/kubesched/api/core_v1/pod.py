"""Pods: specification and status.

Fields that only matter inside a running container (environment, probes, mounts, commands) are left
out: a scheduler keeps every pod of the cluster in memory.
"""

from __future__ import annotations

from kubesched.api.core_v1.placement import Affinity, Toleration, TopologySpreadConstraint
from kubesched.api.core_v1.references import ObjectReference
from kubesched.api.core_v1.volumes import Volume
from kubesched.api.meta import ObjectMeta, Record, ResourceList, constant


class ContainerPort(Record):
    """A port of a container; the scheduler reads host ports."""

    name: str = ""
    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = ""


class ResourceClaim(Record):
    """Which of the pod's claims (and which request in it) a container uses."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Record):
    """Requests and limits of a container or a whole pod."""

    limits: ResourceList | None = None
    requests: ResourceList | None = None
    claims: list[ResourceClaim] | None = None


class ContainerResizePolicy(Record):
    """Whether a container must restart to take a resized resource."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRuleOnExitCodes(Record):
    """The exit codes that a restart rule applies to."""

    operator: str = ""
    values: list[int] | None = None


class ContainerRestartRule(Record):
    """The action when a container ends in a certain way."""

    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class VolumeMount(Record):
    """A volume in a container, as far as it decides about nodes."""

    bind_mount_options: list[str] | None = None


class Container(Record):
    """An app, init or ephemeral container."""

    name: str = ""
    image: str = ""
    ports: list[ContainerPort] | None = None
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: list[ContainerResizePolicy] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None

    def is_restartable_init(self) -> bool:
        """True for a sidecar; call it on init containers."""
        return self.restart_policy == "Always"


class PodSchedulingGate(Record):
    """A named reason not to schedule the pod yet."""

    name: str = ""


class PodResourceClaim(Record):
    """A device claim of the pod: an existing one, or one created from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Record):
    """The PodGroup this pod is scheduled with."""

    pod_group_name: str | None = None


class PodOS(Record):
    """The operating system the pod needs."""

    name: str = ""


class PodSpec(Record):
    """The containers and placement rules of a pod."""

    volumes: list[Volume] | None = None
    init_containers: list[Container] | None = None
    containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    service_account_name: str = ""
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: list[Toleration] | None = None
    priority_class_name: str = ""
    priority: int | None = None
    runtime_class_name: str | None = None
    preemption_policy: str | None = None
    overhead: ResourceList | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    resources: ResourceRequirements | None = None
    scheduling_group: PodSchedulingGroup | None = None


class PodCondition(Record):
    """One aspect of a pod's state, and since when."""

    type: str = ""
    observed_generation: int = 0
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class HostIP(Record):
    """An address of the pod's node."""

    ip: str = ""


class PodIP(Record):
    """An address of the pod."""

    ip: str = ""


class ContainerStateWaiting(Record):
    """Not running yet, and why."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Record):
    """Running since."""

    started_at: str | None = None


class ContainerStateTerminated(Record):
    """Ended, how and when."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = ""


class ContainerState(Record):
    """At most one of waiting, running, terminated; none of them means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Record):
    """State and actual resources of one container (image names are not kept)."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0
    started: bool | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(Record):
    """The claim that was created for one of the pod's claim templates."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Record):
    """Which request of the extended-resource claim backs which container's resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Record):
    """The claim behind the pod's extended resources."""

    request_mappings: list[ContainerExtendedResourceRequest] | None = None
    resource_claim_name: str = ""


class NodeAllocatableResourceClaimStatus(Record):
    """Node resources that a device claim of the pod consumes."""

    resource_claim_name: str = ""
    containers: list[str] | None = None
    resources: ResourceList | None = None


class PodStatus(Record):
    """The state of the pod."""

    observed_generation: int = 0
    phase: str = ""
    conditions: list[PodCondition] | None = None
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = ""
    host_ips: list[HostIP] | None = None
    pod_ip: str = ""
    pod_ips: list[PodIP] | None = None
    start_time: str | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    qos_class: str = ""
    ephemeral_container_statuses: list[ContainerStatus] | None = None
    resize: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None
    node_allocatable_resource_claim_statuses: list[NodeAllocatableResourceClaimStatus] | None = None


class Pod(Record):
    """A group of containers that runs on one node."""

    kind: str = constant("Pod")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Binding(Record):
    """Assigns a pod to a node; posted to the pod's `binding` subresource."""

    kind: str = constant("Binding")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    target: ObjectReference = ObjectReference()
