"""The HTTP transport: a bounded pool of kept-alive connections to one API server.

Gives each request an idle connection or a new one (made by `dialer`), adds credentials, and makes
the two retries that only the transport can judge: after a kept-alive connection that had died
unnoticed, and after a 401 that fresh credentials may fix. All other retries are in `rest`.

`start` is the cheap path for the requests made for every pod: it sends at once over an idle
connection and calls back, without a task. Anything that needs waiting or a second try is left to
`request`.

Invariants: at most `max_connections` connections serve ordinary requests and at most `max_streams`
serve streams, so that watches never starve writes; a connection is in `_idle` or has exactly one
exchange; requests that found everything busy are served in order of arrival; every wait ends at the
request's deadline.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

from kubesched.base.errors import (
    ConnectFailed,
    CredentialsError,
    DeadlineExceeded,
    StreamEnded,
    TransportError,
    WriteRefused,
)
from kubesched.base.logs import get_logger
from kubesched.client.connection import ConnectionLimits, HttpConnection
from kubesched.client.dialer import Dialer
from kubesched.client.exchange import BufferedResponse, Exchange, Outcome
from kubesched.client.metrics import HostMetrics
from kubesched.client.transport import (
    NOT_LEADING,
    ConnectionConfig,
    HeaderBlock,
    HeaderValues,
    Request,
    Response,
    StartedRequest,
    encode_headers,
)

log = get_logger(__name__)

UNAUTHORIZED = 401

_ACCEPT_GZIP = b"Accept-Encoding: gzip\r\n"
_ACCEPT_PLAIN = b"Accept-Encoding: identity\r\n"  # without a word, proxies may ask for any coding
_CLOSE_GRACE_S = 1.0
_ASK_CREDENTIALS_S = 1.0
"""How long `start` reuses the last headers from the credentials. Credentials notice new files and
expiring tokens within about a minute, and a 401 fetches fresh ones in any case.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Limits of the pool; the defaults suit one scheduler."""

    max_connections: int = 64
    max_streams: int = 256
    connect_s: float = 10.0
    """Seconds for name lookup, TCP, proxy and TLS handshakes together."""
    idle_s: float = 45.0
    """An idle connection older than this is not reused: kube-apiserver closes its end after 90 s,
    and a request sent into a closing connection cannot safely be repeated.
    """
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)


class HttpTransport:
    """`transport.Transport` over sockets. Must be used from one event loop."""

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        settings: PoolSettings | None = None,
        environ: Mapping[str, str] = os.environ,
        metrics: HostMetrics | None = None,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._credentials = config.credentials
        self._settings = settings or PoolSettings()
        self._dialer = Dialer(config, connect_s=self._settings.connect_s, environ=environ)
        self._authority = self._dialer.authority
        self._target_prefix = self._dialer.target_prefix()
        self._static_block = encode_headers(
            {"Host": self._authority, **self._dialer.proxy_headers()}
        )
        self._credential_headers: HeaderValues | None = None
        self._credential_block = b""
        self._heads: dict[bytes, bytes] = {}
        """Encoded header lines shared by all requests with the same headers, by those headers."""
        self._ask_credentials_at = -inf
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._waiters: deque[asyncio.Future[HttpConnection | None]] = deque()
        self._slot_count = 0  # ordinary connections, open or being opened
        self._stream_count = 0
        self._started: dict[Exchange, tuple[Callable[..., None], float]] = {}
        """Callbacks of started requests, with their start time; abandoned requests are removed."""
        self._answers: list[tuple[Exchange, Outcome]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """Set by the first request: getting the running loop is a system call (`getpid`)."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<HttpTransport {self._config.scheme}://{self._authority}>"

    # Requests.

    async def request(self, request: Request) -> Response:
        metrics = self._metrics
        if metrics is None:
            return await self._request(request)
        began = metrics.now()
        try:
            response = await self._request(request)
        except TransportError:
            metrics.answered(request, began, 0, None)
            raise
        size = None
        if isinstance(response, BufferedResponse) and not request.stream:
            size = len(response.body)
        metrics.answered(request, began, response.status, size)
        return response

    async def _request(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        deadline_at = loop.time() + request.deadline_s
        headers = await self._current_headers()
        generation = self._credentials.generation
        response = await self._exchange(loop, request, deadline_at)
        # A server that responds 401 did nothing, so any request may be repeated.
        if response.status == UNAUTHORIZED and await self._has_newer(
            headers, generation, deadline_at
        ):
            response = await self._exchange(loop, request, deadline_at)
        return response

    async def _has_newer(self, headers: HeaderValues, generation: int, deadline_at: float) -> bool:
        """Whether there are newer credentials than the refused ones.

        Another request's 401 may have refreshed them already.
        """
        credentials = self._credentials
        try:
            async with asyncio.timeout_at(deadline_at):
                if await self._current_headers() is not headers:
                    return True
                if credentials.generation != generation:
                    return True
                is_refreshed = await credentials.refresh()
                await self._current_headers()
                return is_refreshed
        except TimeoutError:
            raise DeadlineExceeded(
                f"no new credentials for {self._authority} in time", sent=False
            ) from None

    async def _current_headers(self) -> HeaderValues:
        headers = await self._credentials.headers()
        if headers is not self._credential_headers:
            self._adopt(headers)
        loop = self._loop = asyncio.get_running_loop()
        self._ask_credentials_at = loop.time() + _ASK_CREDENTIALS_S
        return headers

    def _adopt(self, headers: HeaderValues) -> None:
        try:
            self._credential_block = encode_headers(headers)
        except ValueError as error:
            raise CredentialsError(str(error)) from None
        self._credential_headers = headers
        self._heads.clear()

    async def _exchange(
        self, loop: asyncio.AbstractEventLoop, request: Request, deadline_at: float
    ) -> Response:
        data = self._encode(request)
        while True:
            connection = None if request.stream else self._take_idle(loop.time())
            if connection is None:
                connection = await self._acquire(loop, request, deadline_at)
            head_due_at = (
                deadline_at if request.first_byte_s is None else loop.time() + request.first_byte_s
            )
            is_reused = connection.is_used
            if request.may_send is not None and not request.may_send():
                self._on_idle(connection)
                raise WriteRefused(NOT_LEADING)
            future: asyncio.Future[Response] = loop.create_future()
            exchange = connection.send(
                request, data, deadline_at, head_due_at, partial(_settle, future)
            )
            try:
                response = await future
            except asyncio.CancelledError:
                connection.abandon(exchange)
                raise
            except StreamEnded as error:
                # A race: the server closed the kept-alive connection just as we chose it. Bounded:
                # every round uses up one kept-alive connection, and a new one ends the loop.
                is_stale = is_reused and not exchange.response_started and not self._is_closed
                if is_stale and (request.idempotent or not error.sent):
                    continue
                raise
            return self._decoded(request, response)

    def start(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> StartedRequest | None:
        """Send at once and return; None if not possible. See `transport.DirectTransport`."""
        loop = self._loop
        if loop is None or request.stream or request.method == "GET":
            return None
        now = loop.time()
        if self._credential_headers is None or now >= self._ask_credentials_at:
            self._ask_credentials_at = now + _ASK_CREDENTIALS_S  # only this request asks
            return None
        connection = self._take_idle(now)
        if connection is None:
            return None
        if request.may_send is not None and not request.may_send():
            self._on_idle(connection)
            return None
        began = 0.0 if self._metrics is None else self._metrics.now()
        deadline_at = now + request.deadline_s
        exchange = connection.send(
            request, self._encode(request), deadline_at, deadline_at, self._collect
        )
        self._started[exchange] = done, began
        return partial(self._give_up, connection, exchange)

    def _give_up(self, connection: HttpConnection, exchange: Exchange) -> None:
        if self._started.pop(exchange, None) is not None:
            connection.abandon(exchange)

    def _collect(self, exchange: Exchange, outcome: Outcome) -> None:
        """Hand out this response together with all others of this turn of the loop.

        Follow-up requests are thus sent together: sent one by one between reading other responses,
        they wake both sides for each of them, which costs a third more.
        """
        if not self._answers:
            assert self._loop is not None, "nothing was started"
            self._loop.call_soon(self._hand_out_all)
        self._answers.append((exchange, outcome))

    def _hand_out_all(self) -> None:
        answers, self._answers = self._answers, []
        for exchange, outcome in answers:
            started = self._started.pop(exchange, None)
            if started is None:
                continue  # abandoned meanwhile
            done, began = started
            try:
                done(self._result(exchange.request, began, outcome))
            except Exception:  # outermost edge; other callbacks must still run
                log.exception("Handling the answer to a request failed")

    def _result(
        self, request: Request, began: float, outcome: Outcome
    ) -> Response | TransportError | None:
        """The outcome of a started request; None if the server did nothing."""
        status, size = 0, None
        if isinstance(outcome, BufferedResponse):
            if outcome.status == UNAUTHORIZED:
                return None
            status, size = outcome.status, len(outcome.body)
        elif isinstance(outcome, StreamEnded) and not outcome.sent:
            return None  # the server had closed the kept-alive connection
        if self._metrics is not None:
            self._metrics.answered(request, began, status, size)
        return outcome

    def _encode(self, request: Request) -> bytes:
        target = request.target
        if not _is_safe_target(target):
            raise ValueError(f"{target!r} is not a valid request target")
        extra, body, method = request.headers, request.body, request.method
        if type(extra) is HeaderBlock:
            head = self._heads.get(extra.encoded)
            if head is None:
                head = self._heads[extra.encoded] = self._head(extra.encoded)
        else:
            head = self._head(encode_headers(extra))
        first_line = f"{method} {self._target_prefix}{target} HTTP/1.1\r\n".encode("ascii")
        if method != "GET":
            return b"%b%bContent-Length: %d\r\n\r\n%b" % (first_line, head, len(body), body)
        coding = _ACCEPT_GZIP if self._wants_gzip(request) else _ACCEPT_PLAIN
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        return b"%b%b%b%b\r\n%b" % (first_line, head, coding, length, body)

    def _head(self, block: bytes) -> bytes:
        return self._static_block + self._credential_block + block

    def _wants_gzip(self, request: Request) -> bool:
        # Only large responses are compressed, and those are lists.
        return (
            not self._config.disable_compression and request.method == "GET" and not request.stream
        )

    def _decoded(self, request: Request, response: Response) -> Response:
        if request.method != "GET":
            return response
        encoding = response.headers.get("content-encoding", "")
        if encoding in ("", "identity"):
            return response
        if encoding != "gzip" or not isinstance(response, BufferedResponse):
            response.close()
            raise TransportError(
                f'{self._authority} answered with content encoding "{encoding}" that was not asked '
                "for"
            )
        response.body = _gunzip(response.body, request.max_body_bytes, self._authority)
        return response

    # Finding a connection.

    def _take_idle(self, now: float) -> HttpConnection | None:
        """The most recently used idle connection that is still usable; the others age out."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if not connection.is_open:
                continue
            if (
                connection.generation == self._credentials.generation
                and now - connection.idle_since <= self._settings.idle_s
            ):
                return connection
            connection.close()
        return None

    async def _acquire(
        self, loop: asyncio.AbstractEventLoop, request: Request, deadline_at: float
    ) -> HttpConnection:
        """A new connection, or the next free one when the pool is full.

        Streams always get a separate connection, closed at their end: a handshake every few minutes
        is cheaper than watches that occupy the pool.
        """
        if request.stream:
            if self._stream_count >= self._settings.max_streams:
                raise ConnectFailed(
                    f"{self._settings.max_streams} streams to {self._authority} are open already"
                )
            self._stream_count += 1
        elif self._slot_count < self._settings.max_connections:
            self._slot_count += 1
        else:
            connection = await self._wait_for_connection(loop, deadline_at)
            if connection is not None:
                return connection
        try:
            return await self._connect(loop, request.stream, deadline_at)
        except BaseException:
            self._release(request.stream)
            raise

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, for_stream: bool, deadline_at: float
    ) -> HttpConnection:
        if self._is_closed:
            raise self._closed_error()
        connection = HttpConnection(
            loop, self._authority, self._settings.limits, self._on_idle, self._on_lost
        )
        connection.is_for_stream = for_stream
        connection.generation = self._credentials.generation
        await self._dialer.connect(connection, deadline_at)
        if self._is_closed:
            connection.abort()
            raise self._closed_error()
        self._open.add(connection)
        return connection

    async def _wait_for_connection(
        self, loop: asyncio.AbstractEventLoop, deadline_at: float
    ) -> HttpConnection | None:
        """An open connection, or None for the right to make one (a slot already counted)."""
        while True:
            waiter: asyncio.Future[HttpConnection | None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline_at):
                    try:
                        connection = await waiter
                    except asyncio.CancelledError:
                        self._return_unused(waiter)
                        raise
            except TimeoutError:
                raise DeadlineExceeded(
                    f"no connection to {self._authority} became free in time", sent=False
                ) from None
            # A connection can be lost between the handover and our wakeup.
            if connection is None or connection.is_open:
                return connection

    def _return_unused(self, waiter: asyncio.Future[HttpConnection | None]) -> None:
        """Pass on a connection whose request was cancelled in the same instant."""
        if waiter.cancelled() or not waiter.done() or waiter.exception() is not None:
            return
        connection = waiter.result()
        if connection is None:
            self._release(is_stream=False)
        elif connection.is_open:
            self._on_idle(connection)

    def _next_waiter(self) -> asyncio.Future[HttpConnection | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _release(self, is_stream: bool) -> None:
        """A connection was closed: the next waiter may open another."""
        if is_stream:
            self._stream_count -= 1
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(None)
        else:
            self._slot_count -= 1

    def _on_idle(self, connection: HttpConnection) -> None:
        is_outdated = connection.generation != self._credentials.generation
        if connection.is_for_stream or is_outdated or self._is_closed:
            connection.close()
        elif self._waiters and (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            connection.idle_since = connection.loop.time()
            self._idle.append(connection)

    def _on_lost(self, connection: HttpConnection) -> None:
        # Connections that failed while being made are counted by `_acquire`.
        if connection in self._open:
            self._open.discard(connection)
            self._release(connection.is_for_stream)

    # The end.

    async def aclose(self) -> None:
        self._is_closed = True
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(self._closed_error())
        lost = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.shut_down(StreamEnded(f"client of {self._authority} was closed"))
        self._idle.clear()
        if not lost:
            return
        _, pending = await asyncio.wait(lost, timeout=_CLOSE_GRACE_S)
        if pending:
            for connection in list(self._open):
                connection.abort()
            await asyncio.wait(pending, timeout=_CLOSE_GRACE_S)

    def _closed_error(self) -> ConnectFailed:
        return ConnectFailed(f"client of {self._authority} is closed")


def _is_safe_target(target: str) -> bool:
    """Whether a target starts with a slash and is visible ASCII, so it cannot inject a line."""
    return (
        target.startswith("/")
        and target.isascii()
        and target.isprintable()
        and " " not in target  # printable, too
    )


def _settle(future: asyncio.Future[Response], _exchange: Exchange, outcome: Outcome) -> None:
    if future.done():
        return  # cancelled
    if isinstance(outcome, TransportError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _gunzip(data: bytes, max_bytes: int, peer: str) -> bytes:
    decompressor = zlib.decompressobj(wbits=31)
    try:
        body = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise TransportError(f"{peer} sent a body that is not valid gzip") from error
    if len(body) > max_bytes:
        raise TransportError(f"answer from {peer} exceeds the limit of {max_bytes} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise TransportError(f"{peer} sent a truncated or overlong gzip body")
    return body
