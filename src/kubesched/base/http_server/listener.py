"""Accepts connections within limits, so that no number of slow clients blocks the event loop.

Resources that an unauthenticated client can consume, and their bounds (figures in `limits`):

| Resource | Bound |
|---|---|
| CPU for handshakes | a rate; `accept_queue` chooses the next socket |
| connections, before and after the handshake | a number each, lower if descriptors are few |
| time for the handshake, the head, the body | seconds each; then cut, or a 408 for the body |
| an idle connection | seconds |
| memory for a head | request target, one header, number of headers, total |
| memory for bodies | before acceptance, per request, total over all connections |
| a client that does not read | seconds |

At the connection limit, the address with the most connections loses the one idle longest.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from operator import itemgetter

from kubesched.base.clock import Clock
from kubesched.base.http_server.accept_queue import AcceptQueue, WaitingSocket, fairness_key
from kubesched.base.http_server.connection import Connection
from kubesched.base.http_server.limits import BodyBudget, Limits
from kubesched.base.http_server.messages import Application
from kubesched.base.http_server.writer import DateHeader
from kubesched.base.logs import get_logger
from kubesched.base.rate_limit import TokenBucket

log = get_logger(__name__)

ACCEPT_BURST = 500
ACCEPT_PAUSE_S = 1.0
"""Pause after an accept error, usually a lack of descriptors."""


class Listener:
    """Serves one listening socket: run `serve` until cancelled, then `close`, or use `running`."""

    def __init__(
        self,
        sock: socket.socket,
        context: Callable[[], ssl.SSLContext] | None,
        application: Application,
        *,
        clock: Clock,
        limits: Limits | None = None,
    ) -> None:
        """`context` returns the TLS context for the next connection; None serves plain HTTP."""
        self._socket = sock
        self._socket.setblocking(False)
        self._context = context
        self._application = application
        self._clock = clock
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limits = (limits or Limits()).within(descriptors)
        self.budget = BodyBudget(self.limits.max_buffered_bytes)
        self.date = DateHeader(clock)
        self._accepts = TokenBucket(self.limits.accepts_per_s, ACCEPT_BURST, clock=clock)
        self._handshake_tokens = TokenBucket(
            self.limits.handshakes_per_s, self.limits.handshake_burst, clock=clock
        )
        self._queue = AcceptQueue(self.limits.max_waiting, clock=clock)
        self._connections: dict[Connection, None] = {}
        self._handshakes: dict[asyncio.Task[None], WaitingSocket] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def connection_count(self) -> int:
        """Connections past the accept queue, handshakes included."""
        return len(self._connections) + len(self._handshakes)

    async def serve(self) -> None:
        """Accept until cancelled. Call `close` afterwards."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(self._accept())
            while True:
                await self._handshake_tokens.acquire(float("inf"))
                waiting = await self._queue.get()
                if self.connection_count >= self.limits.max_connections and not self._evict_one():
                    waiting.sock.close()
                    continue
                task = group.create_task(self._connect(waiting))
                self._handshakes[task] = waiting
                task.add_done_callback(self._handshake_done)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._accepts.acquire(float("inf"))
            try:
                connection, peer = await loop.sock_accept(self._socket)
            except OSError as error:
                # Out of descriptors, or the client has disconnected. Retrying at once would spin.
                log.warning("A connection could not be accepted", err=error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._queue.put(connection, str(peer[0]))

    async def _connect(self, waiting: WaitingSocket) -> None:
        """Handshake, then HTTP. A failure affects only this client."""
        tls = self._context() if self._context is not None else None
        try:
            waiting.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self, self._application),
                waiting.sock,
                ssl=tls,
                ssl_handshake_timeout=self.limits.handshake_s if tls is not None else None,
                ssl_shutdown_timeout=self.limits.close_s if tls is not None else None,
            )
        except OSError as error:
            log.info("TLS handshake failed", v=4, err=error)
            waiting.sock.close()

    def _handshake_done(self, task: asyncio.Task[None]) -> None:
        waiting = self._handshakes.pop(task)
        if task.cancelled():  # possibly before its first step
            waiting.sock.close()

    # Called by connections.

    def opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        self._is_empty.clear()

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._is_empty.set()

    # Limits.

    def _evict_one(self) -> bool:
        """Close the longest idle connection of the busiest address; False if none is idle."""
        idle: dict[str, list[tuple[float, Callable[[], object]]]] = {}
        for task, waiting in self._handshakes.items():
            idle.setdefault(waiting.address, []).append((waiting.since, task.cancel))
        for connection in self._connections:
            if not connection.is_busy:
                key = fairness_key(connection.peer.address)
                entry = connection.quiet_since, connection.abort
                idle.setdefault(key, []).append(entry)
        if not idle:
            return False
        most = max(idle.values(), key=lambda members: len(members))
        _since, cut = min(most, key=itemgetter(0))
        cut()
        return True

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.limits.sweep_s)
            self._queue.drop_older(self._clock.monotonic() - self.limits.waiting_s)
            now = loop.time()
            for connection in list(self._connections):
                connection.check_timeouts(now)

    # Ending.

    def drop_idle(self) -> None:
        """Close idle connections so that clients reconnect: the client CAs have changed."""
        for connection in list(self._connections):
            if connection.is_busy:
                connection.close_when_idle()
            else:
                connection.abort()

    async def wait_until_empty(self) -> None:
        """Return when the last connection has ended."""
        await self._is_empty.wait()

    async def close(self, timeout_s: float) -> None:
        """Stop listening, let current responses finish within `timeout_s`, then abort the rest."""
        self._socket.close()
        self._queue.close()
        self.drop_idle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait_until_empty()
        for connection in list(self._connections):
            await connection.finish()
            connection.abort()
        # Aborted transports notify their protocols in a later iteration of the loop.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.wait_until_empty()


@contextlib.asynccontextmanager
async def running(listener: Listener, *, close_s: float = 1.0) -> AsyncIterator[Listener]:
    """Serve during the block; a server error ends the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(listener.serve(), name="http server")
        try:
            yield listener
        finally:
            task.cancel()
            await listener.close(close_s)
