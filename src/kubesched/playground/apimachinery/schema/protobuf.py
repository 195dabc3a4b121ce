"""Decodes Kubernetes' protobuf bodies.

kubectl and other Go clients always send built-in kinds as protobuf, but accept JSON responses, so
only decoding is needed. The type table holds all field numbers; the result is the object that the
client would have sent as JSON.

A Go client writes every plain field, zero or not, and a pointer only when it is set. Therefore zero
values of plain fields are dropped here, and zero values of pointers kept.
"""

from __future__ import annotations

import base64
import struct
from functools import cache
from typing import TypeAlias

from kubesched.api.protobuf import ProtobufError, fields_of
from kubesched.playground.apimachinery.objects import (
    Json,
    JsonObject,
    decode,
    micro_timestamp,
    timestamp,
)
from kubesched.playground.apimachinery.schema.table import Field, TypeRef, type_of_kind, types

MAGIC = b"k8s\x00"

_MAX_DEPTH = 64
_SCHEMAS = ("Schema", "SchemaOrArray", "SchemaOrBool")
_ZERO_TIME_S = -62_135_596_800
"""Go's zero time, the first of January of the year 1, which JSON omits."""


ByNumber: TypeAlias = "dict[int, Field | ByNumber]"


_OLD_VERSIONS = {("autoscaling/v1", "HorizontalPodAutoscaler"): "HorizontalPodAutoscalerV1"}
"""Types of kinds whose fields differ from those of the stored version."""


def decode_protobuf(body: bytes) -> JsonObject:
    """The object in an enveloped body, with its `apiVersion` and `kind`."""
    if not body.startswith(MAGIC):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message: the prefix is missing"
        )
    type_meta: JsonObject = {}
    raw = b""
    for number, value in fields_of(body[len(MAGIC) :]):
        if number == 1:
            names = {1: "apiVersion", 2: "kind"}
            type_meta = {
                names.get(inner, ""): _text(text) for inner, text in fields_of(_bytes(value))
            }
        elif number == 2:
            raw = _bytes(value)
    api_version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    group = api_version.rpartition("/")[0]
    name = _OLD_VERSIONS.get((api_version, kind)) or kind
    kind_type = type_of_kind(group, name) or types().get(f"meta.{kind}")
    if kind_type is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"apiVersion": api_version, "kind": kind, **_message(kind_type.name, raw, 0)}


def _bytes(value: bytes | int) -> bytes:
    if not isinstance(value, bytes):
        raise ProtobufError("wrong wire type for a message, string or bytes field")
    return value


def _integer(value: bytes | int) -> int:
    """A signed number: negative ones have the highest of 64 bits set."""
    if isinstance(value, bytes):
        raise ProtobufError("wrong wire type for a number")
    return value - (1 << 64) if value >> 63 else value


def _text(value: bytes | int) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise ProtobufError("a string field is not valid UTF-8") from None


@cache
def _by_number(identity: str) -> ByNumber:
    """Fields of a type by number; the number of an embedded struct maps to its fields."""
    by_number: ByNumber = {}
    for field in types()[identity].fields.values():
        if not field.number:
            continue
        *levels, last = field.number
        inner = by_number
        for level in levels:
            below = inner.setdefault(level, {})
            assert isinstance(below, dict)
            inner = below
        inner[last] = field
    return by_number


def _message(identity: str, data: bytes, depth: int) -> JsonObject:
    result: JsonObject = {}
    _read_into(result, _by_number(identity), data, depth)
    return result


def _read_into(result: JsonObject, by_number: ByNumber, data: bytes, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ProtobufError("the message is nested too deeply")
    for number, value in fields_of(data):
        field = by_number.get(number)
        if isinstance(field, dict):
            _read_into(result, field, _bytes(value), depth + 1)
        elif field is not None:
            _read_field(result, field, value, depth)


def _read_field(result: JsonObject, field: Field, value: bytes | int, depth: int) -> None:
    ref = field.type
    if ref.shape == "list":
        assert ref.item is not None
        result.setdefault(field.name, []).append(_value(ref.item, value, depth))
    elif ref.shape == "map":
        assert ref.item is not None
        key, item = _map_entry(ref.item, _bytes(value), depth)
        result.setdefault(field.name, {})[key] = item
    else:
        decoded = _value(ref, value, depth)
        if decoded is None or (
            ref.shape == "scalar" and not field.is_pointer and decoded in ("", 0, False)
        ):
            return
        result[field.name] = decoded


def _map_entry(item: TypeRef, data: bytes, depth: int) -> tuple[str, Json]:
    key, value = "", "" if item.shape == "scalar" else {}
    for number, part in fields_of(data):
        if number == 1:
            key = _text(part)
        elif number == 2:
            value = _value(item, part, depth)
    return key, value


def _value(ref: TypeRef, value: bytes | int, depth: int) -> Json:
    if ref.shape == "object":
        return _message(ref.name, _bytes(value), depth + 1)
    name = ref.name
    if ref.shape == "list" or ref.shape == "map":
        # A named list type (`ExtraValue`) is a message with the items in field 1.
        assert ref.item is not None
        return [_value(ref.item, part, depth + 1) for _number, part in fields_of(_bytes(value))]
    if name == "string":
        return _text(value)
    if name == "bytes":
        return base64.b64encode(_bytes(value)).decode()
    if name == "boolean":
        return bool(value)
    if name in ("int32", "int64"):
        return _integer(value)
    if name == "number":
        return _double(_bytes(value))
    if name in _SCHEMAS:
        return _schema(name, _bytes(value), depth + 1)
    return _WELL_KNOWN[name](_bytes(value))


def _double(data: bytes) -> float:
    if len(data) != 8:
        raise ProtobufError("wrong wire type for a double")
    number: float = struct.unpack("<d", data)[0]
    return int(number) if number.is_integer() else number


def _schema(name: str, data: bytes, depth: int) -> Json:
    """A JSON schema, or the list or boolean that stands in its place."""
    if name == "Schema":
        return _message("apiextensions.JSONSchemaProps", data, depth)
    parts = list(fields_of(data))
    schemas = [
        _schema("Schema", value, depth + 1) for _, value in parts if isinstance(value, bytes)
    ]
    if name == "SchemaOrArray" and any(number == 2 for number, _ in parts):
        return schemas
    return schemas[0] if schemas else any(value for _, value in parts)


def _quantity(data: bytes) -> str | None:
    for number, value in fields_of(data):
        if number == 1:
            return _text(value) or None
    return None


def _moment(data: bytes) -> tuple[int, int] | None:
    """Seconds and nanoseconds; None for the zero time."""
    parts = {number: _integer(value) for number, value in fields_of(data)}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    return (seconds, nanos) if parts and seconds != _ZERO_TIME_S else None


def _time(data: bytes) -> str | None:
    moment = _moment(data)
    return timestamp(moment[0]) if moment is not None else None


def _micro_time(data: bytes) -> str | None:
    moment = _moment(data)
    return micro_timestamp(moment[0] + moment[1] / 1e9) if moment is not None else None


def _int_or_string(data: bytes) -> int | str:
    parts = dict(fields_of(data))
    if parts.get(1) == 1:
        return _text(parts.get(3, b""))
    return _integer(parts.get(2, 0))


def _any(data: bytes) -> Json:
    """Raw JSON in field 1 (RawExtension, FieldsV1)."""
    for number, value in fields_of(data):
        if number == 1 and value:
            return decode(_bytes(value))
    return None


_WELL_KNOWN = {
    "Quantity": _quantity,
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": _int_or_string,
    "any": _any,
}
