"""The API server on a TLS socket: listening, keeping account of connections, hanging up.

What happens on a connection is `http_connection`; what a request means is `server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from kubesched.embedded.http_connection import HttpConnection
from kubesched.embedded.server import ApiServer
from kubesched.errors import KubeschedError

BACKLOG = 1024
MAX_CONNECTIONS = 4096
REQUEST_TIMEOUT_S = 60.0
"""How long a request may take to arrive once it has begun."""
IDLE_TIMEOUT_S = 3600.0
"""Clients keep pools of idle connections; closing one under them costs a failed request."""

_SWEEP_S = 15.0


class WebServer:
    """Listens on one loopback address until stopped."""

    def __init__(self, server: ApiServer, *, token: str, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._bearer = f"Bearer {token}".encode()
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.connections: set[HttpConnection] = set()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes any free one, `port` then says which."""
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                self._connect, host, port, ssl=self._tls, backlog=BACKLOG
            )
        except OSError as error:
            raise KubeschedError(
                f"cannot listen on {host}:{port}: {error.strerror or error}"
            ) from error
        self.port = self._listener.sockets[0].getsockname()[1]
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    async def stop(self) -> None:
        """Stop listening and hang up on everybody."""
        if self._listener is None:
            return
        self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            await connection.finish()
            # A TLS connection closed politely waits for its peer; one that is gone would keep the socket for good.
            connection.abort()
        # Aborted transports tell their protocols in the next round of the loop.
        for _round in range(3):
            await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._listener.wait_closed()
        self._listener = None

    def _connect(self) -> HttpConnection:
        connection = HttpConnection(self, self._server, self._bearer)
        if len(self.connections) >= MAX_CONNECTIONS:
            asyncio.get_running_loop().call_soon(connection.abort)
        return connection

    def _sweep(self) -> None:
        """Hang up on peers that began a request and never finished it, or have been silent for very long."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.connections):
            started = connection.received_at
            if (started is not None and now - started > REQUEST_TIMEOUT_S) or (
                connection.is_idle and now - connection.active_at > IDLE_TIMEOUT_S
            ):
                connection.abort()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)
