"""The OpenAPI 2 document as protobuf (gnostic's `openapi.v2.Document`).

Go clients request it only in this form. The encoder supports the parts that this server's documents
have and omits keywords that OpenAPI 2 does not support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kubesched.api.protobuf import varint
from kubesched.playground.apimachinery.objects import Json, JsonObject, encode

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
CONTENT_TYPE = MEDIA_TYPE.replace("@", ".")  # upstream's, because `@` is not valid in a media type

_Encoder: TypeAlias = Callable[[JsonObject], bytes]

_SCHEMA_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_SCHEMA_COUNTS = {
    "maxLength": 11,
    "minLength": 12,
    "maxItems": 14,
    "minItems": 15,
    "maxProperties": 17,
    "minProperties": 18,
}


def encode_document(document: JsonObject) -> bytes:
    info = document["info"]
    return b"".join(
        (
            _text(1, document["swagger"]),
            _message(2, _text(1, info["title"]) + _text(2, info["version"])),
            _message(8, b""),  # no paths
            _message(9, b"".join(_named(1, document["definitions"], _schema))),
        )
    )


def _schema(schema: JsonObject) -> bytes:
    if "allOf" in schema:  # a reference with a description; OpenAPI 2 has both side by side
        schema = {**schema, **schema["allOf"][0]}
    parts = [_text(number, schema[key]) for key, number in _SCHEMA_TEXTS.items() if schema.get(key)]
    parts += [
        _number(number, schema[key]) for key, number in _SCHEMA_COUNTS.items() if schema.get(key)
    ]
    if "default" in schema:
        parts.append(_message(5, _any(schema["default"])))
    parts += [_text(19, name) for name in schema.get("required", ())]
    parts += [_message(20, _any(value)) for value in schema.get("enum", ())]
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        parts.append(_message(21, _message(1, _schema(additional))))
    elif additional is not None:
        parts.append(_message(21, _flag(2, additional)))
    if isinstance(schema.get("type"), str):
        parts.append(_message(22, _text(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(_message(23, _message(1, _schema(schema["items"]))))
    if schema.get("properties"):
        parts.append(_message(25, b"".join(_named(1, schema["properties"], _schema))))
    parts += _extensions(31, schema)
    return b"".join(parts)


def _named(number: int, items: Mapping[str, Json], encoded: _Encoder) -> Iterable[bytes]:
    return (
        _message(number, _text(1, name) + _message(2, encoded(item)))
        for name, item in items.items()
    )


def _extensions(number: int, holder: JsonObject) -> Iterable[bytes]:
    return (
        _message(number, _text(1, name) + _message(2, _any(value)))
        for name, value in holder.items()
        if name.startswith("x-")
    )


def _any(value: Json) -> bytes:
    return _text(2, encode(value).decode())  # as YAML, a superset of JSON


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _flag(number: int, value: bool) -> bytes:
    return _number(number, 1) if value else b""


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)
