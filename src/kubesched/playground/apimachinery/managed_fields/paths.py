"""Sets of field paths, and their `FieldsV1` form.

A path is a tuple of steps in FieldsV1 syntax: `f:name` for a field, `k:{"name":"c"}` for an item of
a map list, `v:"x"` for an item of a set list. A set contains exactly the owned paths: owning a
field of an item does not imply owning the item, so items are members themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Literal, TypeAlias

from kubesched.playground.apimachinery.objects import Json, JsonObject, decode, encode
from kubesched.playground.apimachinery.schema.table import UNTYPED as UNTYPED_SCALARS
from kubesched.playground.apimachinery.schema.table import Field, ObjectType, TypeRef, types

Path: TypeAlias = tuple[str, ...]
Paths: TypeAlias = frozenset[Path]

_SELF = "."


class Layout:
    """How a value merges: as an object (per member), an associative list, a set, or a leaf.

    Layouts are created once per type and shared; hot paths call `child`.
    """

    __slots__ = ("_children", "_fields", "_member", "item", "key_defaults", "keys", "kind")

    def __init__(
        self,
        kind: Literal["object", "items", "set", "leaf", "untyped"],
        *,
        fields: dict[str, Field] | None = None,
        member: TypeRef | None = None,
        keys: tuple[str, ...] = (),
        key_defaults: dict[str, str] | None = None,
        children: dict[str, Layout] | None = None,
        item: Layout | None = None,
    ) -> None:
        self.kind = kind
        self.keys = tuple(sorted(keys))
        self.key_defaults = key_defaults or {}
        self._fields = fields
        self._member = member
        self._children = children or {}
        if kind == "items" and member is not None:
            item = layout_of(member)
        self.item: Layout = item or self

    def child(self, name: str) -> Layout:
        """The layout of a member of an object or map; unknown members are untyped."""
        child = self._children.get(name)
        if child is None:
            child = self._find_child(name)
            if self._fields is not None:  # map keys are unbounded and would only fill the cache
                self._children[name] = child
        return child

    def _find_child(self, name: str) -> Layout:
        if self._fields is not None:
            field = self._fields.get(name)
            return layout_of(field.type, field) if field is not None else UNTYPED
        return layout_of(self._member) if self._member is not None else UNTYPED


UNTYPED = Layout("untyped")
LEAF = Layout("leaf")


def layout_of(ref: TypeRef, field: Field | None = None) -> Layout:
    """The layout of a type's values in a given field."""
    merge_rule = field.merge if field is not None else ""
    if ref.shape == "list":
        if field is not None and merge_rule == "map":
            return Layout(
                "items", member=ref.item, keys=field.keys, key_defaults=field.key_defaults
            )
        return Layout("set") if merge_rule == "set" else LEAF
    if merge_rule == "atomic":
        return LEAF
    if ref.shape == "object":
        return _object_layout(ref.name)
    if ref.shape == "map":
        assert ref.item is not None
        return (
            LEAF_MAP
            if ref.item.shape == "scalar" and ref.item.name not in UNTYPED_SCALARS
            else Layout("object", member=ref.item)
        )
    return UNTYPED if ref.name in UNTYPED_SCALARS else LEAF


LEAF_MAP = Layout("object", member=TypeRef("scalar", "string"))


@cache
def _object_layout(identity: str) -> Layout:
    object_type = types()[identity]
    return LEAF if object_type.is_atomic else Layout("object", fields=object_type.fields)


def kind_layout(kind: ObjectType) -> Layout:
    """The layout of a whole object."""
    return _object_layout(kind.name)


def custom_layout(schema: JsonObject | None) -> Layout:
    """The layout of a custom resource; its metadata has the usual type."""
    members = {name: _schema_layout(member) for name, member in _properties(schema or {})}
    children = {**members, "metadata": _object_layout("meta.ObjectMeta")}
    return Layout("object", fields={}, children=children)


