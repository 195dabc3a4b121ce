"""API failures: `Status` objects, and their mapping to exceptions."""

from __future__ import annotations

import msgspec

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


_KINDS = tuple(
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ApiError) and kind.reason
)
_BY_REASON: dict[str, type[ApiError]] = {
    **{kind.reason: kind for kind in _KINDS},
    "Gone": errors.Gone,
    **dict.fromkeys(("ServerTimeout", "ServiceUnavailable", "Timeout"), errors.ServerError),
}
_BY_CODE = {kind.code: kind for kind in _KINDS if kind is not errors.AlreadyExists}

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


def conflict(resource: str, name: str, why: str, group: str = "") -> errors.Conflict:
    """A conflict in the API server's words."""
    qualified = f"{resource}.{group}" if group else resource
    return errors.Conflict(
        f'Operation cannot be fulfilled on {qualified} "{name}": {why}',
        details=StatusDetails(name=name, group=group, kind=resource),
    )
