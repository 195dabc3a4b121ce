"""Checks the JSON types in a definition's schema, so that later code can rely on them.

Upstream's decoder rejects wrong types before validation. Here the schema is plain JSON until this
check.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api.field_errors import FieldError, invalid
from kubesched.playground.apimachinery.objects import Json

_TEXTS = ("type", "format", "pattern", "x-kubernetes-list-type", "x-kubernetes-map-type")
_NUMBERS = ("minimum", "maximum", "multipleOf")
_COUNTS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_FLAGS = (
    "nullable",
    "uniqueItems",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-preserve-unknown-fields",
)
_SCALARS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(_TEXTS, ((str,), "a string")),
    **dict.fromkeys(_NUMBERS, ((int, float), "a number")),
    **dict.fromkeys(_COUNTS, ((int,), "an integer")),
    **dict.fromkeys(_FLAGS, ((bool,), "a boolean")),
}


def shape_problems(schema: Json, path: str) -> Iterator[FieldError]:
    """Values in a schema with the wrong JSON type."""
    if not isinstance(schema, dict):
        yield invalid(path, schema, "must be an object")
        return
    for name, (allowed, words) in _SCALARS.items():
        value = schema.get(name)
        # bool is a subclass of int in Python.
        is_right = isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
        if value is not None and not is_right:
            yield invalid(f"{path}.{name}", value, f"must be {words}")
    for field in ("required", "x-kubernetes-list-map-keys"):
        names = schema.get(field) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            yield invalid(f"{path}.{field}", names, "must be a list of strings")
    yield from _lists(schema, path)
    yield from _members(schema, path)


def _lists(schema: dict[str, Json], path: str) -> Iterator[FieldError]:
    for field in ("enum", "allOf", "anyOf", "oneOf"):
        value = schema.get(field)
        if value is None:
            continue
        if not isinstance(value, list):
            yield invalid(f"{path}.{field}", value, "must be a list")
            continue
        for index, item in enumerate(value):
            here = f"{path}.{field}[{index}]"
            if field != "enum":
                yield from shape_problems(item, here)


def _members(schema: dict[str, Json], path: str) -> Iterator[FieldError]:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, member in properties.items():
            yield from shape_problems(member, f"{path}.properties[{name}]")
    elif properties is not None:
        yield invalid(f"{path}.properties", properties, "must be an object")
    for field in ("items", "not"):
        if schema.get(field) is not None:
            yield from shape_problems(schema[field], f"{path}.{field}")
    additional = schema.get("additionalProperties")
    if additional is not None and not isinstance(additional, bool):
        yield from shape_problems(additional, f"{path}.additionalProperties")