def _schema_layout(schema: JsonObject) -> Layout:
    """The layout of the values of a structural schema."""
    if schema.get("type") == "array":
        rule, item = schema.get("x-kubernetes-list-type"), schema.get("items") or {}
        if rule != "map":
            return Layout("set") if rule == "set" else LEAF
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        defaults = {
            key: member["default"] for key, member in _properties(item) if "default" in member
        }
        return Layout("items", keys=keys, key_defaults=defaults, item=_schema_layout(item))
    if schema.get("x-kubernetes-map-type") == "atomic":
        return LEAF
    children = {name: _schema_layout(member) for name, member in _properties(schema)}
    return Layout("object", fields={}, children=children) if children else UNTYPED


def _properties(schema: JsonObject) -> Iterable[tuple[str, JsonObject]]:
    return (schema.get("properties") or {}).items()


def item_step(layout: Layout, item: Json) -> str:
    """The path step of an item of an associative list."""
    if len(layout.keys) == 1 and type(item) is dict:
        value = item.get(layout.keys[0])
        if type(value) is str:
            return _text_step(layout.keys[0], value)
    keys = {}
    for key in layout.keys:
        value = item.get(key, layout.key_defaults.get(key)) if isinstance(item, dict) else None
        if value is not None:
            keys[key] = value
    return f"k:{encode(keys).decode()}"


@lru_cache(maxsize=4096)
def _text_step(key: str, value: str) -> str:
    return f"k:{encode({key: value}).decode()}"


def value_step(value: Json) -> str:
    return f"v:{encode(value).decode()}"


def is_object(layout: Layout, value: Json) -> bool:
    """Whether the value's members are owned individually."""
    return isinstance(value, dict) and bool(value) and (layout.kind in ("object", "untyped"))


def paths_of(layout: Layout, value: Json) -> Paths:
    """All paths that a write of this value sets."""
    collected: list[Path] = []
    collect_paths(layout, value, (), collected)
    return frozenset(collected)


def collect_paths(layout: Layout, value: Json, path: Path, collected: list[Path]) -> None:
    """Append all paths that a write of this value at `path` sets."""
    if is_object(layout, value):
        for name, member in value.items():
            collect_paths(layout.child(name), member, (*path, f"f:{name}"), collected)
    elif layout.kind == "items" and isinstance(value, list):
        inner = layout.item
        for item in value:
            here = (*path, item_step(layout, item))
            collected.append(here)
            if isinstance(item, dict):
                for name, member in item.items():
                    collect_paths(inner.child(name), member, (*here, f"f:{name}"), collected)
    elif layout.kind == "set" and isinstance(value, list):
        collected.extend((*path, value_step(item)) for item in value)
    else:
        collected.append(path)


def to_fields_v1(paths: Iterable[Path]) -> JsonObject:
    """The FieldsV1 form, with its keys in order."""
    root: JsonObject = {}
    last, owned = root, None
    for path in sorted(paths):
        if owned is not None and path[: len(owned)] == owned:
            last[_SELF] = {}
        node = root
        for step in path:
            node = node.setdefault(step, {})
        last, owned = node, path
    return root


def from_fields_v1(fields: Json) -> Paths:
    """Parse the paths of a FieldsV1 object."""
    collected: list[Path] = []

    def walk(node: JsonObject, path: Path) -> None:
        for step, below in node.items():
            if step == _SELF:
                collected.append(path)
            elif isinstance(below, dict) and below:
                walk(below, (*path, step))
            else:
                collected.append((*path, step))

    if isinstance(fields, dict):
        walk(fields, ())
    return frozenset(collected)


def describe(path: Path) -> str:
    """A human-readable path: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = decode(step[2:].encode())
            inside = ",".join(f"{key}={encode(value).decode()}" for key, value in keys.items())
            text += f"[{inside}]"
        else:
            text += f"[={step[2:]}]"
    return text
