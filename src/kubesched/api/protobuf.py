r"""The API's protobuf encoding, for the two objects that are written once per pod and for the answers to them.

An API server spends several times as long on reading these objects as JSON as it does on reading them as protobuf, which
counts when it is the bottleneck. Everything else is small or rare and stays JSON, so this is no codec: two writers for
the usual case, and a reader of `Status`.

The wire: `k8s\0`, then an envelope (`runtime.Unknown`) that names kind and version and holds the object. Field numbers are
part of the API and never change.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime

from kubesched.api.events_v1 import Event
from kubesched.api.status import Status, StatusCause, StatusDetails
from kubesched.errors import KubeschedError

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(KubeschedError):
    """The bytes are no protobuf that we understand."""


# Writing. As long as every text is ASCII and shorter than 128 characters a message is ASCII too: tags and lengths are
# single characters then, and a message is made by filling in a template. What is not so short is left to JSON.


def varint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80)) + varint(value >> 14)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message, of any length."""
    length = len(content)
    if length < 0x80:
        return b"%c%c%b" % (number << 3 | _BYTES, length, content)
    return b"%c%b%b" % (number << 3 | _BYTES, varint(length), content)


def _template(*numbers: int) -> str:
    """A message of short texts with these field numbers; each takes a length and a text."""
    return "".join(f"{number << 3 | _BYTES:c}%c%s" for number in numbers)


def _envelope(api_version: str, kind: str) -> bytes:
    type_meta = _template(1, 2) % (len(api_version), api_version, len(kind), kind)
    return _MAGIC + bytes_field(1, type_meta.encode("ascii"))


_BINDING = _envelope("v1", "Binding")
_BINDING_METADATA = _template(1, 3, 5)
_BINDING_TARGET = _template(1, 3)
_BINDING_PARTS = _template(1, 2)
_EVENT = _envelope("events.k8s.io/v1", "Event")
_EVENT_METADATA = _template(1, 3)
_EVENT_REPORT = _template(4, 5, 6, 7)
_REFERENCE_NAMES = _template(2, 3, 4)


def encode_binding(namespace: str, name: str, uid: str, node_name: str) -> bytes | None:
    """A core/v1 Binding of a pod to a node; None if one of the names is too long for this."""
    metadata = _BINDING_METADATA % (len(name), name, len(namespace), namespace, len(uid), uid)
    target = _BINDING_TARGET % (4, "Node", len(node_name), node_name)
    parts = _BINDING_PARTS % (len(metadata), metadata, len(target), target)
    return _BINDING + bytes_field(2, parts.encode("ascii")) if parts.isascii() else None


def encode_event(event: Event) -> bytes | None:
    """A new events.k8s.io/v1 Event about one object; None if there is more to it, or a name is too long for this."""
    if event.series is not None or event.related is not None or event.event_time is None:
        return None
    about = event.regarding
    template = EventTemplate(
        controller=event.reporting_controller,
        instance=event.reporting_instance,
        action=event.action,
        reason=event.reason,
        type_=event.type,
        kind=about.kind,
        api_version=about.api_version,
        field_path=about.field_path,
    )
    moment = datetime.fromisoformat(event.event_time)
    return template.fill(
        event.metadata.name,
        event.metadata.namespace,
        about.namespace,
        about.name,
        about.uid,
        about.resource_version,
        micro_time(int(moment.timestamp()), moment.microsecond),
        event.note.encode(),
    )


