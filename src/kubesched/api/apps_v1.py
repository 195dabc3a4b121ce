"""apps/v1: the workload controllers.

Contains only what scheduling and planning read: the replica count and the selector. The embedded
controllers work on plain JSON, since they copy every field of the template to their pods.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.meta import LabelSelector, ObjectMeta, Record, constant


class ControllerSpec(Record):
    """Replica count and pod selector of a controller."""

    replicas: int | None = None
    selector: LabelSelector | None = None


class ControllerCondition(Record):
    """One aspect of a controller's state."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ControllerStatus(Record):
    """Conditions that explain missing pods."""

    conditions: list[ControllerCondition] | None = None


class ReplicaSet(Record):
    """A number of identical pods."""

    kind: str = constant("ReplicaSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


class StatefulSet(Record):
    """Pods with stable identities."""

    kind: str = constant("StatefulSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


class Deployment(Record):
    """Identical pods with versions, through ReplicaSets; spec and status are plain JSON values."""

    kind: str = constant("Deployment")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None


class DaemonSet(Record):
    """One pod per node; spec and status are plain JSON values."""

    kind: str = constant("DaemonSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None
