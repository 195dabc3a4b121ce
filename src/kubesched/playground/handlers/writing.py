"""The writing verbs over HTTP: decode bodies and options, return stored versions."""

from __future__ import annotations

from functools import partial
from typing import cast, get_args

from kubesched.api import field_errors
from kubesched.api.field_errors import not_supported, required, too_long
from kubesched.base.errors import BadRequest, Conflict, NotFound, UnsupportedMediaType
from kubesched.playground.apimachinery.failures import details_of, invalid_options, success_status
from kubesched.playground.apimachinery.objects import JsonObject, encode, name_of, namespace_of
from kubesched.playground.apimachinery.serialization import check_size, decode_raw_json, decode_yaml
from kubesched.playground.handlers.exchange import (
    ApiResponse,
    Query,
    decode_body,
    decode_object,
    field_validation,
)
from kubesched.playground.handlers.reading import Page, entry_response, list_page
from kubesched.playground.handlers.routes import SIMULATED, Call, not_allowed
from kubesched.playground.registry import scale
from kubesched.playground.registry.deletion import DeleteOptions
from kubesched.playground.registry.patching import PatchKind, apply_object, patch_object
from kubesched.playground.registry.patching.json_patch import MAX_OPERATIONS
from kubesched.playground.registry.representation import encode_list
from kubesched.playground.registry.rest_storage import WriteOptions
from kubesched.playground.registry.steps import Steps
from kubesched.playground.registry.strategy import Propagation
from kubesched.playground.resources.custom_resources import DEFINITIONS, warnings_about
from kubesched.playground.storage.store import Entry

_PATCH_KINDS: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
_PATCH_TYPES = ", ".join([*_PATCH_KINDS, "application/apply-patch+yaml"])
_APPLY_TYPE = "application/apply-patch+yaml"
_MAX_MANAGER_LENGTH = 128
SMALL_BYTES = 16 * 1024  # of a body, or of an object's owned fields: some milliseconds
STORED_ONLY = "{kind}: stored, nothing acts on it here"


def write_options(call: Call) -> WriteOptions:
    query, request = call.query, call.request
    dry_run = query.get("dryRun")
    if dry_run not in ("", "All"):
        raise invalid_options("CreateOptions", not_supported("dryRun", [dry_run], ("All",)))
    manager = query.get("fieldManager")
    if len(manager) > _MAX_MANAGER_LENGTH:
        raise invalid_options("CreateOptions", too_long("fieldManager", _MAX_MANAGER_LENGTH))
    if not manager.isprintable():
        detail = "should only contain printable characters"
        problem = field_errors.invalid("fieldManager", manager, detail)
        raise invalid_options("CreateOptions", problem)
    agent = request.headers.get("user-agent", "")
    return WriteOptions(
        manager=manager or agent.partition("/")[0][:_MAX_MANAGER_LENGTH] or "unknown",
        dry_run=dry_run == "All",
    )


def _written(call: Call, entry: Entry, warnings: list[str], status: int = 200) -> ApiResponse:
    """The stored object, with warnings that kubectl prints."""
    if call.target.resource.storage_key == DEFINITIONS:
        warnings = [*warnings, *warnings_about(entry.obj)]
    response = entry_response(call, entry, status)
    if warnings:
        quoted = (warning.replace("\\", "\\\\").replace('"', '\\"') for warning in warnings)
        response.headers = {"Warning": ", ".join(f'299 - "{text}"' for text in quoted)}
    return response


def create(call: Call) -> Steps[ApiResponse]:
    resource = call.target.resource
    obj, warnings = yield partial(decode_object, call.request, resource, call.query)
    if resource.namespaced and not call.namespace:
        raise BadRequest("an empty namespace may not be set during creation")
    entry = yield from call.registry.create(resource, call.namespace, obj, write_options(call))
    if resource.is_stored_only:
        warnings.append(STORED_ONLY.format(kind=resource.kind))
    return _written(call, entry, warnings, 201)


def update(call: Call) -> Steps[ApiResponse]:
    target, registry = call.target, call.registry
    if target.subresource in SIMULATED:
        raise not_allowed()
    where = (target.resource, call.namespace, target.name)
    options = write_options(call)
    if target.subresource == "scale":
        body = yield partial(decode_body, call.request)
        entry = scale.update(registry, *where, body, options)
        return ApiResponse(200, encode(scale.scale_of(target.resource, entry.obj)))
    obj, warnings = yield partial(decode_object, call.request, target.resource, call.query)
    entry = yield from registry.update(*where, obj, options, subresource=target.subresource)
    return _written(call, entry, warnings)


