"""The seam between "what to ask the API server" and "how bytes get there and back".

Responsible for the types on both sides of the seam: `Request`, `Response`, `Transport`, and what a
transport needs to know about its peer: `ConnectionConfig` and `Credentials`. Not responsible for
sockets (`pool`, `connection`), for retries, JSON or `Status` (`rest`), nor for finding credentials
(`kubeconfig`, `in_cluster`).

Invariants:

* `Transport.request` either returns a `Response` whose status line and headers have arrived, or
  raises a `kubesched.base.errors.TransportError`; a 4xx or 5xx is a response, not an exception.
* Unless `Request.stream` is set the body has arrived too, so a returned response can no longer
  fail.
* Secrets (authorization headers, proxy passwords, bodies) never appear in a `repr` or an error
  text.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kubesched.base.errors import TransportError

HeaderValues = Mapping[str, str | tuple[str, ...]]
"""Header names with one value, or with several that go out as one line each (`Impersonate-Group`).
"""

DEFAULT_DEADLINE_S = 30.0
"""How long an ordinary request may take, everything included. client-go has no default; a scheduler
that waits forever for one answer is stuck forever, and kube-apiserver itself gives up on
non-streaming requests after 60 s.
"""

DEFAULT_MAX_BODY_BYTES = 512 * 1024 * 1024
"""Most bytes of one buffered answer. A list of 100,000 large pods is about 300 MB when it is not
paged.
"""

NOT_LEADING = "not sent: this scheduler does not hold the leader lease any more"

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def encode_headers(headers: HeaderValues) -> bytes:
    """Header lines as sent.

    Raises `ValueError` for what would break out of its line; never echoes a value.
    """
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
    """One HTTP request, addressed relative to the server the transport talks to.

    `target` is the percent-encoded path with its query, starting with "/" and without the server's
    path prefix. `headers` must not contain Host, Content-Length or Authorization; the transport
    adds them.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, repr=False)
    body: bytes = field(default=b"", repr=False)

    deadline_s: float = DEFAULT_DEADLINE_S
    """Seconds for everything: waiting for a connection, connecting, writing, and reading the whole
    answer.
    """
    first_byte_s: float | None = None
    """Seconds until status line and headers must be there; None means that only `deadline_s`
    counts.
    """
    stream: bool = False
    """Return as soon as the headers are there and hand out the body as it arrives (watches)."""
    idempotent: bool = False
    """Sending it twice is the same as sending it once, so a connection lost before the first byte
    of the answer may be papered over by sending again.
    """
    may_send: Callable[[], bool] | None = field(default=None, repr=False)
    """Asked right before the first byte is written, after every wait; if it says no, `WriteRefused`
    is raised.
    """
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """Longest acceptable body of a buffered answer; streams are not limited in total."""


class Response(Protocol):
    """What came back. `headers` has lower-case names; repeated headers are joined with a comma."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        """The whole body, or `TransportError` if it is longer than `max_bytes` or ends too early."""
        ...

    def iter_chunks(self) -> AsyncIterator[bytes]:
        """The body in non-empty pieces as they arrive; boundaries mean nothing.

        Raises `StreamEnded` when the peer goes away before the end of the body and
        `DeadlineExceeded` when the request's deadline passes.
        """
        ...

    def close(self) -> None:
        """Give up on the rest of the body.

        Must be called for a stream that was not read to its end.
        """
        ...


class Transport(Protocol):
    """Sends requests. One object may serve any number of concurrent requests."""

    async def request(self, request: Request) -> Response: ...

    async def aclose(self) -> None:
        """Close every connection; requests in flight fail with `StreamEnded`."""
        ...


StartedRequest = Callable[[], None]
"""Gives up on a request that was started: its answer is not wanted any more."""


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport that can send a request without a task to wait for the answer."""

    def start(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> StartedRequest | None:
        """Send a request and return; `done` is called once, later, unless it is given up.

        `done` gets the answer, why there is none, or None if the server has certainly done nothing
        and `request` should be used instead. Returns None, having done nothing, if the request
        cannot be sent right now: `request` waits for what is missing. Only for requests whose
        answer is small and is not compressed.
        """
        ...


class Credentials(Protocol):
    """Who we are.

    Implementations re-read files, run plugins and refresh tokens behind these four members.
    """

    generation: int
    """Counts up whenever `ssl_context` changes; connections made under an older generation are not
    reused.
    """

    async def headers(self) -> HeaderValues:
        """Headers to send with every request (Authorization, Impersonate-*).

        Called for each request or once a second, so the same mapping object should be returned
        while nothing changed: the transport keeps its encoded form. Bounds its own waiting. Raises
        `CredentialsError`.
        """
        ...

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context for new connections (CA, client certificate, verification); None for plain HTTP."""
        ...

    async def refresh(self) -> bool:
        """Get new credentials because the server answered 401; False if there is nothing newer to try."""
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
    """Where the API server is and how to reach it."""

    host: str
    """Name or address to connect to; an IPv6 address without brackets."""
    port: int
    scheme: str = "https"
    """"https" or "http"."""
    path_prefix: str = ""
    """Path under which the API lives when the server's URL has one, without a trailing slash."""
    server_name: str = ""
    """Name for SNI and certificate verification if it is not `host` (kubeconfig's
    `tls-server-name`).
    """
    proxy_url: str = field(default="", repr=False)
    """Proxy from the kubeconfig ("http://", "https://" or "socks5://"); empty means: as the
    environment says.
    """
    disable_compression: bool = False
    credentials: Credentials = field(default_factory=AnonymousCredentials, repr=False)
