"""Refusals in Kubernetes' own words: builders for `ApiError`s and their `Status` form on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kubesched.embedded.objects import JsonObject, encode
from kubesched.embedded.resources import ResourceInfo
from kubesched.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
)

CauseReason: TypeAlias = Literal[
    "FieldValueNotFound",
    "FieldValueRequired",
    "FieldValueDuplicate",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that validation refuses."""

    field: str
    message: str
    reason: CauseReason = "FieldValueInvalid"

    def to_json(self) -> JsonObject:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> Cause:
    return Cause(
        field, f"Required value: {detail}" if detail else "Required value", "FieldValueRequired"
    )


def invalid_value(field: str, value: Any, detail: str) -> Cause:  # noqa: ANN401 (any JSON value)
    return Cause(field, f"Invalid value: {quote(value)}: {detail}")


def forbidden_field(field: str, detail: str) -> Cause:
    return Cause(field, f"Forbidden: {detail}", "FieldValueForbidden")


def duplicate(field: str, value: Any) -> Cause:  # noqa: ANN401 (any JSON value)
    return Cause(field, f"Duplicate value: {quote(value)}", "FieldValueDuplicate")


def unsupported(field: str, value: Any, supported: Sequence[str]) -> Cause:  # noqa: ANN401 (any JSON value)
    choices = ", ".join(f'"{each}"' for each in supported)
    return Cause(
        field,
        f"Unsupported value: {quote(value)}: supported values: {choices}",
        "FieldValueNotSupported",
    )


def not_found_value(field: str, value: Any) -> Cause:  # noqa: ANN401 (any JSON value)
    return Cause(field, f"Not found: {quote(value)}", "FieldValueNotFound")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, f"Too long: may not be more than {limit} bytes", "FieldValueTooLong")


def quote(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """A refused value as it stands in the message."""
    return encode(value).decode()


def group_resource(resource: ResourceInfo) -> str:
    return resource.key


def details_of(resource: ResourceInfo, name: str = "", **more: Any) -> JsonObject:  # noqa: ANN401 (JSON values)
    details: JsonObject = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    details.update(more)
    return details


def not_found(resource: ResourceInfo, name: str) -> NotFound:
    return NotFound(f'{resource.key} "{name}" not found', details=details_of(resource, name))


def already_exists(resource: ResourceInfo, name: str) -> AlreadyExists:
    return AlreadyExists(
        f'{resource.key} "{name}" already exists', details=details_of(resource, name)
    )


def conflict(resource: ResourceInfo, name: str, why: str) -> Conflict:
    message = f'Operation cannot be fulfilled on {resource.key} "{name}": {why}'
    return Conflict(message, details=details_of(resource, name))


def stale(resource: ResourceInfo, name: str) -> Conflict:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: ResourceInfo, name: str, why: str, *causes: JsonObject) -> Forbidden:
    details = details_of(resource, name)
    if causes:
        details["causes"] = list(causes)
    return Forbidden(f'{resource.key} "{name}" is forbidden: {why}', details=details)


def invalid(resource: ResourceInfo, name: str, causes: Sequence[Cause]) -> Invalid:
    assert causes
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    listed = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    details: JsonObject = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = [cause.to_json() for cause in causes]
    return Invalid(f'{kind} "{name}" is invalid: {text}', details=details)


def bad_request(message: str) -> BadRequest:
    return BadRequest(message)


def status_of(error: ApiError) -> JsonObject:
    """The `Status` object that tells a client about a refusal."""
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
    }
    details: JsonObject = dict(error.details) if isinstance(error.details, dict) else {}
    if error.retry_after_s is not None:
        details["retryAfterSeconds"] = int(error.retry_after_s)
    if details:
        status["details"] = details
    status["code"] = error.code
    return status


def success_status(details: JsonObject) -> JsonObject:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
