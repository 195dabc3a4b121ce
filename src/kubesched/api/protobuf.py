r"""The API's protobuf encoding, for the two objects written once per pod and the responses.

An API server takes several times as long to read these objects as JSON than as protobuf, which
matters when it is the bottleneck. Everything else is small or rare and stays JSON, so this is not a
full codec: two writers for the common case, and a reader of `Status`.

Wire format: `k8s\0`, then an envelope (`runtime.Unknown`) with kind, version and the object. Field
numbers are part of the API and never change.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from kubesched.api.status import Status, StatusCause, StatusDetails
from kubesched.base.errors import KubeschedError

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(KubeschedError):
    """The bytes are not protobuf in a supported form."""


# Writing. If all texts are ASCII and shorter than 128 characters, the message is ASCII too: tags
# and lengths are single characters, and a message is a join of texts. Longer texts use JSON.


def varint(value: int) -> bytes:
    """Encodes a non-negative number."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0x10000000 <= value < 0x800000000:  # five bytes, as for most nanoseconds of a time
        return bytes(
            (
                value & 0x7F | 0x80,
                value >> 7 & 0x7F | 0x80,
                value >> 14 & 0x7F | 0x80,
                value >> 21 & 0x7F | 0x80,
                value >> 28,
            )
        )
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80)) + varint(value >> 14)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message, of any length."""
    length = len(content)
    if length < 0x80:
        return b"%c%c%b" % (number << 3 | _BYTES, length, content)
    return b"%c%b%b" % (number << 3 | _BYTES, varint(length), content)


_LENGTHS = [chr(length) for length in range(0x80)]
"""Length prefixes of short texts. An IndexError means that a text is too long."""


def _short(number: int, text: str) -> str:
    """A field of short text."""
    return f"{number << 3 | _BYTES:c}{_LENGTHS[len(text)]}{text}"


def _envelope(api_version: str, kind: str) -> bytes:
    type_meta = _short(1, api_version) + _short(2, kind)
    return _MAGIC + bytes_field(1, type_meta.encode("ascii"))


_BINDING = _envelope("v1", "Binding")
_EVENT = _envelope("events.k8s.io/v1", "Event")


def encode_binding(namespace: str, name: str, uid: str, node_name: str) -> bytes | None:
    """A core/v1 Binding of a pod to a node; None if one of the names is too long."""
    # The metadata has fields 1, 3 and 5, the target 1 and 3; the binding holds them as 1 and 2.
    lengths = _LENGTHS
    try:
        metadata = (
            f"\n{lengths[len(name)]}{name}"
            f"\x1a{lengths[len(namespace)]}{namespace}"
            f"*{lengths[len(uid)]}{uid}"
        )
        target = f"\n\x04Node\x1a{lengths[len(node_name)]}{node_name}"
        parts = f"\n{lengths[len(metadata)]}{metadata}\x12{lengths[len(target)]}{target}"
    except IndexError:
        return None
    return _BINDING + bytes_field(2, parts.encode("ascii")) if parts.isascii() else None


def event_message(
    report: tuple[str, str, str, str],
    type_: str,
    own: tuple[str, str],
    about: tuple[str, str, str, str, str, str, str],
    time: bytes,
    note: bytes,
) -> bytes | None:
    """An Event, or None if a text is too long or not ASCII. `micro_time` encodes `time`.

    Args:
        report: Controller, instance, action and reason.
        type_: `Normal` or `Warning`.
        own: Name and namespace of the event.
        about: Kind, namespace, name, uid, apiVersion, resourceVersion and fieldPath.
        time: When it happened.
        note: The text.
    """
    controller, instance, action, reason = report
    name, namespace = own
    kind, about_namespace, about_name, uid, version, revision, path = about
    lengths = _LENGTHS
    try:
        metadata = f"\n{lengths[len(name)]}{name}\x1a{lengths[len(namespace)]}{namespace}"
        regarding = (
            f"\n{lengths[len(kind)]}{kind}"
            f"\x12{lengths[len(about_namespace)]}{about_namespace}"
            f"\x1a{lengths[len(about_name)]}{about_name}"
            f'"{lengths[len(uid)]}{uid}'
            f"*{lengths[len(version)]}{version}"
            f"2{lengths[len(revision)]}{revision}"
            f":{lengths[len(path)]}{path}"
        )
        texts = (
            f"\n{lengths[len(metadata)]}{metadata}"
            f'"{lengths[len(controller)]}{controller}*{lengths[len(instance)]}{instance}'
            f"2{lengths[len(action)]}{action}:{lengths[len(reason)]}{reason}"
            f"B{lengths[len(regarding)]}{regarding}Z{lengths[len(type_)]}{type_}"
        )
    except IndexError:
        return None
    if not texts.isascii():
        return None
    return _EVENT + bytes_field(
        2, b"%b\x12%c%b%b" % (texts.encode(), len(time), time, bytes_field(10, note))
    )


def micro_time(seconds: int, micros: int) -> bytes:
    return b"\x08%b\x10%b" % (_seconds_varint(seconds), varint(micros * 1000))


_seconds_varint = functools.lru_cache(maxsize=16)(varint)
"""Cached: there are thousands of events per second."""


# Reading.


def decode_status(data: bytes) -> Status:
    """The `Status` in a response. Raises `ProtobufError` for anything else."""
    if not data.startswith(_MAGIC):
        raise ProtobufError("not in the API's protobuf encoding")
    envelope = Message(data[len(_MAGIC) :])
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


def _details(details: Message) -> StatusDetails:
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


class Message:
    """The fields of one message, by number; the last occurrence of a repeated field counts."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in fields_of(data):
            self._fields.setdefault(number, []).append(value)

    def __bool__(self) -> bool:
        return bool(self._fields)

    def _bytes(self, number: int) -> list[bytes]:
        values = self._fields.get(number, [])
        chunks = [value for value in values if isinstance(value, bytes)]
        if len(chunks) != len(values):
            raise ProtobufError(f"field {number} is a number")
        return chunks

    def messages(self, number: int) -> list[Message]:
        return [Message(value) for value in self._bytes(number)]

    def texts(self, number: int) -> list[str]:
        return [value.decode(errors="replace") for value in self._bytes(number)]

    def integers(self, number: int) -> list[int]:
        """Values of a field that may be packed."""
        values: list[int] = []
        for value in self._fields.get(number, ()):
            if isinstance(value, int):
                values.append(value)
                continue
            position = 0
            while position < len(value):
                one, position = _read_varint(value, position)
                values.append(one)
        return values

    def message(self, number: int) -> Message:
        values = self._bytes(number)
        return Message(values[-1] if values else b"")

    def text(self, number: int) -> str:
        values = self._bytes(number)
        return values[-1].decode(errors="replace") if values else ""

    def integer(self, number: int) -> int:
        value = self._fields.get(number, [0])[-1]
        if isinstance(value, bytes):
            raise ProtobufError(f"field {number} is no number")
        return value


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields, in order; fixed-size numbers stay bytes."""
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
