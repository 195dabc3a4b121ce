"""Structural schemas of custom resources: pruning, defaulting and validation.

    decode ──► prune ──► fill_defaults ──► admission ──► problems_of

Messages are those of upstream's validator, without CEL rules. Common values of `format` are
checked; others are accepted, as upstream does.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Any

from kubesched.api.cel import regular_expressions
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from kubesched.base.errors import RequestEntityTooLarge
from kubesched.playground.apimachinery.objects import Json, JsonObject, copy_json, encode
from kubesched.playground.apimachinery.schema.table import types
from kubesched.playground.apimachinery.serialization import MAX_VALUES

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
_IDENTITY = ("apiVersion", "kind", "metadata")
MAX_EFFORT = 2_000_000
"""Of a validation: ten for a value against a schema, one for each choice, and for each character of
choices that are listed.
"""
NO_PREDECESSOR = object()
"""The old value of anything that is created or that an update adds."""


# -- pruning and defaults -------------------------------------------------------------------------


def prune(schema: JsonObject, obj: JsonObject) -> list[str]:
    """Remove fields that the schema of a whole object lacks; returns their sorted paths."""
    removed: list[str] = []
    _prune(schema, obj, "", removed, keeps=_IDENTITY)
    return sorted(removed)


def _prune(
    schema: JsonObject, value: Json, path: str, removed: list[str], keeps: tuple[str, ...] = ()
) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                _prune(items, item, f"{path}[{index}]", removed)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    if schema.get(EMBEDDED):
        keeps = _IDENTITY
    for name in list(value):
        here = f"{path}.{name}" if path else name
        if name in keeps:
            if name == "metadata" and isinstance(value[name], dict):
                known = types()["meta.ObjectMeta"].fields
                for unknown in [key for key in value[name] if key not in known]:
                    del value[name][unknown]
                    removed.append(f"{here}.{unknown}")
        elif name in properties:
            _prune(properties[name], value[name], here, removed)
        elif isinstance(additional, dict):
            _prune(additional, value[name], here, removed)
        elif not schema.get(PRESERVE) and additional is not True:
            del value[name]
            removed.append(here)


def fill_defaults(schema: JsonObject, value: Json, room: list[int] | None = None) -> None:
    """Default absent fields, and nulls that are not allowed; whole floats become integers.

    A null that is neither allowed nor has a default is removed; in a list it stays, for validation
    to reject it. Each item of a list may get all defaults: `room` is how many values may be added.
    """
    room = [MAX_VALUES] if room is None else room
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                value[index] = _filled(items, item, room)
        return
    if not isinstance(value, dict):
        return
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, member in properties.items():
        if name not in value and member.get("default") is not None:
            value[name] = _default(member, room)
    for name in list(value):
        member = properties.get(name, additional)
        if isinstance(member, dict):
            value[name] = _filled(member, value[name], room)
            if value[name] is None and not member.get("nullable"):
                del value[name]


def _filled(schema: JsonObject, value: Json, room: list[int]) -> Json:
    if value is None and not schema.get("nullable"):
        value = _default(schema, room)
    value = _whole(schema, value)
    fill_defaults(schema, value, room)
    return value


def _default(schema: JsonObject, room: list[int]) -> Json:
    default = schema.get("default")
    room[0] -= _count(default)
    if room[0] < 0:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_VALUES} values")
    return copy_json(default)


def _count(value: Json) -> int:
    items = value.values() if isinstance(value, dict) else value
    return 1 + sum(map(_count, items)) if isinstance(value, dict | list) else 1


def _whole(schema: JsonObject, value: Json) -> Json:
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and schema.get("type") == "integer" else value


# -- validation -----------------------------------------------------------------------------------


def problems_of(
    schema: JsonObject, obj: JsonObject, old: JsonObject | None = None
) -> list[FieldError]:
    """The problems of a whole object, without its metadata.

    Values that an update does not change are not validated again, because the schema may have
    changed.
    """
    room = [MAX_EFFORT]
    problems = [required(name) for name in schema.get("required") or () if name not in obj]
    for name, member in (schema.get("properties") or {}).items():
        if name in obj and name not in _IDENTITY:
            problems += _problems(member, obj[name], name, room, predecessor_of(name, old))
    problems += _combinations(schema, obj, "", room)
    return problems


def predecessor_of(name: str, old: object) -> object:
    """The value of a field before an update, or NO_PREDECESSOR."""
    return old.get(name, NO_PREDECESSOR) if isinstance(old, dict) else NO_PREDECESSOR


def _by_keys(schema: JsonObject, items: object) -> dict[bytes, JsonObject]:
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(items, list):
        return {}
    return {_keys_of(schema, item): item for item in reversed(items) if isinstance(item, dict)}


def _keys_of(schema: JsonObject, item: Json) -> bytes:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return encode([item.get(key) for key in keys]) if isinstance(item, dict) else b""


def _take(room: list[int], effort: int) -> None:
    room[0] -= effort
    if room[0] < 0:
        raise RequestEntityTooLarge("Request entity too large: its schema asks for too much work")


def _problems(
    schema: JsonObject, value: Json, path: str, room: list[int], old: object = NO_PREDECESSOR
) -> list[FieldError]:
    _take(room, 10 + len(schema.get("required") or ()))
    if value is None and schema.get("nullable"):
        # Upstream: null is never a valid enum value, even where it is listed.
        return _enum(schema, value, path, room)
    if old is not NO_PREDECESSOR and value == old:
        return []
    mistyped = _type_problem(schema, value, path)
    if mistyped is not None:
        return [mistyped]
    problems = _enum(schema, value, path, room)
    if isinstance(value, str):
        problems += _text(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        problems += _number(schema, value, path)
    elif isinstance(value, list):
        problems += _list(schema, value, path, room, old)
    elif isinstance(value, dict):
        problems += _object(schema, value, path, room, old)
    return [*problems, *_combinations(schema, value, path, room)]


def _type_of(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _type_problem(schema: JsonObject, value: Json, path: str) -> FieldError | None:
    actual = _type_of(value)
    if schema.get(INT_OR_STRING):
        wanted = "integer,string"
        fits = actual in ("integer", "string")
    else:
        wanted = schema.get("type") or ""
        fits = not wanted or actual == wanted or (wanted == "number" and actual == "integer")
    if fits:
        return None
    return type_invalid(path, actual, f'{path} in body must be of type {wanted}: "{actual}"')


def _enum(schema: JsonObject, value: Json, path: str, room: list[int]) -> list[FieldError]:
    choices = schema.get("enum")
    if choices is None:
        return []
    _take(room, len(choices))
    if value is not None and any(_equal(value, choice) for choice in choices):
        return []
    shown = [_shown(choice) for choice in choices]
    _take(room, sum(map(len, shown)))
    return [not_supported(path, value, shown)]


def _shown(choice: Json) -> str:
    return choice if isinstance(choice, str) else encode(choice).decode()


def _equal(first: Json, second: Json) -> bool:
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)


def _text(schema: JsonObject, value: str, path: str) -> Iterator[FieldError]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    if "minLength" in schema and len(value) < schema["minLength"]:
        detail = f"{path} in body should be at least {schema['minLength']} chars long"
        yield invalid(path, value, detail)
    pattern = schema.get("pattern")
    if pattern and not _matches(pattern, value):
        yield invalid(path, value, f"{path} in body should match '{pattern}'")
    check = _FORMATS.get(schema.get("format", ""))
    if check is not None and not check(value):
        detail = f'{path} in body must be of type {schema["format"]}: "{value}"'
        yield type_invalid(path, value, detail)


def _matches(pattern: str, value: str) -> bool:
    try:
        return regular_expressions.compile(pattern).matches(value)
    except EvaluationError:
        return True  # upstream refuses such a definition


def _number(schema: JsonObject, value: float, path: str) -> Iterator[FieldError]:
    factor = schema.get("multipleOf")
    if factor:
        ratio = value / factor
        if abs(ratio - round(ratio)) > 1e-9:
            detail = f"{path} in body should be a multiple of {factor}"
            yield invalid(path, value, detail)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        words = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(path, value, f"{path} in body should be {words} {low}")
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        words = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(path, value, f"{path} in body should be {words} {high}")


def _list(
    schema: JsonObject, value: list[Any], path: str, room: list[int], old: object
) -> Iterator[FieldError]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])
    if "minItems" in schema and len(value) < schema["minItems"]:
        detail = f"{path} in body should have at least {schema['minItems']} items"
        yield invalid(path, len(value), detail)
    items = schema.get("items")
    if isinstance(items, dict):
        known = _by_keys(schema, old)
        for index, item in enumerate(value):
            before = known.get(_keys_of(schema, item), NO_PREDECESSOR)
            yield from _problems(items, item, f"{path}[{index}]", room, before)
    yield from list(_duplicates(schema, value, path))


def _duplicates(schema: JsonObject, value: list[Any], path: str) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        if kind == "map" and isinstance(item, dict):
            item = {key: item[key] for key in keys if key in item}
        elif kind != "set":
            return
        identity = encode(item)
        if identity in seen:
            yield duplicate(f"{path}[{index}]", item)
        seen.add(identity)


def _object(
    schema: JsonObject, value: JsonObject, path: str, room: list[int], old: object
) -> Iterator[FieldError]:
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield too_many(path, len(value), schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        yield invalid(path, len(value), detail)
    yield from (
        required(f"{path}.{name}") for name in schema.get("required") or () if name not in value
    )
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, member in value.items():
        known = properties.get(name, additional)
        if isinstance(known, dict):
            yield from _problems(known, member, f"{path}.{name}", room, predecessor_of(name, old))


def _combinations(
    schema: JsonObject, value: Json, path: str, room: list[int]
) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from _problems(part, value, path, room)
    choices = schema.get("anyOf")
    if choices and not any(not _problems(choice, value, path, room) for choice in choices):
        detail = f'"{path}" must validate at least one schema (anyOf)'
        yield invalid("<nil>", "", detail)
    choices = schema.get("oneOf")
    if choices:
        count = sum(not _problems(choice, value, path, room) for choice in choices)
        if count != 1:
            verdict = f"Found {count} valid alternatives" if count else "Found none valid"
            detail = f'"{path}" must validate one and only one schema (oneOf). {verdict}'
            yield invalid("<nil>", "", detail)
    forbidden = schema.get("not")
    if forbidden is not None and not _problems(forbidden, value, path, room):
        yield invalid("<nil>", "", f'"{path}" must not validate the schema (not)')


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


_DURATION = re.compile(
    r"[0-9]\s*(ns|us|µs|ms|s|m|h|hr|d|w|wk|(nano|micro|milli|sec|min|hour|day|week)[a-z]*)(?![a-zµ])",
    re.IGNORECASE,
)
"""In Go's syntax (`1m30s`) or in words (`3 days`)."""
_FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _parses(date.fromisoformat),
    "date-time": lambda text: "T" in text.upper() and _parses(datetime.fromisoformat)(text),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": lambda text: "/" in text and _parses(ipaddress.ip_interface)(text),
    "uuid": _parses(uuid.UUID),
    "duration": lambda text: _DURATION.search(text) is not None,
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
    "hostname": lambda text:
        re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", text) is not None,
    "byte": lambda text: re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text) is not None,
}  # fmt: skip
