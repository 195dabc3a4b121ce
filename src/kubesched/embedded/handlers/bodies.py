"""Objects from request bodies: of the right kind, of the right shape, in the form that is stored."""

from __future__ import annotations

from typing import cast, get_args

from kubesched.api.field_errors import not_supported
from kubesched.embedded.apimachinery.bodies import (
    FieldValidation,
    check_fields,
    check_kind,
    to_stored,
    unrecognized,
)
from kubesched.embedded.apimachinery.catalog import ResourceInfo
from kubesched.embedded.apimachinery.failures import invalid_options
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.handlers.exchange import ApiRequest, Query, decode_body
from kubesched.errors import BadRequest

_MODES = get_args(FieldValidation)


def field_validation(query: Query) -> FieldValidation:
    """What to do about fields the kind does not have; they are kept either way unless refused."""
    mode = query.get("fieldValidation") or "Warn"
    if mode not in _MODES:
        choices = ("", "Ignore", "Strict", "Warn")
        raise invalid_options("CreateOptions", not_supported("fieldValidation", mode, choices))
    return cast("FieldValidation", mode)


def decode_object(
    request: ApiRequest, resource: ResourceInfo, query: Query
) -> tuple[JsonObject, list[str]]:
    """The object in the body, in its stored form, and warnings for the client."""
    try:
        decoded = decode_body(request, keeps_nulls=resource.schema is not None)
    except BadRequest as error:
        raise BadRequest(f"{unrecognized(resource)}: {error.message}") from None
    obj = check_kind(decoded, resource)
    warnings = check_fields(
        resource, obj, request.body, field_validation(query), is_json=request.is_json
    )
    return to_stored(resource, obj), warnings
