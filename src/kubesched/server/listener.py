"""Accepting connections, with limits: however many clients come and however slowly they speak, scheduling goes on.

What a stranger can use up without proving anything, and what bounds it:

| Resource | Bound |
|---|---|
| CPU for handshakes | so many per second; who waits for one, and who comes next, is the business of `entrance` |
| connections before and after the handshake | a number each, less where few descriptors may be open; when it is reached, the address with the most connections loses the one that has been silent longest |
| time for the handshake, and until the headers are complete | seconds; then the connection is cut |
| an idle connection | seconds |
| memory for headers | a line, a field, a number of fields |
| memory for a body, and for whatever comes before an answer | some kilobytes |
| a client that does not read | seconds per piece of the answer |

Sockets are accepted here and then handed to aiohttp's protocol; its own `TCPSite` has none of these bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from kubesched.client.rate_limit import TokenBucket
from kubesched.clock import Clock
from kubesched.logs import get_logger
from kubesched.server.entrance import Entrance, Guest

log = get_logger(__name__)

ACCEPT_BURST = 500
ACCEPT_PAUSE_S = 1.0
"""After an error that does not pass by itself within a turn of the loop."""

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds; the defaults leave a probe and some scrapers more than they need."""

    max_connections: int = 256
    max_waiting: int = 512
    """Accepted, but not yet shaken hands with."""
    accepts_per_s: float = 2000.0
    handshakes_per_s: float = 100.0
    handshake_burst: int = 100
    waiting_s: float = 10.0
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

    def within(self, descriptors: int) -> Limits:
        """The same where only so many descriptors may be open: most of them are for talking to the API server."""
        share = max(descriptors // 8, 1)
        return replace(
            self,
            max_connections=min(self.max_connections, share),
            max_waiting=min(self.max_waiting, share),
        )


@dataclass(slots=True)
class _Connection:
    """A client beyond its handshake."""

    protocol: _Handler
    address: str
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


class _Handler(RequestHandler):
    """aiohttp's protocol, with a bound on what a client may send before it gets an answer, whatever it is."""

    __slots__ = ("budget", "unanswered_bytes")

    def __init__(self, manager: _Tracked, *, budget: int, **settings: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(manager, **settings)
        self.budget = budget
        self.unanswered_bytes = 0

    def data_received(self, data: bytes) -> None:
        self.unanswered_bytes += len(data)
        if self.unanswered_bytes > self.budget:
            if self.transport is not None:
                self.transport.abort()
            return
        super().data_received(data)
        for message, _payload in self._messages:
            # The story of an error holds on to what was sent, in a circle that only the collector would open: late.
            error = getattr(message, "exc", None)
            while error is not None:
                error.__traceback__ = None
                error = error.__context__


class _Tracked(web.Server):
    """aiohttp's protocol factory, telling the listener of connections."""

    def __init__(self, listener: Listener, handle: Handle, **settings: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(handle, **settings)
        self._listener = listener

    def __call__(self) -> RequestHandler:
        # Not the base class's: that one falls back to no limits at all when it does not know one of them.
        budget = 2 * self._listener.limits.max_body_bytes
        return _Handler(self, loop=self._loop, budget=budget, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, _Handler)
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
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limits = (limits or Limits()).within(descriptors)
        self._accepts = TokenBucket(self.limits.accepts_per_s, ACCEPT_BURST, clock=clock)
        self._bucket = TokenBucket(
            self.limits.handshakes_per_s, self.limits.handshake_burst, clock=clock
        )
        self._entrance = Entrance(self.limits.max_waiting, clock=clock)
        self._connections: dict[RequestHandler, _Connection] = {}
        self._handshakes: dict[asyncio.Task[None], Guest] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.evicted_count = 0

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def connection_count(self) -> int:
        """Clients beyond the entrance."""
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
            group.create_task(self._accept())
            while True:
                await self._bucket.acquire(float("inf"))
                guest = await self._entrance.next()
                if self.connection_count >= self.limits.max_connections and not self._evict_one():
                    guest.sock.close()
                    continue
                task = group.create_task(self._welcome(guest, server))
                self._handshakes[task] = guest
                task.add_done_callback(self._handshake_over)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._accepts.acquire(float("inf"))
            try:
                connection, peer = await loop.sock_accept(self._socket)
            except OSError as error:
                # Out of descriptors, or the client was gone already. Either passes; spinning helps nobody.
                log.warning("A connection could not be accepted", err=error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._entrance.admit(connection, str(peer[0]))

    async def _welcome(self, guest: Guest, server: _Tracked) -> None:
        """TLS, then aiohttp. What goes wrong here is the client's business."""
        try:
            guest.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                guest.sock,
                ssl=self._context(),
                ssl_handshake_timeout=self.limits.handshake_s,
                ssl_shutdown_timeout=1.0,
            )
        except OSError as error:
            log.info("TLS handshake failed", v=4, err=error)
            guest.sock.close()

    def _handshake_over(self, task: asyncio.Task[None]) -> None:
        guest = self._handshakes.pop(task)
        if task.cancelled():  # maybe before it began
            guest.sock.close()

    # Bookkeeping.

    def opened(self, protocol: _Handler) -> None:
        transport = protocol.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        address = str(peer[0]) if peer else ""
        self._connections[protocol] = _Connection(protocol, address, self._clock.monotonic())
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
                entry.protocol.unanswered_bytes = 0
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
        """Make room: of the address with the most connections, the quietest goes. False if all are being answered."""
        quiet: dict[str, list[tuple[float, Callable[[], object]]]] = {}
        for task, guest in self._handshakes.items():
            quiet.setdefault(guest.address, []).append((guest.since, task.cancel))
        for each in self._connections.values():
            if not each.is_busy:
                quiet.setdefault(each.address, []).append(
                    (each.quiet_since, partial(self._cut, each))
                )
        if not quiet:
            return False
        crowd = max(quiet.values(), key=lambda members: len(members))
        _since, cut = min(crowd, key=itemgetter(0))
        cut()
        self.evicted_count += 1
        return True

    async def _sweep(self) -> None:
        """Cut those who take too long."""
        while True:
            await asyncio.sleep(self.limits.sweep_s)
            now = self._clock.monotonic()
            self._entrance.dismiss_before(now - self.limits.waiting_s)
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
        self._entrance.close()
        for each in list(self._connections.values()):
            each.protocol.close()
            if not each.is_busy:
                self._cut(each)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait_until_empty()
        for each in list(self._connections.values()):
            self._cut(each)
