"""apps/v1: the controllers that keep pods running.

Only what scheduling and planning read: how many pods are wanted, and which count. The embedded
controllers work on plain JSON, since they hand every field that a user wrote on to the pods they
make.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.meta import LabelSelector, ObjectMeta, Record, constant


class ControllerSpec(Record):
    """How many pods, and which count as this controller's."""

    replicas: int | None = None
    selector: LabelSelector | None = None


class ControllerCondition(Record):
    """One aspect of a controller's state."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ControllerStatus(Record):
    """Why pods are missing, where a controller says it."""

    conditions: list[ControllerCondition] | None = None


class ReplicaSet(Record):
    """A number of equal pods."""

    kind: str = constant("ReplicaSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


class StatefulSet(Record):
    """Pods that keep their identity."""

    kind: str = constant("StatefulSet")
    api_version: str = constant("apps/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


class Deployment(Record):
    """Equal pods with versions, kept through ReplicaSets; spec and status are plain JSON values."""

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
