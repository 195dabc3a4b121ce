"""The seam between API requests and the bytes on the wire.

Defines the types on both sides of the seam: `Request`, `Response`, `Transport`, and what a
transport needs to know about its peer: `ConnectionConfig` and `Credentials`. Sockets are in `pool`
and `connection`; retries, JSON and `Status` in `rest`; finding credentials in `kubeconfig` and
`in_cluster`.

Invariants:

* `Transport.request` either returns a `Response` whose status line and headers have arrived, or
  raises a `kubesched.base.errors.TransportError`; a 4xx or 5xx is a response, not an exception.
* Unless `Request.stream` is set the body has arrived too, so a returned response cannot fail.
* Secrets (authorization headers, proxy passwords, bodies) never appear in a `repr` or an error.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kubesched.base.errors import TransportError

HeaderValues = Mapping[str, str | tuple[str, ...]]
"""Header names with one value, or with several, sent as one line each (`Impersonate-Group`)."""

DEFAULT_DEADLINE_S = 30.0
"""Limit of an ordinary request, everything included. client-go has no default, but a scheduler must
not wait forever for one response; kube-apiserver ends non-streaming requests after 60 s.
"""

DEFAULT_MAX_BODY_BYTES = 512 * 1024 * 1024
"""Maximum size of a buffered body. An unpaged list of 100,000 large pods is about 300 MB."""

NOT_LEADING = "not sent: this scheduler does not hold the leader lease any more"

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def encode_headers(headers: HeaderValues) -> bytes:
    """Header lines as sent; `ValueError`, without the value, for what would inject a line."""
    lines = []
    for name, values in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid HTTP header name")
        for value in (values,) if isinstance(values, str) else values:
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"the value of HTTP header {name} contains characters that cannot be sent"
                )
            lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")


class HeaderBlock(dict[str, str]):
    """Headers that are sent many times: checked and encoded once, then only read."""

    __slots__ = ("encoded",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.encoded = encode_headers(headers)


NO_HEADERS = HeaderBlock({})


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """One HTTP request, relative to the transport's server.

    `target` is the percent-encoded path with its query, starting with "/" and without the server's
    path prefix. `headers` must not contain Host, Content-Length or Authorization; the transport
    adds them.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, repr=False)
    body: bytes = field(default=b"", repr=False)

    deadline_s: float = DEFAULT_DEADLINE_S
    """Seconds for everything: waiting for a connection, connecting, writing, reading."""
    first_byte_s: float | None = None
    """Seconds until status line and headers must arrive; None: only `deadline_s` applies."""
    stream: bool = False
    """Return after the headers and provide the body as it arrives (watches)."""
    idempotent: bool = False
    """Idempotent: may be resent if the connection is lost before the first response byte."""
    may_send: Callable[[], bool] | None = field(default=None, repr=False)
    """Called right before the first byte is written, after any wait; False: `WriteRefused`."""
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """Maximum body of a buffered response; streams are not limited in total."""


class Response(Protocol):
    """A response. `headers` has lower-case names; repeated headers are joined with a comma."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        """The whole body; `TransportError` if it exceeds `max_bytes` or is incomplete."""
        ...

    def iter_chunks(self) -> AsyncIterator[bytes]:
        """The body in non-empty chunks as they arrive; their boundaries are arbitrary.

        Raises `StreamEnded` when the peer disconnects before the end of the body and
        `DeadlineExceeded` when the request's deadline passes.
        """
        ...

    def close(self) -> None:
        """Discard the rest of the body; required for a stream that was not read to its end."""
        ...


class Transport(Protocol):
    """Sends requests, any number of them concurrently."""

    async def request(self, request: Request) -> Response: ...

    async def aclose(self) -> None:
        """Close every connection; requests in flight fail with `StreamEnded`."""
        ...


StartedRequest = Callable[[], None]
"""Cancels a started request: its response is no longer wanted."""


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport that can send a request without a task that awaits the response."""

    def start(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> StartedRequest | None:
        """Send a request and return; `done` is called once, later, unless it is cancelled.

        `done` gets the response, the error, or None if the server has certainly done nothing and
        `request` should be used instead. Returns None, having done nothing, if the request cannot
        be sent right now: `request` waits for what is missing. Only for requests whose response is
        small and not compressed.
        """
        ...


class Credentials(Protocol):
    """Identity for the API server.

    Implementations re-read files, run plugins and refresh tokens behind these four members.
    """

    generation: int
    """Incremented when `ssl_context` changes; connections of an older generation are not reused."""

    async def headers(self) -> HeaderValues:
        """Headers to send with every request (Authorization, Impersonate-*).

        Called for each request or once a second, so return the same mapping object while nothing
        changed: the transport caches its encoded form. Bounds its own waiting. Raises
        `CredentialsError`.
        """
        ...

    def ssl_context(self) -> ssl.SSLContext | None:
        """Context for new connections (CA, client certificate, verification); None: plain HTTP."""
        ...

    async def refresh(self) -> bool:
        """Get new credentials after a 401; False if there is nothing newer to try."""
        ...


class AnonymousCredentials:
    """No identity: plain HTTP, or TLS with a given context."""

    generation = 0

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context

    async def headers(self) -> Mapping[str, str]:
        return NO_HEADERS

    def ssl_context(self) -> ssl.SSLContext | None:
        return self._context

    async def refresh(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """Address of the API server and how to reach it."""

    host: str
    """Name or address to connect to; an IPv6 address without brackets."""
    port: int
    scheme: str = "https"
    """"https" or "http"."""
    path_prefix: str = ""
    """Path prefix of the API in the server's URL, without a trailing slash."""
    server_name: str = ""
    """SNI and verification name if it is not `host` (kubeconfig's `tls-server-name`)."""
    proxy_url: str = field(default="", repr=False)
    """Kubeconfig proxy ("http://" or "https://"); empty: use the environment."""
    disable_compression: bool = False
    credentials: Credentials = field(default_factory=AnonymousCredentials, repr=False)
