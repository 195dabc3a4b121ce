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

_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
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
    """Encode the document."""
    info = document["info"]
    return b"".join(
        (
            _text(1, document["swagger"]),
            _message(2, _text(1, info["title"]) + _text(2, info["version"])),
            _message(8, b"".join(_named(2, document["paths"], _path_item))),
            _message(9, b"".join(_named(1, document["definitions"], _schema))),
        )
    )


def _path_item(item: JsonObject) -> bytes:
    operations = [
        _message(number, _operation(item[method]))
        for method, number in _METHODS.items()
        if method in item
    ]
    return b"".join((*operations, *_parameters(9, item)))


def _operation(operation: JsonObject) -> bytes:
    responses = (
        _message(1, _text(1, code) + _message(2, _message(1, _response(response))))
        for code, response in operation["responses"].items()
    )
    return b"".join(
        (
            *(_text(7, media_type) for media_type in operation.get("consumes", ())),
            *_parameters(8, operation),
            _message(9, b"".join(responses)),
            *_extensions(13, operation),
        )
    )


def _response(response: JsonObject) -> bytes:
    schema = response.get("schema")
    body = b"" if schema is None else _message(2, _message(1, _schema(schema)))
    return _text(1, response["description"]) + body


def _parameters(number: int, holder: JsonObject) -> Iterable[bytes]:
    return (
        _message(number, _message(1, _parameter(item))) for item in holder.get("parameters", ())
    )


def _parameter(parameter: JsonObject) -> bytes:
    name, location = parameter["name"], parameter["in"]
    required = bool(parameter.get("required"))
    if location == "body":
        schema = _message(5, _schema(parameter["schema"]))
        return _message(1, _text(2, name) + _text(3, location) + _flag(4, required) + schema)
    is_query = location == "query"
    fields = _flag(1, required) + _text(2, location) + _text(4, name)
    fields += _text(6 if is_query else 5, parameter["type"])
    return _message(2, _message(3 if is_query else 4, fields))


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
