"""JSON schemas of types: properties, required fields, merge rules and descriptions."""

from __future__ import annotations

from functools import cache
from importlib import resources

from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.schema.table import (
    GROUPS,
    UNTYPED,
    Field,
    ObjectType,
    TypeRef,
    types,
)

_META_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PREFIXES = {
    "meta": _META_PREFIX,
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}
_WELL_KNOWN = {
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "Time": f"{_META_PREFIX}.Time",
    "MicroTime": f"{_META_PREFIX}.MicroTime",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}
_WELL_KNOWN_SCHEMAS: dict[str, JsonObject] = {
    "Quantity": {
        "description": "An amount with an optional suffix, such as 500m, 1.5Gi or 2.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    "Time": {
        "description": "A moment in RFC 3339 form, to the second.",
        "type": "string",
        "format": "date-time",
    },
    "MicroTime": {
        "description": "A moment in RFC 3339 form, to the microsecond.",
        "type": "string",
        "format": "date-time",
    },
    "IntOrString": {
        "description": "A number, or a string such as a percentage or the name of a port.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}
_PLAIN: dict[str, JsonObject] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "boolean": {"type": "boolean"},
    "number": {"type": "number", "format": "double"},
    **{name: {"type": "object"} for name in UNTYPED},
}


def model_name(identity: str) -> str:
    """A type's name in the documents: `core.PodSpec` is `io.k8s.api.core.v1.PodSpec`."""
    group, _, name = identity.partition(".")
    return f"{_PREFIXES.get(group, f'io.k8s.api.{group}.v1')}.{name}"


@cache
def descriptions() -> dict[str, str]:
    """Short descriptions by `group.Type` or `group.Type.field`."""
    text = (
        resources.files("kubesched.playground.apimachinery.schema")
        .joinpath("descriptions.txt")
        .read_text(encoding="utf-8")
    )
    explanations: dict[str, str] = {}
    subject = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, explanation = line.strip().partition(": ")
        if not line.startswith(" "):
            subject = name
            explanations[subject] = explanation
        else:
            explanations[f"{subject}.{name}"] = explanation
    return explanations


def collect(identity: str, prefix: str, into: JsonObject) -> None:
    """Add a type and all types it refers to; `prefix` (`#/definitions/`) starts references."""
    name = model_name(identity)
    if name in into:
        return
    object_type = types()[identity]
    into[name] = {}  # placeholder while the type's own fields are described, for recursive types
    into[name] = _schema(object_type, prefix, into)


def _schema(object_type: ObjectType, prefix: str, into: JsonObject) -> JsonObject:
    schema: JsonObject = {"type": "object"}
    explanation = descriptions().get(object_type.name)
    if explanation:
        schema["description"] = explanation
    properties = {
        field.name: _property(object_type, field, prefix, into)
        for field in object_type.fields.values()
    }
    if properties:
        schema["properties"] = properties
    required = [field.name for field in object_type.fields.values() if field.is_required]
    if required:
        schema["required"] = required
    if object_type.is_atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def top_level(schema: JsonObject, kinds: list[JsonObject]) -> None:
    """Add type metadata to a type's schema, which makes it the schema of a kind."""
    explanations = {
        "apiVersion": "APIVersion defines the group and version this object is written in.",
        "kind": "The kind of this object.",
    }
    meta = {name: {"type": "string", "description": text} for name, text in explanations.items()}
    schema["properties"] = {**meta, **schema.get("properties", {})}
    schema["x-kubernetes-group-version-kind"] = kinds


def _property(object_type: ObjectType, field: Field, prefix: str, into: JsonObject) -> JsonObject:
    schema = _reference(field.type, prefix, into)
    explanation = descriptions().get(f"{object_type.name}.{field.name}")
    extras: JsonObject = {"description": explanation} if explanation else {}
    if field.merge and field.type.shape == "list":
        extras["x-kubernetes-list-type"] = field.merge
        if field.keys:
            extras["x-kubernetes-list-map-keys"] = list(field.keys)
    elif field.merge == "atomic":
        extras["x-kubernetes-map-type"] = "atomic"
    if field.patch_key or field.merges_values:
        extras["x-kubernetes-patch-strategy"] = (
            "merge,retainKeys" if field.retains_keys else "merge"
        )
        if field.patch_key:
            extras["x-kubernetes-patch-merge-key"] = field.patch_key
    if not extras:
        return schema
    if "$ref" in schema:
        # The standard ignores keywords beside $ref, but not beside a list of one reference.
        return {"allOf": [schema], **extras}
    return {**schema, **extras}


def _reference(ref: TypeRef, prefix: str, into: JsonObject) -> JsonObject:
    if ref.shape == "object":
        collect(ref.name, prefix, into)
        return {"$ref": prefix + model_name(ref.name)}
    if ref.shape == "scalar":
        known = _WELL_KNOWN.get(ref.name)
        if known is None:
            return dict(_PLAIN[ref.name])
        into.setdefault(known, _WELL_KNOWN_SCHEMAS[ref.name])
        return {"$ref": prefix + known}
    assert ref.item is not None
    item = _reference(ref.item, prefix, into)
    if ref.shape == "list":
        return {"type": "array", "items": item}
    return {"type": "object", "additionalProperties": item}


def identity_of(group: str, kind: str) -> str | None:
    for short, name in GROUPS.items():
        if name == group and f"{short}.{kind}" in types():
            return f"{short}.{kind}"
    return None
