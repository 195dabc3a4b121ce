"""From the server's `Status` to the exception that stands for it.

The reason decides, the HTTP code only where there is no known reason; message, code, reason and details are kept as
the server sent them. Bodies that are no `Status` (a proxy's error page) are quoted briefly.
"""

from __future__ import annotations

import msgspec

from kubesched.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
)

MAX_QUOTED_CHARACTERS = 200

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError)
"""What msgspec raises for bytes that are not what they should be."""

_KINDS: tuple[type[ApiError], ...] = (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
)
_BY_REASON: dict[str, type[ApiError]] = {kind.reason: kind for kind in _KINDS}
_BY_REASON["Gone"] = Gone
for _reason in ("ServerTimeout", "ServiceUnavailable", "StoreReadError", "Timeout"):
    _BY_REASON[_reason] = ServerError
_BY_CODE: dict[int, type[ApiError]] = {
    kind.code: kind for kind in _KINDS if kind is not AlreadyExists
}

RESOURCE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"


class StatusCause(msgspec.Struct, rename="camel", frozen=True):
    """One thing wrong with a request."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(msgspec.Struct, rename="camel", frozen=True):
    """The object concerned and, for invalid ones, every cause."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct, rename="camel"):
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


_decoder = msgspec.json.Decoder(_Status)


def error_from_object(data: bytes) -> ApiError:
    """The exception for a `Status` inside something else (a watch's ERROR event)."""
    return error_from_answer(0, data, None)


def error_from_answer(http_status: int, body: bytes, retry_after: str | None) -> ApiError:
    """The exception for a failed request. `retry_after` is the header's value, if there was one."""
    try:
        status = _decoder.decode(body)
    except DECODE_ERRORS:
        status = _Status()
    code = status.code or http_status
    reason = status.reason or ""
    details = status.details
    message = status.message or _quote(body) or f"server answered with status {code}"
    kind = (
        _BY_REASON.get(reason) or _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)
    )
    return kind(
        message,
        code=code,
        reason=reason or kind.reason,
        retry_after_s=_retry_after_s(details, retry_after),
        details=details,
    )


def is_resource_version_too_large(error: ApiError) -> bool:
    """Whether the server has not yet seen the resource version we asked for (a server restored from a backup)."""
    details = error.details
    causes = (isinstance(details, StatusDetails) and details.causes) or []
    return any(cause.reason == RESOURCE_VERSION_TOO_LARGE for cause in causes) or (
        "Too large resource version" in error.message
    )


def _retry_after_s(details: StatusDetails | None, header: str | None) -> float | None:
    # Only the form in seconds: no Kubernetes server sends a date here.
    if header is not None and header.strip().isdigit():
        return float(header)
    if details is not None and details.retry_after_seconds:
        return float(details.retry_after_seconds)
    return None


def _quote(body: bytes) -> str:
    text = " ".join(body[: 4 * MAX_QUOTED_CHARACTERS].decode("utf-8", "replace").split())
    return text if len(text) <= MAX_QUOTED_CHARACTERS else text[:MAX_QUOTED_CHARACTERS] + "..."
