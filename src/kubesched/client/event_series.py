"""One event with its recurrences: its key, how much the server knows, and both wire forms.

Turns an occurrence into an events.k8s.io/v1 or core/v1 record. `events` queues, writes and expires
entries.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from typing import Protocol

from kubesched.api import core_v1, events_v1
from kubesched.api.core_v1 import EventSeries, EventSource, ObjectReference
from kubesched.api.meta import ObjectMeta
from kubesched.api.names import is_dns_1123_subdomain
from kubesched.api.protobuf import event_message, micro_time
from kubesched.api.times import format_micro_time, format_time, split_micros

NOTE_LIMIT_BYTES = 1024
"""Longest note the API server accepts."""
NOTE_CUT = " ..."

EventRecord = events_v1.Event | core_v1.Event


class Reporter:
    """The reporting component of events. Compared by identity: it is part of every key."""

    __slots__ = ("controller", "instance", "is_legacy")

    def __init__(self, controller: str, instance: str, *, is_legacy: bool) -> None:
        self.controller = controller
        self.instance = instance
        self.is_legacy = is_legacy
        """Written as core/v1 events, without action and related object."""


Identity = tuple[str, str, str, str, str, str, str]
"""Kind, namespace, name, uid, apiVersion, resourceVersion, fieldPath."""
EventKey = tuple[Reporter, str, str, str, Identity, Identity | None, str]
"""Reporter, type, reason, action, regarding, related, and for legacy events the note."""


class EventEntry:
    """An event, its number of occurrences, and how many of them the server knows."""

    __slots__ = (
        "count",
        "is_final",
        "is_taken",
        "key",
        "last_observed",
        "name",
        "nanos",
        "note",
        "observed",
        "written_count",
    )

    def __init__(self, key: EventKey, note: str, observed: float, nanos: int) -> None:
        self.key = key
        self.note = note
        self.observed = self.last_observed = observed
        self.nanos = nanos
        self.name = ""
        self.count = 1
        self.written_count = 0
        """0: nothing. 1: created. More: the count at the last series patch."""
        self.is_taken = False
        """Queued, or being written."""
        self.is_final = False
        """No longer in the cache, so the last count must be written now."""

    def is_due(self) -> bool:
        """Whether a write is due: the event itself, the second occurrence, or the final count."""
        return self.written_count == 0 or (
            self.count > self.written_count and (self.written_count == 1 or self.is_final)
        )

    def described(self) -> str:
        kind, namespace, name, *_ = self.key[4]
        return f'"{self.key[2]}" about {kind} {namespace}/{name}'

    def series_change(self) -> Mapping[str, object]:
        """The change of a recurrence, as a strategic merge patch."""
        if self.key[0].is_legacy:
            return {"count": self.count, "lastTimestamp": format_time(self.last_observed)}
        last_observed = format_micro_time(self.last_observed)
        return {"series": {"count": self.count, "lastObservedTime": last_observed}}

    @property
    def record(self) -> type[EventRecord]:
        return core_v1.Event if self.key[0].is_legacy else events_v1.Event

    @property
    def namespace(self) -> str:
        """The event's namespace: that of the object it is about."""
        return self.key[4][1] or "default"

    def give_name(self, rng: random.Random) -> None:
        if not self.name:
            self.name = event_name(self.key[4][2], self.nanos, rng)

    def to_protobuf(self) -> bytes | None:
        """The event to create, without building its record; None if it must be JSON."""
        reporter, type_, reason, action, regarding, related, _ = self.key
        if reporter.is_legacy or related is not None:
            return None
        note = self.note.encode()
        if len(note) > NOTE_LIMIT_BYTES:
            note = shorten_note(self.note).encode()
        return event_message(
            (reporter.controller, reporter.instance, action, reason),
            type_,
            (self.name, self.namespace),
            regarding,
            micro_time(*split_micros(self.observed)),
            note,
        )

    def to_record(self, *, is_series: bool) -> EventRecord:
        """The whole event, as it is created. It must have its name."""
        reporter, type_, reason, action, regarding, related, _ = self.key
        metadata = ObjectMeta(name=self.name, namespace=self.namespace)
        if reporter.is_legacy:
            return core_v1.Event(
                metadata=metadata,
                involved_object=_reference(regarding),
                reason=reason,
                message=shorten_note(self.note),
                source=EventSource(component=reporter.controller),
                first_timestamp=format_time(self.observed),
                last_timestamp=format_time(self.last_observed if is_series else self.observed),
                count=self.count if is_series else 1,
                type=type_,
                reporting_component=reporter.controller,
                reporting_instance=reporter.instance,
            )
        series = None
        if is_series:
            last_observed = format_micro_time(self.last_observed)
            series = EventSeries(count=self.count, last_observed_time=last_observed)
        return events_v1.Event(
            metadata=metadata,
            event_time=format_micro_time(self.observed),
            series=series,
            reporting_controller=reporter.controller,
            reporting_instance=reporter.instance,
            action=action,
            reason=reason,
            regarding=_reference(regarding),
            related=_reference(related) if related is not None else None,
            note=shorten_note(self.note),
            type=type_,
        )


def event_name(subject: str, nanos: int, rng: random.Random) -> str:
    """`<name of the object>.<time in hexadecimal>`, or something unique if that is invalid."""
    name = f"{subject}.{nanos:x}"
    if is_dns_1123_subdomain(name):
        return name
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def shorten_note(note: str) -> str:
    """At most 1024 bytes, cut with an ellipsis, never inside a character."""
    encoded = note.encode()
    if len(encoded) <= NOTE_LIMIT_BYTES:
        return note
    kept = encoded[: NOTE_LIMIT_BYTES - len(NOTE_CUT)]
    return kept.decode("utf-8", "ignore") + NOTE_CUT


class _ApiObject(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def api_version(self) -> str: ...


def identity_of(obj: object) -> Identity | None:
    """The object's identity for events, or None if it is not an API object."""
    metadata = getattr(obj, "metadata", None)
    if type(metadata) is ObjectMeta:
        record: _ApiObject = obj  # type: ignore[assignment]  # has kind and apiVersion
        return (
            record.kind,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            record.api_version,
            metadata.resource_version,
            "",
        )
    if isinstance(obj, ObjectReference):
        return (
            obj.kind,
            obj.namespace,
            obj.name,
            obj.uid,
            obj.api_version,
            obj.resource_version,
            obj.field_path,
        )
    return None


def _reference(identity: Identity) -> ObjectReference:
    kind, namespace, name, uid, api_version, resource_version, field_path = identity
    return ObjectReference(
        kind=kind,
        namespace=namespace,
        name=name,
        uid=uid,
        api_version=api_version,
        resource_version=resource_version,
        field_path=field_path,
    )
