"""The writing verbs over HTTP: bodies and options in, stored versions out."""

from __future__ import annotations

from typing import cast, get_args

from kubesched.api import field_errors
from kubesched.api.field_errors import not_supported, required, too_long
from kubesched.embedded.exchange import (
    Accepted,
    ApiRequest,
    ApiResponse,
    Query,
    check_size,
    decode_body,
    decode_raw_json,
    decode_yaml,
)
from kubesched.embedded.failures import details_of, invalid_options, success_status
from kubesched.embedded.handlers.bodies import decode_object, field_validation
from kubesched.embedded.handlers.reading import Page, entry_response, list_page
from kubesched.embedded.handlers.representation import encode_list, encoder_for
from kubesched.embedded.handlers.routes import Target
from kubesched.embedded.handlers.simulated import SIMULATED
from kubesched.embedded.handlers.warnings import warnings_for
from kubesched.embedded.objects import JsonObject, encode
from kubesched.embedded.registry import scale
from kubesched.embedded.registry.deletion import DeleteOptions
from kubesched.embedded.registry.patching import PatchKind, apply_object, patch_object
from kubesched.embedded.registry.rest_storage import RestStorage, WriteOptions
from kubesched.embedded.registry.strategy import Propagation
from kubesched.errors import BadRequest, Conflict, MethodNotAllowed, NotFound, UnsupportedMediaType

_PATCH_KINDS: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
_PATCH_TYPES = ", ".join([*_PATCH_KINDS, "application/apply-patch+yaml"])
_APPLY_TYPE = "application/apply-patch+yaml"
_MAX_MANAGER_LENGTH = 128


def write_options(request: ApiRequest, query: Query) -> WriteOptions:
    dry_run = query.get("dryRun")
    if dry_run not in ("", "All"):
        raise invalid_options("CreateOptions", not_supported("dryRun", [dry_run], ("All",)))
    manager = query.get("fieldManager")
    if len(manager) > _MAX_MANAGER_LENGTH:
        raise invalid_options("CreateOptions", too_long("fieldManager", _MAX_MANAGER_LENGTH))
    if not manager.isprintable():
        raise invalid_options(
            "CreateOptions",
            field_errors.invalid(
                "fieldManager", manager, "should only contain printable characters"
            ),
        )
    return WriteOptions(
        manager=manager or _manager_from_agent(request),
        dry_run=dry_run == "All",
        user=request.user,
        verb="patch" if request.method == "PATCH" else "update",
    )


def _manager_from_agent(request: ApiRequest) -> str:
    agent = request.headers.get("user-agent", "")
    return agent.partition("/")[0][:_MAX_MANAGER_LENGTH] or "unknown"


def with_warnings(response: ApiResponse, warnings: list[str]) -> ApiResponse:
    """The answer, telling the client what it may want to know (kubectl prints it)."""
    if warnings:
        quoted = (warning.replace("\\", "\\\\").replace('"', '\\"') for warning in warnings)
        response.headers = {"Warning": ", ".join(f'299 - "{text}"' for text in quoted)}
    return response


def create(
    registry: RestStorage, request: ApiRequest, target: Target, query: Query, accepted: Accepted
) -> ApiResponse:
    obj, warnings = decode_object(request, target.resource, query)
    namespace = target.namespace or ""
    if target.resource.namespaced and not namespace:
        raise BadRequest("an empty namespace may not be set during creation")
    entry = registry.create(target.resource, namespace, obj, write_options(request, query))
    warnings += warnings_for(target.resource)
    return with_warnings(entry_response(registry, target, entry, query, accepted, 201), warnings)


def update(
    registry: RestStorage, request: ApiRequest, target: Target, query: Query, accepted: Accepted
) -> ApiResponse:
    if target.subresource in SIMULATED:
        raise MethodNotAllowed("the server does not allow this method on the requested resource")
    resource, namespace, options = (
        target.resource,
        target.namespace or "",
        write_options(request, query),
    )
    if target.subresource == "scale":
        entry = scale.update(
            registry, resource, namespace, target.name, decode_body(request), options
        )
        return ApiResponse(200, encode(scale.scale_of(resource, entry.obj)))
    obj, warnings = decode_object(request, resource, query)
    entry = registry.update(
        resource, namespace, target.name, obj, options, subresource=target.subresource
    )
    return with_warnings(entry_response(registry, target, entry, query, accepted), warnings)


