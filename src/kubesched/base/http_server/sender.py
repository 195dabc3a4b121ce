"""The sending half of a connection: responses and streams, no faster than the client reads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kubesched.base.errors import KubeschedError
from kubesched.base.http_server import writer
from kubesched.base.http_server.exchange import Exchange
from kubesched.base.http_server.messages import ByteStream, Response
from kubesched.base.logs import get_logger

log = get_logger(__name__)

JOIN_LIMIT = 64 * 1024
"""Longer bodies are written separately from their head, to avoid a copy."""
SLICE = 256 * 1024
"""Longer bodies are written in slices, each after the client has read most of the previous one."""


class ResponseSender:
    """Writes one connection's responses; calls `abort` if the client does not read for `send_s`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        date: writer.DateHeader,
        send_s: float,
        abort: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._date = date
        self._send_s = send_s
        self._abort = abort
        self._writable: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    # Back pressure.

    @property
    def is_paused(self) -> bool:
        """Whether the transport's write buffer is full."""
        return self._writable is not None

    def pause(self) -> None:
        self._writable = self._loop.create_future()
        self._timer = self._loop.call_later(self._send_s, self._timed_out)

    def resume(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def lost(self) -> None:
        """The connection has ended: discard further output."""
        self.transport = None
        self._abort = _do_nothing  # not the connection's, to break the reference cycle
        self.resume()

    async def _drain(self) -> None:
        """Wait until the client has read enough, at most `send_s`."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def _timed_out(self) -> None:
        log.info("Connection cut: its client does not read", v=4)
        self._abort()

    # Responses.

    def write_continue(self) -> None:
        if self.transport is not None:
            self.transport.write(writer.CONTINUE)

    def write(self, exchange: Exchange, response: Response) -> None:
        """Write a whole response that is not a stream."""
        if self.transport is None:
            return
        head = self._head(exchange, response)
        body = response.body
        if exchange.request.method == "HEAD":
            self.transport.write(head)
        elif len(body) <= JOIN_LIMIT:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    async def send(self, exchange: Exchange, response: Response) -> None:
        """Send a response of any length; a stream that fails ends the connection."""
        stream = response.stream
        if stream is None:
            await self._send_body(exchange, response)
            return
        request = exchange.request
        try:
            async with contextlib.aclosing(stream):
                await self._send_stream(exchange, response, stream)
        except KubeschedError as error:
            log.warning("A stream ended early", path=request.path, err=error)
            self._abort()
        except Exception:
            # The status line was sent. Only cutting the connection can still report the failure.
            log.exception("A page broke off", method=request.method, path=request.path)
            self._abort()

    async def _send_body(self, exchange: Exchange, response: Response) -> None:
        if len(response.body) <= SLICE or exchange.request.method == "HEAD":
            self.write(exchange, response)
            await self._drain()
            return
        if self.transport is not None:
            self.transport.write(self._head(exchange, response))
        body = memoryview(response.body)
        for start in range(0, len(body), SLICE):
            if self.transport is None:
                return
            self.transport.write(body[start : start + SLICE])
            await self._drain()

    async def _send_stream(
        self, exchange: Exchange, response: Response, stream: ByteStream
    ) -> None:
        if self.transport is None:
            return
        is_chunked = not exchange.request.is_http_1_0
        if not is_chunked:
            exchange.closes = True
        self.transport.write(self._head(exchange, response))
        if exchange.request.method == "HEAD":
            return
        exchange.is_streaming = True
        async for data in stream:
            if self.transport is None:
                return
            if data:  # an empty chunk would end the body
                self.transport.write(writer.chunk(data) if is_chunked else data)
                await self._drain()
        if self.transport is not None and is_chunked:
            self.transport.write(writer.LAST_CHUNK)

    def _head(self, exchange: Exchange, response: Response) -> bytes:
        return writer.head(
            response,
            self._date.line(),
            keeps_alive=not exchange.closes,
            is_http_1_0=exchange.request.is_http_1_0,
        )


def _do_nothing() -> None:
    pass
