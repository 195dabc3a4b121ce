"""Schemas of custom resources in the OpenAPI documents.

OpenAPI 2 supports fewer keywords than structural schemas, and kubectl rejects fields that an
OpenAPI 2 schema with properties does not list. Ambiguous parts are omitted there, as upstream does.
"""

from __future__ import annotations

from typing import Any

from kubesched.playground.apimachinery.objects import JsonObject

_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")


def published_schema(schema: JsonObject | None, metadata: JsonObject, *, is_v3: bool) -> JsonObject:
    """The published schema of a kind, with its metadata; open schemas list no fields."""
    if schema is None or (not is_v3 and schema.get(_PRESERVES)):
        return {"type": "object"}
    shown = dict(schema) if is_v3 else _in_version_2(schema)
    shown["properties"] = {**(shown.get("properties") or {}), "metadata": metadata}
    return shown


def _in_version_2(schema: JsonObject) -> JsonObject:
    shown = {key: value for key, value in schema.items() if key not in (*_JUNCTORS, "nullable")}
    if schema.get("nullable"):
        _remove(shown, "type", "items", "properties")
    if schema.get(_PRESERVES):
        _remove(shown, "items", "properties")
        if shown.get("type") == "object":
            del shown["type"]
    if shown.get("type") == "array" and "items" not in shown:
        del shown["type"]
    if "items" in shown:
        shown["items"] = _shown(shown["items"])
    if "additionalProperties" in shown:
        shown["additionalProperties"] = _shown(shown["additionalProperties"])
    properties = shown.get("properties")
    if properties:
        shown["properties"] = {name: _shown(member) for name, member in properties.items()}
        required = [
            name for name in shown.get("required") or () if not _is_nullable(properties.get(name))
        ]
        _remove(shown, "required")
        if required:
            shown["required"] = required
    return shown


def _shown(value: Any) -> Any:  # noqa: ANN401 (a schema, or true)
    return _in_version_2(value) if isinstance(value, dict) else value


def _is_nullable(member: Any) -> bool:  # noqa: ANN401 (a schema, or nothing)
    return isinstance(member, dict) and bool(member.get("nullable"))


def _remove(schema: JsonObject, *keys: str) -> None:
    for key in keys:
        schema.pop(key, None)
