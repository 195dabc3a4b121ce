"""scheduling.k8s.io/v1alpha3: groups of pod groups (gate CompositePodGroup)."""

from __future__ import annotations

from kubesched.api.meta import Condition, ObjectMeta, Record, constant
from kubesched.api.scheduling_v1beta1 import (
    BasicSchedulingPolicy,
    DisruptionMode,
    SchedulingConstraints,
    WorkloadReference,
)


class CompositeGangSchedulingPolicy(Record):
    """Schedules at least `min_group_count` of the child groups or none."""

    min_group_count: int = 0


class CompositePodGroupSchedulingPolicy(Record):
    """Exactly one of the policies."""

    basic: BasicSchedulingPolicy | None = None
    gang: CompositeGangSchedulingPolicy | None = None


class CompositePodGroupSpec(Record):
    """Scheduling rules of a tree of groups; immutable."""

    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: CompositePodGroupSchedulingPolicy = CompositePodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None


class CompositePodGroupStatus(Record):
    """Conditions; kube-scheduler writes none."""

    conditions: list[Condition] | None = None


class CompositePodGroup(Record):
    """Groups that are scheduled together; they name it as their parent."""

    kind: str = constant("CompositePodGroup")
    api_version: str = constant("scheduling.k8s.io/v1alpha3")
    metadata: ObjectMeta = ObjectMeta()
    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()
