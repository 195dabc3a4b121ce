"""events.k8s.io/v1: events about objects, reported by controllers."""

from __future__ import annotations

from kubesched.api.core_v1 import EventSeries, ObjectReference
from kubesched.api.meta import ObjectMeta, Record, constant


class Event(Record):
    """An event; `event_time` is RFC 3339 text with microseconds."""

    kind: str = constant("Event")
    api_version: str = constant("events.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