def is_costly(call: Call) -> bool:
    """Whether a body is large, or the object it is for, to judge by its owned fields."""
    target, store = call.target, call.registry.store
    old = store.get(target.resource.storage_key, call.namespace, target.name)
    owned = sum(len(manager.fields) for manager in old.managers) if old is not None else 0
    return max(len(call.request.body), owned) > SMALL_BYTES


def patch(call: Call) -> Steps[ApiResponse]:
    target = call.target
    if target.subresource in SIMULATED:
        raise not_allowed()
    media_type = call.request.media_type
    if media_type == _APPLY_TYPE:
        return (yield from _apply(call))
    kind = _PATCH_KINDS.get(media_type)
    if kind is None:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format -"
            f" accepted media types include: {_PATCH_TYPES}"
        )
    entry, warnings = yield from patch_object(
        call.registry,
        target.resource,
        call.namespace,
        target.name,
        partial(_read_patch, call.request.body, kind),
        kind,
        write_options(call),
        subresource=target.subresource,
        validation=field_validation(call.query),
    )
    if target.subresource == "scale":
        return ApiResponse(200, encode(scale.scale_of(target.resource, entry.obj)))
    return _written(call, entry, warnings)


def _read_patch(body: bytes, kind: PatchKind) -> object:
    try:  # nulls mean removal here, so the body is decoded with them
        return decode_raw_json(body, 4 * MAX_OPERATIONS if kind == "json" else 0)
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error.message}") from None


def _apply(call: Call) -> Steps[ApiResponse]:
    target, query = call.target, call.query
    if not query.get("fieldManager"):
        problem = required("fieldManager", "is required for apply patch")
        raise invalid_options("PatchOptions", problem)
    if target.subresource not in ("", "status"):
        raise UnsupportedMediaType("apply is supported for objects and their status only")
    check_size(call.request.body)
    entry, is_new = yield from apply_object(
        call.registry,
        target.resource,
        call.namespace,
        target.name,
        partial(decode_yaml, call.request.body, keeps_nulls=target.resource.schema is not None),
        write_options(call),
        force=query.flag("force"),
        subresource=target.subresource,
    )
    return _written(call, entry, [], 201 if is_new else 200)


def delete(call: Call) -> ApiResponse:
    resource, name = call.target.resource, call.target.name
    entry, is_gone = call.registry.delete(resource, call.namespace, name, delete_options(call))
    if not is_gone or call.registry.strategy(resource).returns_deleted_object:
        return entry_response(call, entry)
    details = details_of(resource, name, uid=entry.obj["metadata"]["uid"])
    return ApiResponse(200, encode(success_status(details)))


def delete_collection(call: Call) -> ApiResponse:
    """Delete the objects that a list with the same selectors returns, if they still exist."""
    options, resource, registry = delete_options(call), call.target.resource, call.registry
    deleted = []
    for entry in list_page(call).entries:
        obj = entry.obj
        try:
            gone, _ = registry.delete(resource, namespace_of(obj), name_of(obj), options)
        except (NotFound, Conflict):
            continue
        deleted.append(gone)
    metadata = Page([], registry.store.revision).metadata()
    return ApiResponse(200, encode_list(resource, metadata, deleted, metadata_only=False))


def delete_options(call: Call) -> DeleteOptions:
    """Options from the body, completed from the query string."""
    body: JsonObject = {}
    if call.request.body:
        decoded = decode_body(call.request)
        if not isinstance(decoded, dict) or decoded.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest("the body of a delete request must be DeleteOptions")
        body = decoded
    return parse_delete_options(body, call.query)


def parse_delete_options(body: JsonObject, query: Query) -> DeleteOptions:
    grace = body.get("gracePeriodSeconds", query.integer("gracePeriodSeconds"))
    if grace is not None and type(grace) is not int:
        raise BadRequest("gracePeriodSeconds must be an integer")
    dry_run = body.get("dryRun") or ([query.get("dryRun")] if query.get("dryRun") else [])
    if dry_run not in ([], ["All"]):
        raise invalid_options("DeleteOptions", not_supported("dryRun", dry_run, ("All",)))
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_period_s=grace,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=_propagation(body, query),
        dry_run=bool(dry_run),
    )


def _propagation(body: JsonObject, query: Query) -> Propagation | None:
    policy = body.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = body.get("orphanDependents")
    if policy and orphan is not None:
        raise BadRequest("orphanDependents and deletionPropagation cannot be both set")
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    if not policy:
        return None
    if policy not in get_args(Propagation):
        choices = ("Foreground", "Background", "Orphan", "nil")
        raise invalid_options("DeleteOptions", not_supported("propagationPolicy", policy, choices))
    return cast("Propagation", policy)
