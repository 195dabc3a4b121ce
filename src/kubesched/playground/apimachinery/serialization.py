"""Decodes request bodies from JSON, YAML or protobuf, with a size limit."""

from __future__ import annotations

import json

import msgspec

from kubesched.api.codec import without_nulls
from kubesched.base.errors import BadRequest, RequestEntityTooLarge
from kubesched.playground.apimachinery.objects import Json, JsonObject, decode

MAX_BODY_BYTES = 3 * 1024 * 1024  # upstream's limit for a request body
MAX_VALUES = 25_000
"""Maximum values in a body or patched object. Definitions, the largest in use, have 20,000."""
MAX_DEPTH = 500
"""Maximum levels of nesting: code that visits objects is recursive. Python has a limit, too, but
since 3.14 it depends on the size of the stack.
"""


def check_size(body: bytes) -> None:
    """Reject a body, or a patched object, above the size limit."""
    if len(body) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


def check_values(body: bytes, value: Json, more: int = 0) -> None:
    """Reject a body, or a patched object, that has too many values or is nested too deeply."""
    openings, limit = body.count(b"[") + body.count(b"{"), MAX_VALUES + more
    if openings <= MAX_DEPTH and openings + body.count(b",") <= limit:
        return  # upper bounds, found quickly
    count, depth, level = 0, 0, [value]
    while level:
        containers = [each for each in level if isinstance(each, dict | list)]
        level = [
            item
            for each in containers
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        count, depth = count + len(level), depth + bool(containers)
        if depth > MAX_DEPTH:
            raise BadRequest(f"the object is nested too deeply: limit is {MAX_DEPTH} levels")
        if count > limit:
            raise RequestEntityTooLarge(f"Request entity too large: limit is {limit} values")


def decode_json(body: bytes) -> Json:
    value = decode_raw_json(body)
    return without_nulls(value) if b"null" in body else value


def decode_raw_json(body: bytes, more: int = 0) -> Json:
    """Decode JSON that may exceed an object's limit by `more` values; keeps nulls for patches."""
    check_size(body)
    if not body:
        raise BadRequest(
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
        )
    try:
        value: Json = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None
    check_values(body, value, more)
    return value


def duplicate_fields(body: bytes) -> list[str]:
    """Paths of fields that a JSON body repeats; `decode_json` takes the last value."""
    paths: list[str] = []
    try:
        json.loads(body, object_pairs_hook=_unique)
    except _RepeatedKey:
        _collect_duplicates(json.loads(body, object_pairs_hook=_Pairs), "", paths)
    return paths


class _RepeatedKey(Exception):
    """A JSON object has a key twice."""


class _Pairs(list[tuple[str, Json]]):
    """The members of a JSON object, repeated ones included."""


def _unique(pairs: list[tuple[str, Json]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
        raise _RepeatedKey


def _collect_duplicates(value: Json, path: str, paths: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            here = f"{path}.{key}" if path else key
            if key in seen:
                paths.append(here)
            seen.add(key)
            _collect_duplicates(item, here, paths)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect_duplicates(item, f"{path}[{index}]", paths)


def decode_yaml(body: bytes, *, keeps_nulls: bool = False) -> Json:
    from kubesched.api.yaml_nodes import DuplicateKeyError, YamlError, load

    if body.startswith(b"{"):  # kubectl applies JSON, which decodes fifty times as fast
        try:
            value = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = None
        if value is not None and not duplicate_fields(body):
            check_values(body, value)
            return value if keeps_nulls else without_nulls(value)
    try:
        value = load(body, max_nodes=2 * MAX_VALUES)  # keys are nodes, too
        return value if keeps_nulls else without_nulls(value)
    except DuplicateKeyError as error:
        raise BadRequest(
            f"error strict decoding YAML: yaml: unmarshal errors:\n  {error}"
        ) from None
    except YamlError as error:
        raise BadRequest(f"yaml: {error}") from None


def decode_protobuf_body(body: bytes) -> JsonObject:
    from kubesched.api.protobuf import ProtobufError
    from kubesched.playground.apimachinery.schema.protobuf import decode_protobuf

    try:
        return decode_protobuf(body)
    except (ProtobufError, msgspec.DecodeError, OverflowError) as error:
        raise BadRequest(f"unable to decode the protobuf body: {error}") from None
