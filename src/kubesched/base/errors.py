"""The exception tree.

Verdicts about pods are values (`framework.status.Status`), never exceptions. The exceptions are:

    KubeschedError
    ├─ ConfigError          every problem of a file at once, each with its field path
    ├─ CredentialsError     kubeconfig, token, certificate or exec plugin cannot be used
    ├─ ApiError             the server answered with a failure `Status`
    │  ├─ BadRequest · Unauthorized · Forbidden · NotFound · MethodNotAllowed · NotAcceptable
    │  ├─ AlreadyExists · Conflict · Gone · RequestEntityTooLarge · UnsupportedMediaType · Invalid
    │  └─ TooManyRequests · ServerError
    ├─ TransportError       no answer
    │  └─ ConnectFailed (WriteRefused) · Interrupted (DeadlineExceeded · StreamEnded)
    ├─ CelError             an expression does not compile or cannot be evaluated
    └─ Unrecoverable        in-memory state is wrong and only a restart repairs it; ends the process

Messages start in lower case, name the object as `namespace/name`, and state what was expected and
what was found.
"""

from __future__ import annotations

from dataclasses import dataclass


class KubeschedError(Exception):
    """Base class of all exceptions that this package raises deliberately."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One configuration problem: field path, message, and position in the file."""

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = f" (line {self.line}, column {self.column})" if self.line is not None else ""
        return f"{self.path}: {self.message}{where}" if self.path else f"{self.message}{where}"


class ConfigError(KubeschedError):
    """A configuration cannot be used; `problems` lists every reason found."""

    def __init__(self, problems: list[FieldProblem], source: str = "") -> None:
        self.problems = problems
        self.source = source
        prefix = f"{source}: " if source else ""
        super().__init__(prefix + "; ".join(str(problem) for problem in problems))


class Unrecoverable(KubeschedError):
    """In-memory state is wrong and only a restart repairs it. Never handle it: end the process."""


class CredentialsError(KubeschedError):
    """Credentials cannot be used. The text names file, context and field, never a secret."""


class ApiError(KubeschedError):
    """The API server rejected a request. Carries the parts of its `Status` that callers act on."""

    code = 0
    reason = ""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        retry_after_s: float | None = None,
        details: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason
        self.retry_after_s = retry_after_s
        self.details = details


class BadRequest(ApiError):
    """The request could not be understood; do not retry it."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The credentials were not accepted; refresh them once, then give up."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The identity lacks the permission; check RBAC."""

    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    """The object does not exist, or was deleted."""

    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    """The resource does not support the verb."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    """The server cannot produce the requested representation."""

    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    """An object of that name already exists."""

    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    """The object has changed, or a precondition failed; read it again before retrying."""

    code, reason = 409, "Conflict"


class Gone(ApiError):
    """The resource version is too old; list again."""

    code, reason = 410, "Expired"


class RequestEntityTooLarge(ApiError):
    """The body exceeds the server's limit."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The server does not accept the body's content type for this verb."""

    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object failed validation; `details` lists the causes."""

    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """The server asks to slow down; honour `retry_after_s`."""

    code, reason = 429, "TooManyRequests"


class ServerError(ApiError):
    """The server failed (5xx); the request may or may not have taken effect."""

    code, reason = 500, "InternalError"


class TransportError(KubeschedError):
    """No usable answer arrived."""


class ConnectFailed(TransportError):
    """No connection could be made: the request certainly had no effect."""


class WriteRefused(ConnectFailed):
    """Not sent because this process no longer holds the leader lease. Do not retry it."""


class Interrupted(TransportError):
    """The exchange was interrupted. Unless `sent` is False, the request may have taken effect."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class DeadlineExceeded(Interrupted):
    """The deadline expired."""


class StreamEnded(Interrupted):
    """The peer closed the connection in the middle of a response."""


def without_groups(error: Exception) -> Exception:
    """Unwraps exception groups that contain a single exception."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """The error's text, prefixed with its type unless it is a KubeschedError."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, KubeschedError):
        return text or kind
    return f"{kind}: {text}" if text else kind
