"""The rest of the core group: namespaces, services, replication controllers, config, events."""

from __future__ import annotations

from kubesched.api.core_v1.references import ObjectReference
from kubesched.api.meta import ObjectMeta, Record, constant


class Namespace(Record):
    """A scope for names; affinity terms can select it by labels."""

    kind: str = constant("Namespace")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()


class ServiceSpec(Record):
    """The pod selector of a service."""

    selector: dict[str, str] | None = None


class Service(Record):
    """A stable name for a set of pods; its selector is used for default spread constraints."""

    kind: str = constant("Service")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Record):
    """Replica count and pod selector."""

    replicas: int | None = None
    selector: dict[str, str] | None = None


class ReplicationController(Record):
    """The ReplicaSet's predecessor."""

    kind: str = constant("ReplicationController")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class ConfigMap(Record):
    """Configuration text."""

    kind: str = constant("ConfigMap")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class ServiceAccount(Record):
    """An identity for processes in pods."""

    kind: str = constant("ServiceAccount")
    api_version: str = constant("v1")
    metadata: ObjectMeta = ObjectMeta()


class EventSource(Record):
    """The component that reported an event."""

    component: str = ""
    host: str = ""


class EventSeries(Record):
    """How often an event recurred, and its last time."""

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
