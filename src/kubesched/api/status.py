"""API failures: `Status` objects, and their mapping to exceptions.

`error_from_status` turns a server's response into an exception; `status_of` turns an exception into
the response of our own server. The functions below them use the API server's exact wording.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubesched.api import field_errors
from kubesched.api.field_errors import FieldError
from kubesched.api.meta import ListMeta, Record, constant
from kubesched.base import errors
from kubesched.base.errors import ApiError


class StatusCause(Record):
    """One of several reasons for a failure."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Record):
    """The subject of a failure; `kind` is often the resource (`pods`)."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int = 0


class Status(Record):
    """The result of a call that returns no object."""

    kind: str = constant("Status")
    api_version: str = constant("v1")
    metadata: ListMeta = ListMeta()
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": errors.AlreadyExists,
    "BadRequest": errors.BadRequest,
    "Conflict": errors.Conflict,
    "Expired": errors.Gone,
    "Forbidden": errors.Forbidden,
    "Gone": errors.Gone,
    "InternalError": errors.ServerError,
    "Invalid": errors.Invalid,
    "MethodNotAllowed": errors.MethodNotAllowed,
    "NotAcceptable": errors.NotAcceptable,
    "NotFound": errors.NotFound,
    "RequestEntityTooLarge": errors.RequestEntityTooLarge,
    "ServerTimeout": errors.ServerError,
    "ServiceUnavailable": errors.ServerError,
    "Timeout": errors.ServerError,
    "TooManyRequests": errors.TooManyRequests,
    "Unauthorized": errors.Unauthorized,
    "UnsupportedMediaType": errors.UnsupportedMediaType,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    406: errors.NotAcceptable,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.RequestEntityTooLarge,
    415: errors.UnsupportedMediaType,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}

_status_decoder: msgspec.json.Decoder[Status] = msgspec.json.Decoder(Status)

# Limit for proxy error pages; enough to recognise them.
_BODY_EXCERPT = 512

MAX_RETRY_AFTER_S = 60.0
"""Longest pause accepted from Retry-After or `retryAfterSeconds`.

kube-apiserver asks for 1 to 10 seconds; anything longer would let one bad response stop a watch or
a retry for good.
"""


def error_from_status(
    code: int, body: bytes | str, *, retry_after_s: float | None = None
) -> ApiError:
    """The exception for a failed call.

    Args:
        code: the HTTP status code.
        body: the response; anything but a `Status` (such as a proxy's page) becomes the message.
        retry_after_s: the Retry-After header, if any; takes precedence over the body.
    """
    try:
        status = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = None
    if status is None or status.kind != "Status" or not (status.message or status.reason):
        text = body.decode(errors="replace") if isinstance(body, bytes) else body
        message = " ".join(text[:_BODY_EXCERPT].split())
        status = Status(
            status="Failure", code=code, message=message or f"the server answered {code}"
        )
    return error_of(status, code=code, retry_after_s=retry_after_s)


def error_of(
    status: Status, *, code: int | None = None, retry_after_s: float | None = None
) -> ApiError:
    """The exception for a `Status`."""
    code = code or status.code
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(code)
    if kind is None:
        kind = errors.ServerError if code >= 500 else ApiError
    if retry_after_s is None and status.details is not None and status.details.retry_after_seconds:
        retry_after_s = status.details.retry_after_seconds
    if retry_after_s is not None:
        retry_after_s = float(min(max(retry_after_s, 0), MAX_RETRY_AFTER_S))
    return kind(
        status.message or status.reason,
        code=code or None,
        reason=status.reason or None,
        retry_after_s=retry_after_s,
        details=status.details,
    )


def status_of(error: ApiError) -> Status:
    """The `Status` that a server returns for an exception."""
    details = error.details if isinstance(error.details, StatusDetails) else None
    if error.retry_after_s is not None:
        details = msgspec.structs.replace(
            details or StatusDetails(), retry_after_seconds=max(1, round(error.retry_after_s))
        )
    return Status(
        status="Failure",
        message=error.message,
        reason=error.reason,
        details=details,
        code=error.code or 500,
    )


# -- the API server's wording -------------------------------------------------------------------


def qualified(resource: str, group: str) -> str:
    """`pods`, or `deployments.apps`."""
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, name: str, group: str = "") -> errors.NotFound:
    return errors.NotFound(
        f'{qualified(resource, group)} "{name}" not found', details=_about(resource, name, group)
    )


def already_exists(resource: str, name: str, group: str = "") -> errors.AlreadyExists:
    return errors.AlreadyExists(
        f'{qualified(resource, group)} "{name}" already exists',
        details=_about(resource, name, group),
    )


def conflict(resource: str, name: str, why: str, group: str = "") -> errors.Conflict:
    return errors.Conflict(
        f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}',
        details=_about(resource, name, group),
    )


def forbidden(resource: str, name: str, why: str, group: str = "") -> errors.Forbidden:
    what = qualified(resource, group)
    subject = f'{what} "{name}" is forbidden' if name else f"{what} is forbidden"
    return errors.Forbidden(f"{subject}: {why}", details=_about(resource, name, group))


def invalid(
    kind: str, name: str, problems: Sequence[FieldError], group: str = ""
) -> errors.Invalid:
    """A rejected object, with every problem as a cause."""
    return errors.Invalid(
        f'{qualified(kind, group)} "{name}" is invalid: {field_errors.aggregate(problems)}',
        details=StatusDetails(
            name=name,
            group=group,
            kind=kind,
            causes=[
                StatusCause(reason=p.kind.reason, message=p.body(), field=p.path) for p in problems
            ],
        ),
    )


def _about(resource: str, name: str, group: str) -> StatusDetails:
    return StatusDetails(name=name, group=group, kind=resource)
