"""Checks that JSON has the shape of its kind, at the speed of a C decoder.

Each type of the table gets two msgspec records on first use: one lenient, one rejecting unknown
fields. A body is decoded only to check it; the values are kept as the client sent them.
"""

from __future__ import annotations

import datetime
import re
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any

import msgspec

from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.schema.table import (
    UNTYPED,
    Field,
    ObjectType,
    TypeRef,
    type_of_kind,
    types,
)

_TYPE_META = (("apiVersion", "string"), ("kind", "string"))
_MOMENT = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
_SCALAR_TYPES: dict[str, Any] = {
    "bytes": str | None,
    "string": str | None,
    "int32": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None,
    "int64": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
    "boolean": bool | None,
    "number": float | None,
    **dict.fromkeys(UNTYPED, Any),
    "Quantity": str | int | float | None,
    "Time": _MOMENT | None,
    "MicroTime": _MOMENT | None,
    "IntOrString": int | str | None,
}
_ERROR = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*?)`)?$", re.DOTALL)
_MISMATCH = re.compile(r"Expected `.*`, got `(?P<found>.+)`")
_INDEX = re.compile(r"\[[^\]]*\]")
_GO_VALUES = {"str": "string", "int": "number", "float": "number", "bool": "bool"}
_GO_TYPES = {"boolean": "bool", "number": "float64", "bytes": "[]uint8"}


class ShapeError(Exception):
    """The body cannot be decoded as its kind; the message says where and why."""


@cache
def decoder_for(group: str, kind: str, *, strict: bool) -> msgspec.json.Decoder[Any] | None:
    """A decoder that accepts exactly the bodies of a built-in kind; None for other kinds."""
    kind_type = type_of_kind(group, kind)
    if kind_type is None:
        return None
    return msgspec.json.Decoder(_record(kind_type.name, strict, True))


def check_shape(group: str, kind: str, body: bytes) -> None:
    """Raise `ShapeError` on a value of the wrong type; unknown fields and kinds are accepted."""
    decoder = decoder_for(group, kind, strict=False)
    if decoder is None:
        decoder = _metadata_decoder()
    try:
        decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ShapeError(_describe(type_of_kind(group, kind), str(error))) from None


def fits_strictly(group: str, kind: str, body: bytes) -> bool:
    """Whether all fields are known and have the right types; the fast path of every write."""
    decoder = decoder_for(group, kind, strict=True)
    if decoder is None:
        return False
    try:
        decoder.decode(body)
    except msgspec.ValidationError:
        return False
    return True


def unknown_fields(group: str, kind: str, obj: JsonObject) -> dict[str, str]:
    """Paths of fields that a built-in kind does not have; empty for other kinds.

    Each with the nearest name that the kind has in that place, or nothing.
    """
    kind_type = type_of_kind(group, kind)
    paths: dict[str, str] = {}
    if kind_type is not None:
        _collect_unknown(TypeRef("object", kind_type.name), obj, "", paths, is_top=True)
    return paths


_OWN = "Own"
"""Stands for a record in the types of its own fields."""
_SCHEMA = "apiextensions.JSONSchemaProps"
_SCHEMAS = {
    "Schema": f"{_OWN} | None",
    "SchemaOrArray": f"{_OWN} | list[{_OWN}] | None",
    "SchemaOrBool": f"{_OWN} | bool | None",
}
"""What stands in the place of a schema within a schema."""


@cache
def _metadata_decoder() -> msgspec.json.Decoder[Any]:
    """Decoder for kinds without a row: any object with valid metadata."""
    metadata = _record("meta.ObjectMeta", False, False)
    return msgspec.json.Decoder(msgspec.defstruct("Object", [("metadata", metadata | None, None)]))


@cache
def _record(identity: str, strict: bool, is_top: bool) -> type[msgspec.Struct]:
    fields = list(_fields(types()[identity], is_top))
    attributes = [f"f{index}" for index in range(len(fields))]
    record = msgspec.defstruct(
        identity.rpartition(".")[2],
        [
            (attribute, _python_type(item.type, strict, identity), None)
            for attribute, item in zip(attributes, fields, strict=True)
        ],
        rename={attribute: item.name for attribute, item in zip(attributes, fields, strict=True)},
        forbid_unknown_fields=strict,
        gc=False,
    )
    setattr(record, _OWN, record)  # what the type's references to itself mean
    return record


def _fields(object_type: ObjectType, is_top: bool) -> list[Field]:
    fields = list(object_type.fields.values())
    if is_top:
        present = object_type.fields
        fields += [
            Field(name=name, type=TypeRef("scalar", scalar))
            for name, scalar in _TYPE_META
            if name not in present
        ]
    return fields


def _python_type(ref: TypeRef, strict: bool, holder: str) -> Json:
    if ref.name in _SCHEMAS:
        # Unknown keywords are ignored: validators of other dialects have more.
        return _SCHEMAS[ref.name] if holder == _SCHEMA else _record(_SCHEMA, False, False) | None
    if ref.shape == "scalar":
        return _SCALAR_TYPES[ref.name]
    if holder == _SCHEMA and ref.item == TypeRef("scalar", "Schema"):
        item = f"{_OWN} | None"
        return f"list[{item}] | None" if ref.shape == "list" else f"dict[str, {item}] | None"
    if ref == TypeRef("list", item=TypeRef("object", holder)):
        return f"list[{_OWN}] | None"
    if ref.shape == "object":
        return _record(ref.name, strict, ref.name == "core.PersistentVolumeClaim") | None
    assert ref.item is not None
    item = _python_type(ref.item, strict, holder)
    container: Any = list if ref.shape == "list" else dict
    return (container[item] if ref.shape == "list" else container[str, item]) | None


def _describe(kind: ObjectType | None, text: str) -> str:
    """Convert a msgspec error to the message of Go's decoder."""
    match = _ERROR.match(text)
    assert match is not None
    full_path = match["path"] or ""
    what, path = match["what"], _INDEX.sub("", full_path)
    mismatch = _MISMATCH.match(what)
    if mismatch is None:
        return f"json: {what} at {path}" if path else f"json: {what}"
    go_value = _GO_VALUES.get(mismatch["found"], mismatch["found"])
    if kind is None or not path:
        return f"json: cannot unmarshal {go_value} into field {path or '.'}"
    holder, type_name = _locate(kind, path.split("."), inside_container=full_path.endswith("]"))
    return (
        f"json: cannot unmarshal {go_value} into Go struct field {holder}.{path}"
        f" of type {type_name}"
    )


def _locate(kind: ObjectType, steps: list[str], *, inside_container: bool) -> tuple[str, str]:
    """Go names of the struct that holds the path's last step, and of the expected type."""
    holder = kind
    ref = TypeRef("object", kind.name)
    for step in steps:
        while ref.item is not None:
            ref = ref.item
        if ref.name in _SCHEMAS:
            ref = TypeRef("object", _SCHEMA)
        if ref.shape != "object":
            break
        holder = types()[ref.name]
        field = holder.fields.get(step)
        if field is None:
            return holder.name.partition(".")[2], "string"
        ref = field.type
    if inside_container and ref.item is not None:
        ref = ref.item
    return holder.name.partition(".")[2], _go_type(ref)


def _go_type(ref: TypeRef) -> str:
    if ref.shape == "list":
        assert ref.item is not None
        return f"[]{_go_type(ref.item)}"
    if ref.shape == "map":
        assert ref.item is not None
        return f"map[string]{_go_type(ref.item)}"
    if ref.shape == "object":
        return f"v1.{ref.name.partition('.')[2]}"
    return _GO_TYPES.get(ref.name, ref.name)


def _collect_unknown(
    ref: TypeRef, value: Json, path: str, paths: dict[str, str], *, is_top: bool = False
) -> None:
    if ref.shape == "object" and isinstance(value, dict):
        known = {
            field.name: field.type
            for field in _fields(
                types()[ref.name], is_top or ref.name == "core.PersistentVolumeClaim"
            )
        }
        for key, item in value.items():
            here = f"{path}.{key}" if path else key
            if key in known:
                _collect_unknown(known[key], item, here, paths)
            elif len(paths) < 100:  # Upstream: strict decoding reports no more.
                is_long = len(key) > 3 * max(map(len, known), default=0)  # none is close then
                paths[here] = "" if is_long else next(iter(get_close_matches(key, known, 1)), "")
    elif ref.shape == "list" and isinstance(value, list):
        assert ref.item is not None
        for index, item in enumerate(value):
            _collect_unknown(ref.item, item, f"{path}[{index}]", paths)
    elif ref.shape == "map" and isinstance(value, dict):
        assert ref.item is not None
        for key, item in value.items():
            _collect_unknown(ref.item, item, f"{path}.{key}", paths)
