"""Decodes request bodies from JSON, YAML or protobuf, with a size limit."""

from __future__ import annotations

import msgspec

from kubesched.base.errors import BadRequest, RequestEntityTooLarge
from kubesched.playground.apimachinery.objects import Json, JsonObject, decode

MAX_BODY_BYTES = 3 * 1024 * 1024  # upstream's limit for a request body


def check_size(body: bytes) -> None:
    """Reject a body, or a patched object, above the size limit."""
    if len(body) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


def decode_json(body: bytes) -> Json:
    value = decode_raw_json(body)
    return strip_nulls(value) if b"null" in body else value


def decode_raw_json(body: bytes) -> Json:
    """Decode JSON and keep its nulls, which mean removal in a patch."""
    check_size(body)
    if not body:
        raise BadRequest(
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
        )
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None


def decode_yaml(body: bytes, *, keeps_nulls: bool = False) -> Json:
    import yaml

    from kubesched.api.kubernetes_yaml import load

    try:
        value = load(body)
        return value if keeps_nulls else strip_nulls(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadRequest(f"yaml: {error}") from None


def decode_protobuf_body(body: bytes) -> JsonObject:
    from kubesched.api.protobuf import ProtobufError
    from kubesched.playground.apimachinery.schema.protobuf import decode_protobuf

    try:
        return decode_protobuf(body)
    except (ProtobufError, msgspec.DecodeError, OverflowError) as error:
        raise BadRequest(f"unable to decode the protobuf body: {error}") from None


def strip_nulls(value: Json) -> Json:
    """Remove null fields: to a typed server, null and absent are the same."""
    if isinstance(value, dict):
        return {key: strip_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [strip_nulls(item) for item in value]
    return value
