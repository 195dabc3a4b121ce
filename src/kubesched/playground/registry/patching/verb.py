"""The patch verb: read, patch, then write as an update would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from kubesched.api import field_errors
from kubesched.base.errors import BadRequest, UnsupportedMediaType
from kubesched.playground.apimachinery.bodies import (
    FieldValidation,
    check_fields,
    check_kind,
    from_stored,
    strip_nulls_of,
    to_stored,
)
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import invalid
from kubesched.playground.apimachinery.objects import Json, JsonObject, decode, encode
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.apimachinery.serialization import check_size, check_values
from kubesched.playground.apimachinery.validation import IS_IMMUTABLE
from kubesched.playground.registry import scale
from kubesched.playground.registry.patching.json_patch import apply_json_patch
from kubesched.playground.registry.patching.strategic import apply_strategic_patch
from kubesched.playground.registry.representation import encoder_for
from kubesched.playground.registry.rest_storage import NO_OPTIONS, RestStorage, WriteOptions
from kubesched.playground.registry.steps import Steps
from kubesched.playground.storage.store import Entry

PatchKind: TypeAlias = Literal["merge", "strategic", "json"]


def patch_object(
    registry: RestStorage,
    resource: ResourceInfo,
    namespace: str,
    name: str,
    read: Callable[[], Json],
    kind: PatchKind,
    options: WriteOptions = NO_OPTIONS,
    *,
    subresource: str = "",
    validation: FieldValidation = "Ignore",
) -> Steps[tuple[Entry, list[str]]]:
    """Patch an object or a subresource with what `read` returns; returns entry and warnings."""
    patch = yield read
    old = registry.get(resource, namespace, name)
    if subresource == "scale":
        patched = apply_patch(resource, scale.scale_of(resource, old.obj), patch, kind)
        return scale.update(registry, resource, namespace, name, patched, options), []
    patched, warnings = yield partial(_patched, resource, old, patch, kind, validation)
    _check_identity(registry, resource, old, patched["metadata"])
    writing = registry.replace(resource, old, patched, options, subresource=subresource)
    return (yield from writing), warnings


def _patched(
    resource: ResourceInfo, old: Entry, patch: Json, kind: PatchKind, validation: FieldValidation
) -> tuple[JsonObject, list[str]]:
    """The patched object in its stored form, and warnings. Pure."""
    document = _document(resource, old, patch)
    try:
        patched = apply_patch(resource, document, patch, kind)
        body = encode(patched)
    except RecursionError:
        raise BadRequest("error decoding patch: the result is nested too deeply") from None
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise BadRequest("the patched object has no metadata")
    check_size(body)
    check_values(body, patched)
    if b"null" in body:
        patched = strip_nulls_of(resource, patched)
    warnings = _check_result(resource, old.obj["metadata"]["name"], patched, body, validation)
    return to_stored(resource, patched), warnings


def _document(resource: ResourceInfo, old: Entry, patch: Json) -> JsonObject:
    """The object as the client sees it, as a copy, because later steps may change it in place."""
    if old.managers and b"managedFields" in encode(patch):
        seen: JsonObject = decode(encoder_for(resource)(old))
    else:
        # Omit the long managedFields, which almost no patch refers to.
        seen = from_stored(resource, decode(encode(old.obj)))
    return seen


def _check_result(
    resource: ResourceInfo, name: str, patched: JsonObject, body: bytes, validation: FieldValidation
) -> list[str]:
    """Check a patched object; if it cannot be decoded it is invalid, not malformed."""
    try:
        return check_fields(resource, check_kind(patched, resource), body, validation)
    except BadRequest as error:
        problem = field_errors.invalid("patch", body.decode(), error.message)
        raise invalid(resource, name, [problem]) from None


def _check_identity(
    registry: RestStorage, resource: ResourceInfo, old: Entry, metadata: JsonObject
) -> None:
    """A patch may state the resourceVersion, but must not change the object's identity."""
    known = old.obj["metadata"]
    name = known["name"]
    stated = metadata.get("name")
    if stated != name:
        raise BadRequest(
            f"the name of the object ({stated}) does not match the name on the URL ({name})"
        )
    if metadata.get("namespace", "") != known.get("namespace", ""):
        raise BadRequest("the namespace of the object does not match the namespace on the request")
    registry.check_version(resource, old, metadata)
    if metadata.get("uid", "") not in ("", known["uid"]):
        raise invalid(
            resource, name, [field_errors.invalid("metadata.uid", metadata["uid"], IS_IMMUTABLE)]
        )


def apply_patch(resource: ResourceInfo, document: JsonObject, patch: Json, kind: PatchKind) -> Json:
    """Apply a patch of the given kind to a document. Pure."""
    if kind == "json":
        return apply_json_patch(document, patch)
    if not isinstance(patch, dict):
        raise BadRequest("error decoding patch: the patch must be an object")
    if kind == "merge":
        return apply_merge_patch(document, patch)
    object_type = type_of_kind(resource.group, resource.kind)
    if object_type is None:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            " application/json-patch+json, application/merge-patch+json,"
            " application/apply-patch+yaml"
        )
    return apply_strategic_patch(object_type, document, patch)


def apply_merge_patch(document: Json, patch: Json) -> Json:
    """JSON Merge Patch (RFC 7386): null removes, objects merge, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result
