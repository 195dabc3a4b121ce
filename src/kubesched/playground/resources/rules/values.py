"""Converts JSON of a custom resource to values of the types its schema declares.

Strings with a `format` become durations, timestamps and bytes; numbers become doubles. A null field
is absent; in lists and maps null is a value. Undescribed values only take part in comparisons.
"""

from __future__ import annotations

import base64
import binascii

from kubesched.api.cel import types
from kubesched.api.cel.times import parse_timestamp
from kubesched.api.cel.types import Type
from kubesched.api.cel.values import MapList, SetList, Value
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.schema.structural import (
    EMBEDDED,
    INT_OR_STRING,
    parse_format_duration,
)
from kubesched.playground.resources.rules.declarations import KEYWORDS, escape, with_identity


def value_of(schema: JsonObject, value: Json, *, is_root: bool = False) -> Value:
    """The CEL value of JSON that passed schema validation."""
    if value is None or schema.get(INT_OR_STRING):
        return value
    if isinstance(value, dict):
        return _object(with_identity(schema) if is_root else schema, value)
    if isinstance(value, list):
        return _list(schema, value)
    if isinstance(value, str):
        return _text(schema, value)
    return float(value) if schema.get("type") == "number" else value


def _object(schema: JsonObject, value: JsonObject) -> Value:
    properties = schema.get("properties")
    if properties is None:
        element = schema.get("additionalProperties")
        if isinstance(element, dict):
            return {name: _member(element, member) for name, member in value.items()}
        return value
    result: dict[str, Value] = {}
    for name, member in value.items():
        known = properties.get(name)
        if known is None:
            result[name] = member
        elif member is not None:
            converted = _member(known, member)
            result[escape(name) or name] = converted
            if name in KEYWORDS:
                result[name] = converted
    return result


def _member(schema: JsonObject, value: Json) -> Value:
    return value_of(schema, value, is_root=bool(schema.get(EMBEDDED)))


def _list(schema: JsonObject, value: list[Json]) -> Value:
    items = schema.get("items")
    elements = [_member(items, item) for item in value] if isinstance(items, dict) else value
    match schema.get("x-kubernetes-list-type"):
        case "set" if all(isinstance(element, str | int | float) for element in elements):
            return SetList(elements)
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            return MapList(elements, tuple([escape(key) or key for key in keys]))
    return elements


def _text(schema: JsonObject, value: str) -> Value:
    match schema.get("format"):
        case "duration":
            parsed: Value = parse_format_duration(value)
        case "date":
            parsed = parse_timestamp(f"{value}T00:00:00Z")
        case "date-time":
            parsed = parse_timestamp(value) or parse_timestamp(f"{value}Z")
        case "byte":
            try:
                parsed = base64.b64decode(value, validate=True)
            except binascii.Error:
                parsed = None
        case _:
            return value
    return _Malformed(value) if parsed is None else parsed


class _Malformed(str):
    """A string that does not match its format; every operation on it fails."""

    __slots__ = ()
    cel_type: Type = types.ERROR
