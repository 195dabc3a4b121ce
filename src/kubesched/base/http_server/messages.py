"""Requests, responses, and the interface between a connection and the application that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

TEXT: Final = "text/plain; charset=utf-8"


class Headers(dict[str, str]):
    """Request headers by lower-case name. A repeated header maps to its first value, as in Go."""

    __slots__ = ("_repeated",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__()
        self._repeated: dict[str, list[str]] | None = None
        for name, value in fields:
            self.add(name.lower(), value)

    def add(self, name: str, value: str) -> None:
        """Append a field; `name` must be lower case."""
        if name not in self:
            self[name] = value
            return
        if self._repeated is None:
            self._repeated = {}
        self._repeated.setdefault(name, [self[name]]).append(value)

    def get_all(self, name: str) -> list[str]:
        """Every value of a header, in order; `name` must be lower case."""
        if self._repeated is not None and name in self._repeated:
            return list(self._repeated[name])
        return [self[name]] if name in self else []


@dataclass(frozen=True, slots=True)
class Peer:
    """The client end of a connection."""

    address: str = ""
    port: int = 0
    certificate: Mapping[str, Any] | None = None
    """The client certificate as `ssl` decodes it, after TLS verified its chain."""
    certificate_der: bytes = b""


NO_PEER: Final = Peer()


@dataclass(slots=True)
class Request:
    """One request. `body` is empty until `Application.respond` is called."""

    method: str
    target: str
    """Path and query as sent."""
    path: str
    """Percent-decoded."""
    query: str
    """Not decoded, without the question mark."""
    headers: Headers
    peer: Peer = NO_PEER
    received_at: float = 0.0
    """Event loop time when the head was complete."""
    is_http_1_0: bool = False
    expects_continue: bool = False
    """Whether the client waits for `100 Continue` before it sends the body."""
    body: bytes = b""


class ByteStream(Protocol):
    """A response body produced while it is sent.

    `aclose` is always called, even if iteration never began.
    """

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Response:
    """A status with a body, or with a stream of chunks instead of `body`."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    stream: ByteStream | None = None
    headers: Mapping[str, str] | None = None


class Refusal(Exception):
    """A request that the server itself rejects. The connection is closed after the response."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


class Application(Protocol):
    """Answers a server's requests; called for one request per connection at a time, in order."""

    def begin(self, request: Request) -> Response | Awaitable[Response | None] | None:
        """Decide from the head alone: a response refuses the request, None accepts its body."""
        ...

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        """The response to a complete request."""
        ...

    def refuse(self, refusal: Refusal) -> Response:
        """Response for a server-side rejection: malformed, too large, too slow, internal error."""
        ...

    def finished(self, request: Request, status: int) -> None:
        """Called when a response was handed to the transport or abandoned."""
        ...