def patch(
    registry: RestStorage, request: ApiRequest, target: Target, query: Query, accepted: Accepted
) -> ApiResponse:
    if target.subresource in SIMULATED:
        raise MethodNotAllowed("the server does not allow this method on the requested resource")
    media_type = request.media_type
    if media_type == _APPLY_TYPE:
        return _apply(registry, request, target, query, accepted)
    kind = _PATCH_KINDS.get(media_type)
    if kind is None:
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {_PATCH_TYPES}"
        )
    options = write_options(request, query)
    # Nulls mean removal here, so the body is decoded as it stands.
    try:
        body = decode_raw_json(request.body)
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error.message}") from None
    entry, warnings = patch_object(
        registry,
        target.resource,
        target.namespace or "",
        target.name,
        body,
        kind,
        options,
        subresource=target.subresource,
        validation=field_validation(query),
    )
    if target.subresource == "scale":
        return ApiResponse(200, encode(scale.scale_of(target.resource, entry.obj)))
    return with_warnings(entry_response(registry, target, entry, query, accepted), warnings)


def _apply(
    registry: RestStorage, request: ApiRequest, target: Target, query: Query, accepted: Accepted
) -> ApiResponse:
    if not query.get("fieldManager"):
        raise invalid_options(
            "PatchOptions", required("fieldManager", "is required for apply patch")
        )
    if target.subresource not in ("", "status"):
        raise UnsupportedMediaType("apply is supported for objects and their status only")
    check_size(request.body)
    entry, is_new, warnings = apply_object(
        registry,
        target.resource,
        target.namespace or "",
        target.name,
        decode_yaml(request.body, keeps_nulls=target.resource.schema is not None),
        write_options(request, query),
        force=query.flag("force"),
        subresource=target.subresource,
        validation=field_validation(query),
    )
    response = entry_response(registry, target, entry, query, accepted, 201 if is_new else 200)
    return with_warnings(response, warnings)


def delete(
    registry: RestStorage, request: ApiRequest, target: Target, query: Query, accepted: Accepted
) -> ApiResponse:
    options = delete_options(request, query)
    entry, is_gone = registry.delete(target.resource, target.namespace or "", target.name, options)
    if not is_gone or registry.strategy(target.resource).returns_deleted_object:
        return entry_response(registry, target, entry, query, accepted)
    uid = entry.obj["metadata"]["uid"]
    return ApiResponse(
        200, encode(success_status(details_of(target.resource, target.name, uid=uid)))
    )


def delete_collection(
    registry: RestStorage, request: ApiRequest, target: Target, query: Query
) -> ApiResponse:
    """Delete what a list with the same selectors would show. Objects deleted meanwhile are skipped."""
    options = delete_options(request, query)
    page = list_page(registry, target, query)
    deleted = []
    for entry in page.entries:
        metadata = entry.obj["metadata"]
        try:
            gone, _ = registry.delete(
                target.resource, metadata.get("namespace", ""), metadata["name"], options
            )
        except (NotFound, Conflict):
            continue
        deleted.append(gone)
    encoder = encoder_for(target.resource)
    body = encode_list(
        target.resource.list_kind,
        target.resource.api_version,
        Page([], registry.store.revision).metadata(),
        [encoder(entry) for entry in deleted],
    )
    return ApiResponse(200, body)


def delete_options(request: ApiRequest, query: Query) -> DeleteOptions:
    """Options from the body, with the query string's filling in."""
    body: JsonObject = {}
    if request.body:
        decoded = decode_body(request)
        if not isinstance(decoded, dict) or decoded.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest("the body of a delete request must be DeleteOptions")
        body = decoded
    return parse_delete_options(body, query)


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
