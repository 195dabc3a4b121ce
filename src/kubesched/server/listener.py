"""Accepting connections, with limits: however many clients come and however slowly they speak, scheduling goes on.

What a stranger can use up without proving anything, and what bounds it:

| Resource | Bound |
|---|---|
| CPU for handshakes | so many new connections per second; the others wait in the kernel's backlog |
| connections | a number; when it is reached, the one that has been silent longest makes room |
| time for the handshake, and until the headers are complete | seconds; then the connection is cut |
| an idle connection | seconds |
| memory for headers | a line, a field, a number of fields |
| memory for a body | a few kilobytes |
| a client that does not read | seconds per piece of the answer |

Sockets are accepted here and then handed to aiohttp's protocol; its own `TCPSite` has none of these bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from kubesched.client.rate_limit import TokenBucket
from kubesched.clock import Clock
from kubesched.logs import get_logger

log = get_logger(__name__)

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds; the defaults leave a probe and some scrapers more than they need."""

    max_connections: int = 256
    accepts_per_s: float = 100.0
    accept_burst: int = 100
    handshake_s: float = 10.0
    headers_s: float = 32.0
    """Until a new client's first request is complete."""
    idle_s: float = 90.0
    sweep_s: float = 5.0
    max_line_bytes: int = 8190
    max_field_bytes: int = 8190
    max_fields: int = 100
    max_body_bytes: int = 64 * 1024
    send_s: float = 30.0


@dataclass(slots=True)
class _Connection:
    """A client beyond its handshake."""

    protocol: RequestHandler
    quiet_since: float
    is_busy: bool = False
    has_spoken: bool = False
    """Whether any request was complete so far."""


class _ClientFaults(logging.Logger):
    """aiohttp's log: one line for each bad request, for those who look closely. Hostile clients send many.

    What goes wrong inside a request is caught and told elsewhere.
    """

    def exception(self, msg: object, *args: Any, exc_info: Any = None, **_more: Any) -> None:  # noqa: ANN401 - as in the base class
        log.info("Bad request", v=4, what=str(msg) % args if args else str(msg), err=exc_info)

    def debug(self, msg: object, *args: Any, exc_info: Any = None, **_more: Any) -> None:  # noqa: ANN401 - as in the base class
        log.info("Bad request", v=5, what=str(msg) % args if args else str(msg), err=exc_info)


class _Tracked(web.Server):
    """aiohttp's protocol factory, telling the listener of connections."""

    def __init__(self, listener: Listener, handle: Handle, **settings: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(handle, **settings)
        self._listener = listener

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._listener.opened(handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._listener.closed(handler)


class Listener:
    """Serves one socket until cancelled."""

    def __init__(
        self,
        sock: socket.socket,
        context: Callable[[], ssl.SSLContext],
        handle: Handle,
        *,
        clock: Clock,
        limits: Limits | None = None,
    ) -> None:
        self._socket = sock
        self._socket.setblocking(False)
        self._context = context
        self._handle = handle
        self._clock = clock
        self.limits = limits or Limits()
        self._bucket = TokenBucket(self.limits.accepts_per_s, self.limits.accept_burst, clock=clock)
        self._connections: dict[RequestHandler, _Connection] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.evicted_count = 0

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def connection_count(self) -> int:
        return len(self._connections) + len(self._handshakes)

    async def serve(self) -> None:
        """Accept until cancelled. `close` is to be called afterwards."""
        limits = self.limits
        server = _Tracked(
            self,
            self._handled,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            logger=_ClientFaults(__name__),
            keepalive_timeout=limits.idle_s,
            lingering_time=1.0,
            max_line_size=limits.max_line_bytes,
            max_field_size=limits.max_field_bytes,
            max_headers=limits.max_fields,
            auto_decompress=False,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            while True:
                connection = await self._accept()
                if connection is not None:
                    task = group.create_task(self._welcome(connection, server))
                    self._handshakes.add(task)
                    task.add_done_callback(self._handshakes.discard)

    async def _accept(self) -> socket.socket | None:
        await self._bucket.acquire(float("inf"))
        loop = asyncio.get_running_loop()
        try:
            connection, _peer = await loop.sock_accept(self._socket)
        except OSError as error:
            # Out of descriptors, or the client was gone already. Either passes; spinning helps nobody.
            log.warning("A connection could not be accepted", err=error)
            await asyncio.sleep(1.0)
            return None
        if self.connection_count >= self.limits.max_connections and not self._evict_one():
            connection.close()
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    async def _welcome(self, connection: socket.socket, server: _Tracked) -> None:
        """TLS, then aiohttp. What goes wrong here is the client's business."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                connection,
                ssl=self._context(),
                ssl_handshake_timeout=self.limits.handshake_s,
                ssl_shutdown_timeout=1.0,
            )
        except OSError as error:
            log.info("TLS handshake failed", v=4, err=error)
            connection.close()

    # Bookkeeping.

    def opened(self, protocol: RequestHandler) -> None:
        self._connections[protocol] = _Connection(protocol, self._clock.monotonic())
        self._is_empty.clear()

    def closed(self, protocol: RequestHandler) -> None:
        self._connections.pop(protocol, None)
        if not self._connections:
            self._is_empty.set()

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        entry = self._connections.get(request.protocol)
        if entry is not None:
            entry.is_busy = entry.has_spoken = True
        try:
            return await self._handle(request)
        finally:
            if entry is not None:
                entry.is_busy = False
                entry.quiet_since = self._clock.monotonic()

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        limit = self.limits.max_body_bytes
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=limit
        )

    def _evict_one(self) -> bool:
        """Cut the connection that has been quiet longest; False if all are being answered."""
        quiet = [each for each in self._connections.values() if not each.is_busy]
        if not quiet:
            return False
        self._cut(min(quiet, key=lambda each: each.quiet_since))
        self.evicted_count += 1
        return True

    async def _sweep(self) -> None:
        """Cut those who take too long."""
        while True:
            await asyncio.sleep(self.limits.sweep_s)
            now = self._clock.monotonic()
            for each in list(self._connections.values()):
                limit = self.limits.idle_s if each.has_spoken else self.limits.headers_s
                if not each.is_busy and now - each.quiet_since > limit:
                    self._cut(each)

    def _cut(self, entry: _Connection) -> None:
        transport = entry.protocol.transport
        self.closed(entry.protocol)
        if transport is not None:
            transport.abort()

    def drop_idle(self) -> None:
        """Have clients connect anew, because what they proved may not hold any more."""
        for each in list(self._connections.values()):
            if each.is_busy:
                each.protocol.close()
            else:
                self._cut(each)

    async def wait_until_empty(self) -> None:
        """Return when the last client has gone."""
        await self._is_empty.wait()

    async def close(self, timeout_s: float) -> None:
        """Stop listening and let answers under way finish, within a bound."""
        self._socket.close()
        for each in list(self._connections.values()):
            each.protocol.close()
            if not each.is_busy:
                self._cut(each)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait_until_empty()
        for each in list(self._connections.values()):
            self._cut(each)
