"""scheduling.k8s.io/v1beta1: pods that are scheduled as a group (gate GenericWorkload)."""

from __future__ import annotations

from kubesched.api.core_v1 import TypedLocalObjectReference
from kubesched.api.meta import Condition, ObjectMeta, Record, constant


class BasicSchedulingPolicy(Record):
    """Schedules each pod that fits."""


class GangSchedulingPolicy(Record):
    """Schedules at least `min_count` pods or none."""

    min_count: int = 0


class PodGroupSchedulingPolicy(Record):
    """Exactly one of the policies."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Record):
    """A node label whose value all pods of the group must share."""

    key: str = ""


class SchedulingConstraints(Record):
    """Where the group may be placed."""

    topology: list[TopologyConstraint] | None = None


class SingleDisruptionMode(Record):
    """Pods of the group may be evicted one by one."""


class AllDisruptionMode(Record):
    """The group is evicted as a whole or not at all."""


class DisruptionMode(Record):
    """Exactly one of the modes."""

    single: SingleDisruptionMode | None = None
    all: AllDisruptionMode | None = None


class PodGroupResourceClaim(Record):
    """A device claim that the whole group shares."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WorkloadReference(Record):
    """The Workload template that a group was created from."""

    workload_name: str = ""
    template_name: str = ""


class PodGroupSpec(Record):
    """Scheduling rules of the group; only `minCount` may change."""

    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: list[PodGroupResourceClaim] | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None


class PodGroupResourceClaimStatus(Record):
    """The claim created for one of the group's claim templates."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupStatus(Record):
    """Whether the group was scheduled."""

    conditions: list[Condition] | None = None
    resource_claim_statuses: list[PodGroupResourceClaimStatus] | None = None


class PodGroup(Record):
    """Pods that are scheduled together; they name it in `spec.schedulingGroup`."""

    kind: str = constant("PodGroup")
    api_version: str = constant("scheduling.k8s.io/v1beta1")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class PodGroupTemplate(Record):
    """Template of a group that a controller creates from a Workload."""

    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: list[PodGroupResourceClaim] | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None


class WorkloadSpec(Record):
    """The workload's controller and its groups."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: list[PodGroupTemplate] | None = None


class Workload(Record):
    """Template for pod groups; the scheduler never reads it."""

    kind: str = constant("Workload")
    api_version: str = constant("scheduling.k8s.io/v1beta1")
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
