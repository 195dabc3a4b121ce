"""Connects to the API server: TCP, an optional proxy, TLS.

Enforces the time limit of the handshakes and reports failures in one sentence. `pool` counts and
keeps connections.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping

from kubesched.base.errors import ConfigError, ConnectFailed, DeadlineExceeded, FieldProblem
from kubesched.client.connection import HttpConnection
from kubesched.client.proxy import Proxy, TunnelProtocol, parse_proxy_url, proxy_from_environment
from kubesched.client.tls_context import TlsSettings, build_context
from kubesched.client.transport import ConnectionConfig


class Dialer:
    """Connects to one server."""

    def __init__(
        self, config: ConnectionConfig, *, connect_s: float, environ: Mapping[str, str] = os.environ
    ) -> None:
        if config.scheme not in ("http", "https"):
            raise ConfigError(
                [FieldProblem("server", f'scheme "{config.scheme}" is not http or https')]
            )
        self.authority = (
            f"[{config.host}]:{config.port}"
            if ":" in config.host
            else f"{config.host}:{config.port}"
        )
        self._config = config
        self._connect_s = connect_s
        self._proxy = (
            parse_proxy_url(config.proxy_url)
            if config.proxy_url
            else proxy_from_environment(config.scheme, config.host, config.port, environ)
        )

    def target_prefix(self) -> str:
        """Prefix of every request's target."""
        prefix = self._config.path_prefix
        return f"http://{self.authority}{prefix}" if self._forwards() else prefix

    def proxy_headers(self) -> dict[str, str]:
        """Headers that the proxy requires in every request."""
        if self._forwards() and self._proxy is not None:
            authorization = self._proxy.authorization()
            return {"Proxy-Authorization": authorization} if authorization else {}
        return {}

    def _forwards(self) -> bool:
        """Plain HTTP through an HTTP proxy needs no tunnel: the request line has the whole URL."""
        return self._config.scheme == "http" and self._proxy is not None

    async def connect(self, connection: HttpConnection, deadline_at: float) -> None:
        """Connect; raises `ConnectFailed`, or `DeadlineExceeded` past the request's deadline."""
        loop = asyncio.get_running_loop()
        connect_by = min(deadline_at, loop.time() + self._connect_s)
        try:
            async with asyncio.timeout_at(connect_by):
                if self._proxy is None:
                    await self._connect_directly(loop, connection)
                else:
                    await self._connect_through(loop, connection, self._proxy)
            if not connection.is_open:
                raise ConnectFailed(f"{self.authority} closed the connection at once")
        except BaseException as error:
            connection.abort()
            told = self._in_our_words(error, is_deadline=connect_by == deadline_at)
            if told is None:
                raise
            raise told from error

    async def _connect_directly(
        self, loop: asyncio.AbstractEventLoop, connection: HttpConnection
    ) -> None:
        config = self._config
        context = self._tls_context()
        transport, _ = await loop.create_connection(
            lambda: connection,
            config.host,
            config.port,
            ssl=context,
            server_hostname=(config.server_name or config.host) if context else None,
        )
        _keep_alive(transport)

    async def _connect_through(
        self, loop: asyncio.AbstractEventLoop, connection: HttpConnection, proxy: Proxy
    ) -> None:
        config = self._config
        transport, tunnel = await loop.create_connection(
            lambda: TunnelProtocol(proxy),
            proxy.host,
            proxy.port,
            ssl=build_context(TlsSettings()) if proxy.scheme == "https" else None,
        )
        try:
            _keep_alive(transport)
            context = self._tls_context()
            if context is None:
                transport.set_protocol(connection)
                connection.connection_made(transport)
                return
            await tunnel.open(config.host, config.port)
            tls = await loop.start_tls(
                transport, connection, context, server_hostname=config.server_name or config.host
            )
            if tls is None:
                raise ConnectFailed(f"{proxy} closed the connection before TLS began")
            connection.connection_made(tls)
        except BaseException:
            transport.abort()
            raise

    def _tls_context(self) -> ssl.SSLContext | None:
        if self._config.scheme == "http":
            return None
        return self._config.credentials.ssl_context() or build_context(TlsSettings())

    def _in_our_words(self, error: BaseException, *, is_deadline: bool) -> Exception | None:
        """The failure as one of our errors; None for cancellation and errors that already are."""
        if isinstance(error, TimeoutError):
            if is_deadline:
                return DeadlineExceeded(f"no connection to {self.authority} in time", sent=False)
            return ConnectFailed(f"no connection to {self.authority} in time")
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
            return ConnectFailed(f"certificate of {self.authority} cannot be trusted: {why}")
        if isinstance(error, ssl.SSLError):
            return ConnectFailed(f"TLS with {self.authority} failed: {error.reason or error}")
        if isinstance(error, OSError | UnicodeError):
            return ConnectFailed(f"cannot connect to {self.authority}: {error}")
        return None


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel detect a vanished peer within about 75 s, even on a silent watch."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
