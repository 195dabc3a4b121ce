"""apps/v1: the controllers that keep pods running.

Pod templates and volume claim templates stay plain JSON: a controller must hand every field its user
wrote on to the pods it makes, also those that no record here knows.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.meta import IntOrString, LabelSelector, ObjectMeta, Record, constant

JSONObject = dict[str, Any]


class WorkloadCondition(Record):
    """One aspect of a controller's state; the same shape for all kinds here."""

    type: str = ""
    status: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class ReplicaSetSpec(Record):
    """How many pods, and which count as this set's."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: JSONObject | None = None


class ReplicaSetStatus(Record):
    """How many pods there are, and how far along."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: list[WorkloadCondition] | None = None


class ReplicaSet(Record):
    """A number of equal pods."""

    kind: str = constant("ReplicaSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdateDeployment(Record):
    """How many pods may be missing or extra during a roll-out."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DeploymentStrategy(Record):
    """RollingUpdate or Recreate."""

    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Record):
    """The pods wanted and how to change from old ones to new ones."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: JSONObject | None = None
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentStatus(Record):
    """How far a roll-out is."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: list[WorkloadCondition] | None = None
    collision_count: int | None = None


class Deployment(Record):
    """Equal pods with versions, kept through ReplicaSets."""

    kind: str = constant("Deployment")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class RollingUpdateStatefulSet(Record):
    """From which ordinal on pods are updated, and how many may be missing."""

    partition: int | None = None
    max_unavailable: IntOrString | None = None


class StatefulSetUpdateStrategy(Record):
    """RollingUpdate or OnDelete."""

    type: str = ""
    rolling_update: RollingUpdateStatefulSet | None = None


class StatefulSetOrdinals(Record):
    """The number of the first pod."""

    start: int = 0


class PersistentVolumeClaimRetentionPolicy(Record):
    """What becomes of claims when pods go."""

    when_deleted: str = ""
    when_scaled: str = ""


class StatefulSetSpec(Record):
    """Pods with a number, a name and volumes of their own."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: JSONObject | None = None
    volume_claim_templates: list[JSONObject] | None = None
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: int | None = None
    min_ready_seconds: int = 0
    persistent_volume_claim_retention_policy: PersistentVolumeClaimRetentionPolicy | None = None
    ordinals: StatefulSetOrdinals | None = None


class StatefulSetStatus(Record):
    """How many pods there are, of which revision."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: list[WorkloadCondition] | None = None
    available_replicas: int = 0


class StatefulSet(Record):
    """Pods that keep their identity."""

    kind: str = constant("StatefulSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class RollingUpdateDaemonSet(Record):
    """How many nodes may be without, or with one pod too many."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DaemonSetUpdateStrategy(Record):
    """RollingUpdate or OnDelete."""

    type: str = ""
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(Record):
    """The pod that every matching node runs."""

    selector: LabelSelector | None = None
    template: JSONObject | None = None
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSetStatus(Record):
    """On how many nodes the pod runs, and should."""

    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int | None = None
    conditions: list[WorkloadCondition] | None = None


class DaemonSet(Record):
    """One pod per node."""

    kind: str = constant("DaemonSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()
