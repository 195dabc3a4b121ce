"""One HTTP/1.1 connection: requests in, responses and streams out.

    head complete ──begin──> accepted ──body complete──> respond ──> written ──> next request
                       └──> refused ──> written ──> closed if the body was still on its way

Requests are answered in order, one at a time. Further requests wait in a bounded queue; while the
queue is full or the client does not read, the socket is not read either. An application that
answers without awaiting is called directly, without a task, which accounts for most of the
throughput of the embedded API server.

Reading continues while a response is computed or streamed, because only reading detects that the
client has disconnected.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from kubesched.base.http_server.exchange import Exchange
from kubesched.base.http_server.messages import (
    NO_PEER,
    Application,
    Headers,
    Peer,
    Refusal,
    Request,
    Response,
)
from kubesched.base.http_server.parser import RequestParser
from kubesched.base.http_server.sender import SLICE, ResponseSender
from kubesched.base.logs import get_logger

if TYPE_CHECKING:
    from kubesched.base.http_server.listener import Listener

log = get_logger(__name__)

FEED_BYTES = 8 * 1024
"""Input bytes parsed at a time. The parser cannot pause, so this bounds what one read can queue."""


class Connection(asyncio.Protocol):
    """Protocol of one accepted connection, after its TLS handshake."""

    def __init__(self, owner: Listener, application: Application) -> None:
        self._owner = owner
        self._application = application
        self._limits = owner.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._parser = RequestParser(self, owner.limits)
        self._queue: deque[Exchange] = deque()
        """Requests not answered yet; only the last one can be incomplete."""
        self._queued_bytes = 0
        self._current: Exchange | None = None
        """The request that a task is answering."""
        self._task: asyncio.Task[None] | None = None
        self._sender = ResponseSender(self._loop, owner.date, owner.limits.send_s, self.abort)
        self._linger_timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._backlog = memoryview(b"")
        """Received but not parsed yet."""
        self._is_input_over = False
        """Whether further input is dropped: after a refusal, an upgrade or EOF."""
        self._dropped_bytes = 0
        self._closes_when_idle = False
        self.peer = NO_PEER
        self._has_answered = False
        self.quiet_since = self._loop.time()
        """End of the last response, or of the handshake."""
        self._head_since: float | None = None
        """Arrival of the first byte after the last complete request."""

    # Transport callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the base class.
        self._transport = self._sender.transport = cast("asyncio.Transport", transport)
        self.peer = _peer_of(self._transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._owner.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._sender.lost()
        self._parser.close()
        self._drop_queue()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        if self._task is not None:
            # Deferred: a task cancelled before its first step would never close its stream.
            self._loop.call_soon(self._task.cancel)
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._is_input_over:
            self._drop(data)
            return
        if self._head_since is None:
            self._head_since = self._loop.time()
        if len(data) <= FEED_BYTES and not self._backlog:
            self._parse(data)
        else:
            self._backlog = memoryview(bytes(self._backlog) + data if self._backlog else data)
        self._advance()

    def _parse(self, data: bytes | memoryview) -> None:
        refusal = self._parser.feed(data)
        if refusal is not None:
            self._refuse(refusal)
        elif self._parser.is_upgraded:
            # Protocol upgrades are not supported: the request is answered as if it had not asked.
            self._is_input_over = True
            self._queue[-1].keeps_alive = False

    def eof_received(self) -> bool:
        """Half-close: answer what was received. TLS closes, as it cannot send after the alert."""
        self._is_input_over = True
        self._closes_when_idle = True
        last = self._last()
        is_owed = last is not None and last.is_complete and not last.is_streaming
        return is_owed and not self._is_tls

    def pause_writing(self) -> None:
        self._sender.pause()
        self._set_reading(False)

    def resume_writing(self) -> None:
        self._sender.resume()
        self._advance()

    # Parser callbacks.

    def head_received(self, request: Request) -> None:
        request.peer = self.peer
        request.received_at = self._head_since = self._loop.time()
        self._queue.append(Exchange(request))

    def body_received(self, part: bytes) -> None:
        size = len(part)
        if not self._owner.budget.take(size):
            raise Refusal(429, "too many request bodies are being received", retry_after_s=1)
        exchange = self._last()
        assert exchange is not None, "a body follows a head"
        exchange.add_body(part)
        self._queued_bytes += size

    def request_complete(self, *, keeps_alive: bool) -> None:
        self._head_since = None
        exchange = self._last()
        assert exchange is not None, "an end follows a head"
        exchange.keeps_alive = keeps_alive
        exchange.complete()

    def _last(self) -> Exchange | None:
        """The request that is being received, or the last one that was."""
        return self._queue[-1] if self._queue else self._current

    # Answering.

    def _advance(self) -> None:
        """Answer requests in order and parse further input, until either has to wait."""
        while True:
            while self._queue and self._task is None and not self._sender.is_paused:
                if not self._answer(self._queue[0]):
                    break
            if not self._backlog or self._is_input_over or not self._has_room():
                break
            piece, self._backlog = self._backlog[:FEED_BYTES], self._backlog[FEED_BYTES:]
            self._parse(piece)
        if self._task is None and not self._queue and self._closes_when_idle:
            if self._linger_timer is None:
                self.close()
        elif not self._is_input_over:
            self._set_reading(not self._backlog and self._has_room())

    def _has_room(self) -> bool:
        """Whether to read more input: the client reads, and its unparsed input is within bounds."""
        limits, last = self._limits, self._last()
        return (
            not self._sender.is_paused
            and len(self._queue) <= limits.max_pipelined
            and self._queued_bytes <= limits.max_body_bytes
            and (
                last is None
                or last.is_complete
                or last.is_accepted
                or last.size <= limits.max_unaccepted_bytes
            )
        )

    def _answer(self, exchange: Exchange) -> bool:
        """Take the next step with a request; False if it has to wait for its body."""
        application, request = self._application, exchange.request
        try:
            if exchange.refusal is not None:
                outcome: object = application.refuse(exchange.refusal)
            else:
                outcome = None
                if not exchange.is_begun:
                    exchange.is_begun = True
                    outcome = application.begin(request)
                    exchange.is_accepted = outcome is None
                if outcome is None:
                    if not exchange.is_complete:
                        self._invite_body(exchange)
                        return False
                    request.body = bytes(exchange.body)
                    outcome = application.respond(request)
        except (Exception, SystemExit):
            outcome = self._failure(request)
        self._queue.popleft()
        if isinstance(outcome, Response):
            if outcome.stream is None and len(outcome.body) <= SLICE:
                exchange.closes = self._is_final(exchange)
                self._sender.write(exchange, outcome)
                self._finish(exchange, outcome.status)
                return True
            outcome = _immediately(outcome)
        self._current = exchange
        self._task = self._loop.create_task(
            self._answer_slowly(exchange, cast("Awaitable[Response | None]", outcome))
        )
        return True

    async def _answer_slowly(
        self, exchange: Exchange, answering: Awaitable[Response | None]
    ) -> None:
        status = 0
        try:
            response = await self._response_to(exchange, answering)
            status = response.status
            exchange.closes = self._is_final(exchange)
            await self._sender.send(exchange, response)
        finally:
            self._task = self._current = None
            self._finish(exchange, status)
        self._advance()

    async def _response_to(
        self, exchange: Exchange, answering: Awaitable[Response | None]
    ) -> Response:
        application, request = self._application, exchange.request
        try:
            response = await answering
            if response is not None:
                return response
            exchange.is_accepted = True
            if not exchange.is_complete:
                exchange.arrival = self._loop.create_future()
                self._invite_body(exchange)
                self._advance()
                await exchange.arrival
            if exchange.refusal is not None:
                return application.refuse(exchange.refusal)
            request.body = bytes(exchange.body)
            outcome = application.respond(request)
            return outcome if isinstance(outcome, Response) else await outcome
        except (Exception, SystemExit):
            return self._failure(request)

    def _failure(self, request: Request) -> Response:
        """Outermost error handler of a request: an application error must not stop the server."""
        log.exception("A request failed", method=request.method, path=request.path)
        message = "This request caused an internal error; see the log."
        return self._application.refuse(Refusal(500, message))

    def _invite_body(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.expects_continue:
            request.expects_continue = False
            if not exchange.size:
                self._sender.write_continue()

    def _finish(self, exchange: Exchange, status: int) -> None:
        """Bookkeeping after a response; closes the connection if no request may follow."""
        self._release(exchange)
        self._has_answered = True
        self.quiet_since = self._loop.time()
        self._application.finished(exchange.request, status)
        if exchange.closes:
            self._end(exchange)

    def _is_final(self, exchange: Exchange) -> bool:
        """Whether the connection has to close after this response."""
        is_last = self._closes_when_idle and not self._queue
        return is_last or not (exchange.is_complete and exchange.keeps_alive)

    def _release(self, exchange: Exchange) -> None:
        self._owner.budget.release(exchange.size)
        self._queued_bytes -= exchange.size
        exchange.clear_body()

    def _drop_queue(self) -> None:
        """Discards requests and input that will not be answered."""
        for exchange in self._queue:
            self._release(exchange)
        self._queue.clear()
        self._backlog = memoryview(b"")
        self._is_input_over = True

    # Refusing and ending.

    def _refuse(self, refusal: Refusal) -> None:
        """Answers input that cannot be parsed, after the requests before it."""
        self._is_input_over = True
        incomplete = self._last()
        if incomplete is not None and not incomplete.is_complete:
            incomplete.fail(refusal)
            return
        exchange = Exchange(Request("GET", "", "", "", Headers(), self.peer, self._loop.time()))
        exchange.fail(refusal)
        self._queue.append(exchange)

    def _end(self, exchange: Exchange) -> None:
        """Close after the response, first discarding any input still on its way.

        Closing a socket with unread input resets the connection, and the client may lose the
        response.
        """
        self._drop_queue()
        if self._transport is None:
            return
        if exchange.is_complete and exchange.refusal is None:
            self.close()
            return
        self._set_reading(True)
        if self._linger_timer is None:
            self._linger_timer = self._loop.call_later(self._limits.linger_s, self._stop_lingering)

    def _stop_lingering(self) -> None:
        self._linger_timer = None
        self.close()

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > self._limits.max_drained_bytes:
            self.abort()

    def _set_reading(self, wanted: bool) -> None:
        if wanted is self._is_reading or self._transport is None:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # For the listener.

    @property
    def is_busy(self) -> bool:
        """Whether a response is being computed or sent."""
        is_receiving = self._current is not None and not self._current.is_complete
        return (self._task is not None and not is_receiving) or self._sender.is_paused

    def check_timeouts(self, now: float) -> None:
        """Enforce the time limits on receiving; the one on sending has a timer."""
        if self.is_busy:
            return
        limits, last = self._limits, self._last()
        if last is not None and not last.is_complete:
            if self._head_since is not None and now - self._head_since > limits.body_s:
                self._refuse(Refusal(408, "the body did not arrive in time"))
                self._advance()
        elif not self._has_answered or self._head_since is not None:
            since = self._head_since if self._has_answered else self.quiet_since
            if since is not None and now - since > limits.headers_s:
                # without a response, as Go does: a proxy might pass it to another client
                self.abort()
        elif now - self.quiet_since > limits.idle_s:
            self.abort()

    def close_when_idle(self) -> None:
        """Close after the requests received so far are answered."""
        self._closes_when_idle = True
        if self._task is None and not self._queue:
            self.close()

    def close(self) -> None:
        """Close once everything written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once. The connection counts as ended now; the transport reports it later."""
        if self._transport is not None:
            self._transport.abort()
            self._owner.closed(self)

    async def finish(self) -> None:
        """Cancel the current response and wait for its cleanup."""
        await asyncio.sleep(0)  # the task must have started, see `connection_lost`
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))


async def _immediately(response: Response) -> Response:
    return response


def _peer_of(transport: asyncio.Transport) -> Peer:
    peer = transport.get_extra_info("peername")
    address, port = (str(peer[0]), int(peer[1])) if peer else ("", 0)
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    certificate = connection.getpeercert() if connection is not None else None
    if connection is None or not certificate:
        return Peer(address, port)
    return Peer(address, port, certificate, connection.getpeercert(binary_form=True) or b"")
