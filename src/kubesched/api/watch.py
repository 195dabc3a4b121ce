"""Watch events: one JSON object per line, decoded in one pass into event and record."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from kubesched.api import codec
from kubesched.api.codec import DECODE_ERRORS, MalformedObject
from kubesched.api.meta import Record
from kubesched.api.status import Status, error_of

T = TypeVar("T")
R = TypeVar("R", bound=Record)

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events of a streamed list."""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change of an object; a bookmark's object has only the resource version."""

    type: EventType
    object: T


class _Envelope(msgspec.Struct, gc=False):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


_envelope_decoder = msgspec.json.Decoder(_Envelope)


class MalformedContent(MalformedObject):
    """An event whose object cannot be decoded; other events are not affected."""


class WatchDecoder(Generic[R]):
    """Decodes the events of one kind. An ERROR event is raised as its exception."""

    def __init__(self, type_: type[R]) -> None:
        self._type = type_
        event = WatchEvent[type_]  # type: ignore[valid-type]  # the parameter is a run-time value
        self._decoder: msgspec.json.Decoder[WatchEvent[R]] = msgspec.json.Decoder(event)

    def decode(self, line: bytes) -> WatchEvent[R]:
        """One event; raises ApiError for ERROR events and MalformedObject for invalid input."""
        try:
            return self._decoder.decode(line)
        except DECODE_ERRORS:
            event_type, raw = self._open(line)
            try:
                return WatchEvent(event_type, codec.decode(raw, self._type))
            except MalformedObject as error:
                if event_type == "DELETED" and (last := self._without_content(raw)) is not None:
                    return WatchEvent(event_type, last)
                raise MalformedContent(error.what, error.field, error.problem) from None

    def _without_content(self, raw: bytes) -> R | None:
        """The identity of a deleted object."""
        try:
            value = codec.decode(raw, dict[str, Any])
            return codec.convert({"metadata": value.get("metadata")}, self._type)
        except MalformedObject:
            return None

    def _open(self, line: bytes) -> tuple[EventType, bytes]:
        what = f"watch event of {self._type.__name__}"
        try:
            envelope = _envelope_decoder.decode(line)
        except DECODE_ERRORS as error:
            raise MalformedObject(what, "", codec.reworded(error)) from None
        if envelope.type == "ERROR":
            raise error_of(codec.decode(bytes(envelope.object), Status))
        match envelope.type:
            case "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" as event_type:
                return event_type, bytes(envelope.object)
        raise MalformedObject(what, "type", f'unknown event type "{envelope.type}"')
