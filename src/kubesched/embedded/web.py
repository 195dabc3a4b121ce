"""The API server on a TLS socket, carried by aiohttp.

Responsible for bytes and for who is speaking (bearer token or client certificate); everything else is `ApiServer`.
A client that does not read its watch is cut off when its socket has been full for `SEND_TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from kubesched.embedded.exchange import MAX_BODY_BYTES, ApiRequest, ApiResponse
from kubesched.embedded.server import ApiServer, failure
from kubesched.errors import RequestEntityTooLarge, Unauthorized

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 60.0
_KEEP_ALIVE_S = (
    3600.0  # clients hold pools of idle connections; closing one under them costs a failed request
)
_SHUTDOWN_S = 1.0


class WebServer:
    """Listens on one loopback address until stopped."""

    def __init__(
        self,
        server: ApiServer,
        *,
        token: str,
        tls: ssl.SSLContext | None,
        trusts_certificates: bool,
    ) -> None:
        self._server = server
        self._bearer = f"Bearer {token}".encode()
        self._tls = tls
        self._trusts_certificates = trusts_certificates
        self._low_level: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes any free one, `port` then says which."""
        self._low_level = web.Server(
            self._handle,
            request_factory=_request_factory,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )
        self._runner = web.ServerRunner(self._low_level, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and hang up on everybody."""
        if self._runner is None or self._low_level is None:
            return
        transports = [each.transport for each in self._low_level.connections]
        await self._runner.cleanup()
        self._runner = None
        # A TLS connection closed politely waits for its peer; a peer that is gone would keep the socket for good.
        for transport in transports:
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self._authenticate(request)
        if user is None:
            return _plain(failure(Unauthorized("Unauthorized")))
        if (request.content_length or 0) > MAX_BODY_BYTES:
            return _plain(failure(_too_large()))
        try:
            body = await request.read() if request.can_read_body else b""
        except web.HTTPRequestEntityTooLarge:
            return _plain(failure(_too_large()))
        url = request.rel_url
        response = await self._server.handle(
            ApiRequest(request.method, url.path, url.raw_query_string, request.headers, body, user)
        )
        if response.stream is None:
            return _plain(response)
        return await self._send_stream(request, response)

    def _authenticate(self, request: web.BaseRequest) -> str | None:
        header = request.headers.get("Authorization")
        if header is not None:
            return (
                "kubernetes-admin" if hmac.compare_digest(header.encode(), self._bearer) else None
            )
        if self._trusts_certificates and request.transport is not None:
            # The TLS layer has verified the chain against our own authority; only the name is left to read.
            certificate = request.transport.get_extra_info("peercert")
            if certificate:
                return _common_name(certificate)
        return None

    async def _send_stream(
        self, request: web.BaseRequest, response: ApiResponse
    ) -> web.StreamResponse:
        stream = response.stream
        assert stream is not None
        answer = web.StreamResponse(
            status=response.status, headers={"Content-Type": response.content_type}
        )
        answer.enable_chunked_encoding()
        try:
            await answer.prepare(request)
            async for chunk in stream:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await answer.write(chunk)
            await answer.write_eof()
        except (ConnectionError, TimeoutError) as error:
            logger.debug("watch %s ended: %s", request.rel_url.path, error or type(error).__name__)
            if request.transport is not None:
                request.transport.abort()
        finally:
            stream.close()
        return answer


def _request_factory(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )


def _too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


def _plain(response: ApiResponse) -> web.Response:
    headers = {"Content-Type": response.content_type}
    if response.headers:
        headers.update(response.headers)
    return web.Response(status=response.status, body=response.body, headers=headers)


def _common_name(certificate: dict[str, Any]) -> str | None:
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
