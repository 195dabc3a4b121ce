"""The rest of the core group: namespaces, services, replication controllers, configuration, events."""

from __future__ import annotations

from typing import Any

from kubesched.api.core_v1.references import LocalObjectReference, ObjectReference
from kubesched.api.meta import Condition, IntOrString, ObjectMeta, Record, constant


class NamespaceSpec(Record):
    """What has to be cleaned up before the namespace can go."""

    finalizers: list[str] | None = None


class NamespaceCondition(Record):
    """Why a namespace's deletion is not finished."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class NamespaceStatus(Record):
    """Active or Terminating."""

    phase: str = ""
    conditions: list[NamespaceCondition] | None = None


class Namespace(Record):
    """A scope for names; its labels take part in affinity terms."""

    kind: str = constant("Namespace")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ServicePort(Record):
    """A port a service listens on."""

    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    port: int = 0
    target_port: IntOrString | None = None
    node_port: int = 0


class ServiceSpec(Record):
    """Which pods belong to the service and how it is reached."""

    ports: list[ServicePort] | None = None
    selector: dict[str, str] | None = None
    cluster_ip: str = ""
    cluster_ips: list[str] | None = None
    type: str = ""
    external_name: str = ""
    publish_not_ready_addresses: bool = False


class ServiceStatus(Record):
    """Conditions of the service."""

    conditions: list[Condition] | None = None


class Service(Record):
    """A stable name for a set of pods; its selector feeds the default spread constraints."""

    kind: str = constant("Service")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class ReplicationControllerSpec(Record):
    """How many pods and which; the template stays plain JSON (see apps_v1)."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: dict[str, str] | None = None
    template: dict[str, Any] | None = None


class ReplicationControllerStatus(Record):
    """How many pods there are."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0


class ReplicationController(Record):
    """The ReplicaSet's predecessor."""

    kind: str = constant("ReplicationController")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ReplicationControllerStatus = ReplicationControllerStatus()


class ConfigMap(Record):
    """Configuration text; binary data stays base64."""

    kind: str = constant("ConfigMap")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class ServiceAccount(Record):
    """An identity for processes in pods."""

    kind: str = constant("ServiceAccount")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    secrets: list[ObjectReference] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    automount_service_account_token: bool | None = None


class EventSource(Record):
    """Who reported an event."""

    component: str = ""
    host: str = ""


class EventSeries(Record):
    """How often an event recurred and when last."""

    count: int = 0
    last_observed_time: str | None = None


class Event(Record):
    """A core/v1 event; the scheduler itself writes events.k8s.io/v1 (see events_v1)."""

    kind: str = constant("Event")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int = 0
    type: str = ""
    event_time: str | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
