"""The exception tree.

Verdicts about pods are values (`framework.status.Status`), never exceptions. What is raised is one
of:

    KubeschedError
    ├─ ConfigError          every problem of a file at once, each with its field path
    ├─ CredentialsError     kubeconfig, token, certificate or exec plugin cannot be used
    ├─ ApiError             the server answered with a failure `Status`
    │  ├─ BadRequest · Unauthorized · Forbidden · NotFound · MethodNotAllowed · NotAcceptable
    │  ├─ AlreadyExists · Conflict · Gone · RequestEntityTooLarge · UnsupportedMediaType · Invalid
    │  └─ TooManyRequests · ServerError
    ├─ TransportError       no answer: ConnectFailed (WriteRefused) · Interrupted (DeadlineExceeded · StreamEnded)
    ├─ CelError             an expression does not compile or cannot be evaluated
    └─ Unrecoverable        in-memory state is wrong in a way that only a restart repairs; ends the process

Messages begin in lower case, name the object as `namespace/name`, say what was expected and what
was found.
"""

from __future__ import annotations

from dataclasses import dataclass


class KubeschedError(Exception):
    """Base of everything this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with a configuration, where it is, and where the file says it."""

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
    """In-memory state contradicts the cluster and only a restart repairs it.

    Must end the process: never handle it.
    """


class CredentialsError(KubeschedError):
    """Credentials are missing, broken or unsupported; the text names file, context and field, never a secret."""


class ApiError(KubeschedError):
    """The API server refused. Carries the parts of its `Status` that callers decide on."""

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
    """The request could not be understood; repeating it is pointless."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The credentials were not accepted; refresh them once, then give up."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The identity lacks the permission; check RBAC."""

    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    """The object does not exist (any more)."""

    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    """The resource does not support the verb."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    """The server cannot produce the representation asked for."""

    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    """An object of that name is there already."""

    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    """The object changed meanwhile, or a precondition failed; read again before trying again."""

    code, reason = 409, "Conflict"


class Gone(ApiError):
    """The resource version is too old to continue from; list again."""

    code, reason = 410, "Expired"


class RequestEntityTooLarge(ApiError):
    """The body exceeds the server's limit."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The body's content type is not understood for this verb."""

    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object violates validation; `details` lists the causes."""

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
    """Not sent, because this process does not hold the leader lease any more. Do not repeat it."""


class Interrupted(TransportError):
    """An exchange broke off. Unless `sent` is False the request may have taken effect."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class DeadlineExceeded(Interrupted):
    """Time ran out."""


class StreamEnded(Interrupted):
    """The peer closed the connection in mid-answer."""


def without_groups(error: Exception) -> Exception:
    """What task groups have wrapped, if it is one thing."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """The text of an error, with its type unless it is one of ours, whose texts stand alone."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, KubeschedError):
        return text or kind
    return f"{kind}: {text}" if text else kind
