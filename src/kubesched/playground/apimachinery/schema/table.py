"""Parses `types.txt`: the fields of each type, their types and merge rules.

A type's identity is `group.Name` (`core.PodSpec`). The table is parsed once, on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

from kubesched.api.kinds import KINDS

SCALARS = (
    "bytes",
    "string",
    "int32",
    "int64",
    "boolean",
    "number",
    "any",
    "Schema",
    "SchemaOrArray",
    "SchemaOrBool",
    "Quantity",
    "Time",
    "MicroTime",
    "IntOrString",
)

UNTYPED = frozenset(("any", "Schema", "SchemaOrArray", "SchemaOrBool"))
"""Scalars that are any JSON."""

# API groups by the short names used in the table.
GROUPS = {"core": "", **{kind.group.partition(".")[0]: kind.group for kind in KINDS if kind.group}}
_SHORT = {group: short for short, group in GROUPS.items()}

Shape: TypeAlias = Literal["scalar", "object", "list", "map"]


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A field's type: a scalar, an object of a named type, or a list or map of another type."""

    shape: Shape
    name: str = ""
    item: TypeRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a type, and how two versions of it merge."""

    name: str
    type: TypeRef
    is_required: bool = False
    merge: Literal["", "map", "set", "atomic"] = ""
    """Rule for server-side apply; by default objects merge and lists are replaced."""
    keys: tuple[str, ...] = ()
    key_defaults: dict[str, str] = field(default_factory=dict)
    patch_key: str = ""
    """Merge key of a list in a strategic merge patch; if empty, the patch replaces the list."""
    merges_values: bool = False
    """Whether a strategic merge patch adds to this list of plain values instead of replacing it."""
    retains_keys: bool = False
    number: tuple[int, ...] = ()
    """Protobuf field numbers, one per level of embedding; empty if protobuf omits the field."""
    is_pointer: bool = False
    """A scalar whose zero value differs from its absence."""


@dataclass(frozen=True, slots=True)
class ObjectType:
    """A named object type."""

    name: str
    fields: dict[str, Field]
    is_atomic: bool = False


@cache
def types() -> dict[str, ObjectType]:
    """All types by identity."""
    text = (
        resources.files("kubesched.playground.apimachinery.schema")
        .joinpath("types.txt")
        .read_text(encoding="utf-8")
    )
    by_identity: dict[str, ObjectType] = {}
    group = ""
    for line in _logical_lines(text):
        if line.startswith("@"):
            group = line[1:]
            continue
        name, _, body = line.partition(":")
        parsed = [_parse_field(group, part.split()) for part in body.split(";") if part.strip()]
        identity = f"{group}.{name.removesuffix('!')}"
        by_identity[identity] = ObjectType(
            identity,
            {parsed_field.name: parsed_field for parsed_field in parsed},
            name.endswith("!"),
        )
    return by_identity


def type_of_kind(group: str, kind: str) -> ObjectType | None:
    """The type of a top-level kind, if it is built in."""
    short = _SHORT.get(group)
    return types().get(f"{short}.{kind}") if short is not None else None


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            lines[-1] += line[1:]
        elif line and not line.startswith("#"):
            lines.append(line)
    return lines


def _parse_field(group: str, words: list[str]) -> Field:
    number, name, type_text, *marks = words
    merge: Literal["", "map", "set", "atomic"] = ""
    keys: tuple[str, ...] = ()
    key_defaults: dict[str, str] = {}
    patch_key: str | None = None
    for mark in marks:
        if mark == "atomic":
            merge = "atomic"
        elif mark == "set":
            merge = "set"
        elif mark.startswith("map="):
            merge = "map"
            pairs = [key.partition(":") for key in mark[4:].split(",")]
            keys = tuple(key for key, _, _ in pairs)
            key_defaults = {key: value for key, _, value in pairs if value}
        elif mark.startswith("patch="):
            patch_key = mark[6:].replace("-", "")
        else:
            assert mark == "retain", f"unknown mark {mark!r} on {name}"
    return Field(
        name=name.removesuffix("*"),
        type=_parse_type(group, type_text.removesuffix("?")),
        is_required=name.endswith("*"),
        merge=merge,
        keys=keys,
        key_defaults=key_defaults,
        patch_key=patch_key if patch_key is not None else (keys[0] if keys else ""),
        merges_values=merge == "set" and patch_key is None,
        retains_keys="retain" in marks,
        number=tuple(int(part) for part in number.split(".")) if number != "-" else (),
        is_pointer=type_text.endswith("?"),
    )


def _parse_type(group: str, text: str) -> TypeRef:
    if text.startswith("["):
        return TypeRef("list", item=_parse_type(group, text[1:-1]))
    if text.startswith("{"):
        return TypeRef("map", item=_parse_type(group, text[1:-1]))
    if text in SCALARS:
        return TypeRef("scalar", text)
    return TypeRef("object", text if "." in text else f"{group}.{text}")
