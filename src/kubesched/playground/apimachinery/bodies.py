"""Checks the kind and shape of objects, and converts them to their stored form."""

from __future__ import annotations

from typing import Literal, TypeAlias

from kubesched.api.codec import without_nulls
from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery import autoscaler_v1
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.conversion import CONVERTED
from kubesched.playground.apimachinery.objects import Json, JsonObject, encode
from kubesched.playground.apimachinery.schema.decoding import (
    ShapeError,
    check_shape,
    fits_strictly,
    unknown_fields,
)
from kubesched.playground.apimachinery.schema.structural import fill_defaults, prune
from kubesched.playground.apimachinery.serialization import duplicate_fields

FieldValidation: TypeAlias = Literal["Strict", "Warn", "Ignore"]


def check_kind(obj: Json, resource: ResourceInfo) -> JsonObject:
    """Reject an object of another kind; fills in missing kind and apiVersion."""
    if not isinstance(obj, dict):
        raise BadRequest(f"{unrecognized(resource)}: the body is not an object")
    kind = obj.setdefault("kind", resource.kind)
    api_version = obj.setdefault("apiVersion", resource.api_version)
    if kind != resource.kind or api_version != resource.api_version:
        stated = encode(api_version).decode()
        raise BadRequest(
            f"{kind} in version {stated} cannot be handled as a {resource.kind}:"
            f" it must be of kind {resource.kind} and version {resource.api_version}"
        )
    if not isinstance(obj.get("metadata", {}), dict):
        raise BadRequest(
            unreadable(resource, "json: cannot unmarshal metadata: it must be an object")
        )
    return obj


def check_fields(
    resource: ResourceInfo,
    obj: JsonObject,
    body: bytes,
    mode: FieldValidation,
    *,
    is_json: bool = True,
) -> list[str]:
    """Reject values of the wrong type, and treat unknown fields by `mode`; returns warnings."""
    repeated = duplicate_fields(body) if is_json and mode != "Ignore" else []
    problems = [f'duplicate field "{path}"' for path in repeated]
    unknown = [
        f'unknown field "{path}"'
        for path in undeclared_fields(resource, obj, body, is_json=is_json)
    ]
    # Upstream: unstructured objects are first checked without their schema.
    problems = problems + unknown if resource.schema is not None else unknown + problems
    if problems and mode == "Strict":
        raise BadRequest(unreadable(resource, f"strict decoding error: {', '.join(problems)}"))
    return problems if mode == "Warn" else []


def undeclared_fields(
    resource: ResourceInfo, obj: JsonObject, body: bytes, *, is_json: bool = True
) -> list[str]:
    """Paths of unknown fields, which custom resources lose; rejects values of the wrong type."""
    if resource.schema is not None:
        strip_nulls_of(resource, obj)
        return prune(resource.schema, obj)
    if resource.api_version == autoscaler_v1.API_VERSION:  # types are keyed by group only
        obj, is_json = to_stored(resource, obj), False
    if not is_json:
        body = encode(obj)
    if fits_strictly(resource.group, resource.kind, body):
        return []
    check_types(resource, body)
    return list(unknown_fields(resource.group, resource.kind, obj))


def strip_nulls_of(resource: ResourceInfo, obj: JsonObject) -> JsonObject:
    """Strip nulls that mean absence: from a custom resource's metadata, else everywhere."""
    if resource.schema is None:
        stripped: JsonObject = without_nulls(obj)
        return stripped
    for name in ("apiVersion", "kind", "metadata"):
        if name in obj:
            obj[name] = without_nulls(obj[name])
            if obj[name] is None:
                del obj[name]
    return obj


def check_types(resource: ResourceInfo, body: bytes) -> None:
    """Reject a body in which a known field has a value of the wrong type."""
    try:
        check_shape(resource.group, resource.kind, body)
    except ShapeError as error:
        raise BadRequest(unreadable(resource, str(error))) from None


def to_stored(resource: ResourceInfo, obj: JsonObject) -> JsonObject:
    converted = CONVERTED.get((resource.api_version, resource.kind))
    return converted[0](obj) if converted else obj


def from_stored(resource: ResourceInfo, obj: JsonObject) -> JsonObject:
    """The object in the resource's version; custom resources get new defaults in place."""
    if resource.custom:
        obj = {**obj, "apiVersion": resource.api_version}
        if resource.schema is not None and resource.has_defaults:
            fill_defaults(resource.schema, obj)
        return obj
    converted = CONVERTED.get((resource.api_version, resource.kind))
    return converted[1](obj) if converted else obj


def unrecognized(resource: ResourceInfo) -> str:
    return f"the object provided is unrecognized (must be of type {resource.kind})"


def unreadable(resource: ResourceInfo, detail: str) -> str:
    """The error message for a body that cannot be decoded as its kind."""
    kind, version = resource.kind, resource.version
    return f'{kind} in version "{version}" cannot be handled as a {kind}: {detail}'
