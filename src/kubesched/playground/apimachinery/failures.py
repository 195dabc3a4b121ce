"""Builders for `ApiError`s with Kubernetes' messages, and their `Status` form."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.field_errors import FieldError, aggregate
from kubesched.base.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
)
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import Json, JsonObject


def details_of(resource: ResourceInfo, name: str = "", **more: Json) -> JsonObject:
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


def conflict(resource: ResourceInfo, name: str, why: str, subresource: str = "") -> Conflict:
    suffix = f"/{subresource}" if subresource else ""
    message = f'Operation cannot be fulfilled on {resource.key}{suffix} "{name}": {why}'
    return Conflict(
        message, details={**details_of(resource, name), "kind": resource.plural + suffix}
    )


def kind_conflict(resource: ResourceInfo, name: str, why: str) -> Conflict:
    """A failed deletion precondition, which upstream reports with the kind, not the resource."""
    message = f'Operation cannot be fulfilled on {resource.kind} "{name}": {why}'
    return Conflict(message, details={**details_of(resource, name), "kind": resource.kind})


def other_uid(resource: ResourceInfo, name: str, stated: str, uid: str) -> Conflict:
    why = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {uid}"
    return conflict(resource, name, why)


def stale(resource: ResourceInfo, name: str) -> Conflict:
    why = (
        "the object has been modified;"
        " please apply your changes to the latest version and try again"
    )
    return conflict(resource, name, why)


def forbidden(resource: ResourceInfo, name: str, why: str, *causes: JsonObject) -> Forbidden:
    details = details_of(resource, name)
    if causes:
        details["causes"] = list(causes)
    return Forbidden(f'{resource.key} "{name}" is forbidden: {why}', details=details)


def invalid(resource: ResourceInfo, name: str, problems: Sequence[FieldError]) -> Invalid:
    assert problems
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: JsonObject = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = [_cause(problem) for problem in problems]
    return Invalid(f'{kind} "{name}" is invalid: {aggregate(problems)}', details=details)


def _cause(problem: FieldError) -> JsonObject:
    return {"reason": problem.kind.reason, "message": problem.body(), "field": problem.path}


def invalid_options(kind: str, problem: FieldError) -> Invalid:
    """An error about the request's options rather than its object."""
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [_cause(problem)]}
    return Invalid(f'{kind}.meta.k8s.io "" is invalid: {problem}', details=details)


class ContinueExpired(Gone):
    """A list cannot go on at its revision; `token` continues it at the newest."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message)
        self.token = token


def status_of(error: ApiError) -> JsonObject:
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {"continue": error.token} if isinstance(error, ContinueExpired) else {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
    }
    details: JsonObject = dict(error.details) if isinstance(error.details, dict) else {}
    if error.retry_after_s is not None:
        details["retryAfterSeconds"] = int(error.retry_after_s)
    if details or error.details is not None:
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
