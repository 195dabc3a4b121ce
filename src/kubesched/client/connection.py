r"""One HTTP/1.1 connection: at most one request at a time, parsed by llhttp, nothing trusted.

Writes a request's bytes, reads its response within the limits, enforces deadlines and the flow
control of streamed responses, and reports reliably whether a failed request may have taken effect.
`pool` and `proxy` make connections; `rest` interprets responses.

Life cycle:

    idle --send--> awaiting head --headers--> reading body --end of message--> idle, or closed
      \________________ anything unexpected: the exchange fails, the connection is closed ______/

Invariants: `_exchange` is set exactly while a request is under way; a connection that saw anything
it did not expect is closed, never reused; an exchange ends at most once, after the connection has
been returned to its pool.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools

from kubesched.base.errors import DeadlineExceeded, StreamEnded, TransportError
from kubesched.client.exchange import (
    BufferedResponse,
    Exchange,
    Outcome,
    StreamingResponse,
    headers_of,
)
from kubesched.client.transport import Request

SWITCHING_PROTOCOLS = 101


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on what a peer may make us buffer or wait for."""

    header_bytes: int = 64 * 1024
    header_count: int = 128
    write_s: float = 15.0
    """Seconds for a peer to accept a request, except what fits into the socket's buffer."""


class HttpConnection(asyncio.Protocol):
    """The protocol object behind one socket (or TLS tunnel)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: str,
        limits: ConnectionLimits,
        on_idle: Callable[[HttpConnection], None],
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        """`on_idle` is called after exchanges that leave it usable, `on_lost` once at the end."""
        self.peer = peer
        self.generation = 0
        self.idle_since = 0.0
        self.is_for_stream = False
        self.is_used = False
        self.is_open = False
        self.lost: asyncio.Future[None] = loop.create_future()
        self.loop = loop
        self._limits = limits
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser  # while connected
        self._exchange: Exchange | None = None
        self._head_complete = False
        self._is_interim = False
        self._message_complete = False
        self._is_kept_alive = False
        self._has_stray_bytes = False
        self._is_write_stuck = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_at = 0.0
        self._write_timer: asyncio.TimerHandle | None = None

    # The pool's side.

    def send(
        self,
        request: Request,
        data: bytes,
        deadline_at: float,
        head_due_at: float,
        done: Callable[[Exchange, Outcome], None],
    ) -> Exchange:
        """Write a request; `done` gets the response, always later. Times are the loop's."""
        assert self._exchange is None, "connection is busy"
        assert self._transport is not None, "connection is closed"
        exchange = Exchange(request, done, deadline_at, head_due_at)
        self._exchange = exchange
        self._head_complete = False
        # A running timer that fires earlier re-arms itself, so under load no timer is created and
        # cancelled per request.
        due_at = deadline_at if deadline_at < head_due_at else head_due_at
        if self._timer is None or self._timer_due_at > due_at:
            self._arm(due_at)
        self._transport.write(data)
        return exchange

    def abandon(self, exchange: Exchange) -> None:
        """Stop waiting for this response; a half-read connection cannot be reused."""
        if self._exchange is exchange:
            self._exchange = None
            self.abort()

    def close(self) -> None:
        """Close after pending writes have been sent."""
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: TransportError) -> None:
        """Fail the current exchange and drop the connection."""
        exchange, self._exchange = self._exchange, None
        self.abort()
        if exchange is None:
            return
        if exchange.stream is not None:
            exchange.stream.finish(error)
        else:
            exchange.done(exchange, error)

    def shut_down(self, error: TransportError) -> None:
        """Fail the current exchange, if any; an idle connection is closed cleanly."""
        if self._exchange is None:
            self.close()
        else:
            self.fail(error)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def is_request_sent(self) -> bool:
        """False only if the request was certainly not sent completely, so the server cannot act."""
        return not self._is_write_stuck

    # Deadlines.

    def _arm(self, due_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_at = due_at
        self._timer = self.loop.call_at(due_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        exchange = self._exchange
        if exchange is None:
            return
        now = self.loop.time()
        if now >= exchange.deadline_at:
            self.fail(
                DeadlineExceeded(
                    f"{self.peer} did not finish its answer in time", sent=self.is_request_sent
                )
            )
        elif not self._head_complete and now >= exchange.head_due_at:
            self.fail(
                DeadlineExceeded(
                    f"{self.peer} did not begin its answer in time", sent=self.is_request_sent
                )
            )
        else:
            due_at = exchange.deadline_at
            self._arm(due_at if self._head_complete else min(due_at, exchange.head_due_at))

    def _on_write_timer(self) -> None:
        self._write_timer = None
        self.fail(DeadlineExceeded(f"{self.peer} did not accept the request in time", sent=False))

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            # A response without a request: the peer violates HTTP.
            self.abort()
            return
        if not self._head_complete:
            exchange.head = exchange.head + data if exchange.head else data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(TransportError(f"{self.peer} switched protocols without being asked"))
            return
        except httptools.HttpParserCallbackError as error:
            # Raised by our own callbacks below; the relevant error is the cause.
            cause = error.__context__
            reason = cause if isinstance(cause, TransportError) else TransportError(str(cause))
            self._fail_parsing(exchange, reason)
            return
        except httptools.HttpParserError as error:
            reason = TransportError(f"{self.peer} sent an invalid HTTP answer: {error}")
            self._fail_parsing(exchange, reason)
            return
        if self._message_complete:
            self._finish()
        elif not self._head_complete and len(exchange.head) > self._limits.header_bytes:
            self.fail(self._headers_too_large())

    def _fail_parsing(self, exchange: Exchange, error: TransportError) -> None:
        if self._message_complete:
            # The response was complete; the bytes after it are not ours.
            self._has_stray_bytes = True
            self._finish()
        elif self._exchange is exchange:
            self.fail(error)

    def eof_received(self) -> bool:
        return False  # close the transport; connection_lost decides what the end means

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        vars(self).pop("_parser", None)  # holds our methods; absent if TLS in a tunnel failed
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._cancel_write_timer()
        exchange = self._exchange
        if exchange is not None:
            if exc is None and self._is_delimited_by_close(exchange):
                self._finish()
            else:
                self.fail(self._connection_lost_error(exc))
        if not self.lost.done():
            self.lost.set_result(None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._is_write_stuck = True
        self._write_timer = self.loop.call_later(self._limits.write_s, self._on_write_timer)

    def resume_writing(self) -> None:
        self._is_write_stuck = False
        self._cancel_write_timer()

    # The parser's side. Exceptions here surface as HttpParserCallbackError from feed_data.

    def on_message_begin(self) -> None:
        if self._message_complete:
            self._has_stray_bytes = True

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or self._message_complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == SWITCHING_PROTOCOLS:
                raise TransportError(f"{self.peer} answered with unexpected status {status}")
            self._is_interim = True
            return
        # Headers are decoded on access, which most responses never need. The first count
        # may include lines of the body.
        if exchange.head.count(b"\r\n") > self._limits.header_count:
            head = exchange.head.partition(b"\r\n\r\n")[0]
            if head.count(b"\r\n") > self._limits.header_count:
                raise self._headers_too_large()
        exchange.status = status
        exchange.response_started = True
        self._head_complete = True
        if exchange.request.stream and status < 300:
            exchange.stream = StreamingResponse(status, exchange.head, self)
            exchange.done(exchange, exchange.stream)

    def on_body(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or self._message_complete:
            return
        if exchange.stream is not None:
            exchange.stream.feed(data)
            return
        exchange.body.append(data)
        exchange.body_bytes += len(data)
        if exchange.body_bytes > exchange.request.max_body_bytes:
            raise TransportError(
                f"answer from {self.peer} exceeds the limit of {exchange.request.max_body_bytes} "
                "bytes"
            )

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
        else:
            self._message_complete = True
            # Read now: by the time `feed_data` returns, the parser has moved on.
            self._is_kept_alive = self._parser.should_keep_alive()

    # Endings.

    def _finish(self) -> None:
        """The response is complete: finish the exchange, then keep or drop the connection."""
        self._message_complete = False
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self.is_open and self._is_kept_alive and not self._has_stray_bytes:
            self.is_used = True
            self._on_idle(self)
        else:
            self.close()
        # Last: the waiter may immediately send the next request over this connection.
        if exchange.stream is not None:
            exchange.stream.finish()
        else:
            body = exchange.body
            whole = body[0] if len(body) == 1 else b"".join(body)
            exchange.done(exchange, BufferedResponse(exchange.status, exchange.head, whole))

    def _is_delimited_by_close(self, exchange: Exchange) -> bool:
        """Whether closing the connection ends the body (HTTP/1.0 style)."""
        if not self._head_complete:
            return False
        return headers_of(exchange.head).keys().isdisjoint({"content-length", "transfer-encoding"})

    def _connection_lost_error(self, exc: Exception | None) -> TransportError:
        if isinstance(exc, ssl.SSLError):
            why = f"TLS failed: {exc.reason or exc}"
        elif exc is not None:
            why = str(exc) or type(exc).__name__
        else:
            why = "connection closed"
        where = "in the middle of its answer" if self._head_complete else "before answering"
        return StreamEnded(f"{self.peer} went away {where}: {why}", sent=self.is_request_sent)

    def _headers_too_large(self) -> TransportError:
        limits = self._limits
        return TransportError(
            f"{self.peer} sent more than {limits.header_count} headers or {limits.header_bytes} "
            "bytes of them"
        )
