"""Events as protobuf from their records: the plain twin of `EventEntry.to_protobuf`."""

from __future__ import annotations

from datetime import datetime

from kubesched.api.events_v1 import Event
from kubesched.api.protobuf import event_message, micro_time


def encode_event(event: Event) -> bytes | None:
    """A new events.k8s.io/v1 Event about one object; None if it has other fields or long names."""
    if event.series is not None or event.related is not None or event.event_time is None:
        return None
    about = event.regarding
    moment = datetime.fromisoformat(event.event_time)
    return event_message(
        (event.reporting_controller, event.reporting_instance, event.action, event.reason),
        event.type,
        (event.metadata.name, event.metadata.namespace),
        (
            about.kind,
            about.namespace,
            about.name,
            about.uid,
            about.api_version,
            about.resource_version,
            about.field_path,
        ),
        micro_time(int(moment.timestamp()), moment.microsecond),
        event.note.encode(),
    )