class EventTemplate:
    """Events that differ only in what they are about, when they were, and in their note.

    There is one event per pod, and all but the last few fields are the same in most of them.
    """

    __slots__ = ("_kind", "_report", "_type", "_version")

    def __init__(
        self,
        *,
        controller: str,
        instance: str,
        action: str,
        reason: str,
        type_: str,
        kind: str,
        api_version: str,
        field_path: str,
    ) -> None:
        self._report = _EVENT_REPORT % (
            len(controller),
            controller,
            len(instance),
            instance,
            len(action),
            action,
            len(reason),
            reason,
        )
        self._kind = _template(1) % (len(kind), kind)
        self._version = (
            _template(5) % (len(api_version), api_version),
            _template(7) % (len(field_path), field_path),
        )
        self._type = _template(11) % (len(type_), type_)

    def fill(
        self,
        name: str,
        namespace: str,
        about_namespace: str,
        about_name: str,
        about_uid: str,
        about_revision: str,
        time: bytes,
        note: bytes,
    ) -> bytes | None:
        """The message; `time` is as `micro_time` encodes it. None if a text is too long or not ASCII."""
        metadata = _EVENT_METADATA % (len(name), name, len(namespace), namespace)
        names = _REFERENCE_NAMES % (
            len(about_namespace),
            about_namespace,
            len(about_name),
            about_name,
            len(about_uid),
            about_uid,
        )
        version, field_path = self._version
        regarding = (
            f"{self._kind}{names}{version}2{len(about_revision):c}{about_revision}{field_path}"
        )
        texts = (
            f"\n{len(metadata):c}{metadata}{self._report}B{len(regarding):c}{regarding}{self._type}"
        )
        if not texts.isascii():
            return None
        return _EVENT + bytes_field(
            2, b"%b\x12%c%b%b" % (texts.encode(), len(time), time, bytes_field(10, note))
        )


def micro_time(seconds: int, micros: int) -> bytes:
    """A MicroTime."""
    return b"\x08%b\x10%b" % (_seconds_varint(seconds), varint(micros * 1000))


_seconds_varint = functools.lru_cache(maxsize=16)(varint)
"""Events come by the thousand in a second."""


# Reading.


def decode_status(data: bytes) -> Status:
    """The `Status` in an answer. Raises `ProtobufError` for anything else."""
    if not data.startswith(_MAGIC):
        raise ProtobufError("not in the API's protobuf encoding")
    envelope = _Message(data[len(_MAGIC) :])
    kind = envelope.message(1).text(2)
    if kind != "Status":
        raise ProtobufError(f"a {kind or 'nameless object'} where a Status was expected")
    status = envelope.message(2)
    details = status.message(5)
    return Status(
        status=status.text(2),
        message=status.text(3),
        reason=status.text(4),
        details=_details(details) if details else None,
        code=status.integer(6),
    )


def _details(details: _Message) -> StatusDetails:
    causes = [
        StatusCause(reason=cause.text(1), message=cause.text(2), field=cause.text(3))
        for cause in details.messages(4)
    ]
    return StatusDetails(
        name=details.text(1),
        group=details.text(2),
        kind=details.text(3),
        uid=details.text(6),
        causes=causes or None,
        retry_after_seconds=details.integer(5),
    )


class _Message:
    """The fields of one message, by number; of a field that occurs more than once the last counts."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _fields(data):
            self._fields.setdefault(number, []).append(value)

    def __bool__(self) -> bool:
        return bool(self._fields)

    def _bytes(self, number: int) -> list[bytes]:
        values = self._fields.get(number, [])
        chunks = [value for value in values if isinstance(value, bytes)]
        if len(chunks) != len(values):
            raise ProtobufError(f"field {number} is a number")
        return chunks

    def messages(self, number: int) -> list[_Message]:
        return [_Message(value) for value in self._bytes(number)]

    def message(self, number: int) -> _Message:
        values = self._bytes(number)
        return _Message(values[-1] if values else b"")

    def text(self, number: int) -> str:
        values = self._bytes(number)
        return values[-1].decode(errors="replace") if values else ""

    def integer(self, number: int) -> int:
        value = self._fields.get(number, [0])[-1]
        if isinstance(value, bytes):
            raise ProtobufError(f"field {number} is no number")
        return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = _read_varint(data, position)
        elif wire_type in (_FIXED32, _FIXED64):
            length = 4 if wire_type == _FIXED32 else 8
        else:
            raise ProtobufError(f"wire type {wire_type} is unknown")
        if position + length > len(data):
            raise ProtobufError("a field ends behind its message")
        yield number, data[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ProtobufError("a number does not end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
