"""One HTTP/1.1 connection of the API server: requests in, answers and streams out.

The parser is llhttp (through httptools); what is written by hand is bounded and strict: sizes of request line, headers
and body are capped, pipelined requests are answered in order and one at a time, a peer that does not read stops being
read from, and a stream that a peer leaves unread is cut off.

    idle ──bytes──> receiving ──complete──> answering ──written──> idle
                                                └── stream ──end, cut or gone──> closed

Most answers are computed and written without a task or an await: see `ApiServer.respond`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools

from kubesched.embedded.exchange import MAX_BODY_BYTES, ApiRequest, ApiResponse
from kubesched.embedded.server import ApiServer, failure
from kubesched.errors import ApiError, BadRequest, RequestEntityTooLarge, Unauthorized

if TYPE_CHECKING:
    from kubesched.embedded.web import WebServer

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 60.0
"""How long a watcher may leave its socket full before it is cut off."""

MAX_TARGET_BYTES = 32 * 1024
MAX_HEADER_BYTES = 64 * 1024
MAX_PIPELINED = 32
"""Requests taken in ahead of the one being answered; beyond that the peer is not read from."""

ADMINISTRATOR = "kubernetes-admin"

_REASONS = {
    200: "OK",
    201: "Created",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    410: "Gone",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    504: "Gateway Timeout",
}
_STATUS_LINES = {
    code: f"HTTP/1.1 {code} {reason}\r\n".encode() for code, reason in _REASONS.items()
}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
# A body longer than this is written apart from its head instead of being copied behind it.
_JOIN_LIMIT = 64 * 1024


class HttpConnection(asyncio.Protocol):
    """Protocol of one accepted connection."""

    def __init__(self, owner: WebServer, server: ApiServer, bearer: bytes) -> None:
        self._owner = owner
        self._server = server
        self._bearer = bearer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._certificate_user: str | None = None
        self._waiting: deque[tuple[ApiRequest | ApiError, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._is_reading_paused = False
        self._ends_after_answer = False
        self.received_at: float | None = None
        """When the first byte of a request that is not complete yet arrived (loop time)."""
        self.active_at = self._loop.time()
        self._reset()

    # -- the transport's callbacks ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without being of the class.
        self._transport = cast("asyncio.Transport", transport)
        # The TLS layer has verified the chain against our own authority; only the name is left to read.
        self._certificate_user = _common_name(transport.get_extra_info("peercert"))
        self._owner.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.connections.discard(self)
        self._transport = None
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        if self.received_at is None:
            self.received_at = self.active_at
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing here speaks another protocol; the request itself has been answered like any other.
            self._ends_after_answer = True
        except httptools.HttpParserError as error:
            refusal = error.__context__ if isinstance(error.__context__, ApiError) else None
            self._refuse(refusal or BadRequest(f"the request is not HTTP: {error}"))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._pause_reading()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        self._answer_waiting()

    # -- the parser's callbacks ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reset()

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > MAX_TARGET_BYTES:
            raise RequestEntityTooLarge("the request's path and query are too long", code=414)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise RequestEntityTooLarge("the request's headers are too long", code=431)
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            raise _too_large()
        if (
            self._headers.get("expect", "").lower() == "100-continue"
            and self._transport is not None
        ):
            self._transport.write(_CONTINUE)

    def on_body(self, part: bytes) -> None:
        self._body_bytes += len(part)
        if self._body_bytes > MAX_BODY_BYTES:
            raise _too_large()
        self._body.append(part)

    def on_message_complete(self) -> None:
        self.received_at = None
        keeps_alive = self._parser.should_keep_alive()
        path, _, query = self._target.decode("latin-1").partition("?")
        user = self._user()
        if user is None:
            self._waiting.append((Unauthorized("Unauthorized"), keeps_alive))
        else:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            method = self._parser.get_method().decode("latin-1")
            path = unquote(path) if "%" in path else path
            self._waiting.append(
                (ApiRequest(method, path, query, self._headers, body, user), keeps_alive)
            )
        if len(self._waiting) >= MAX_PIPELINED:
            self._pause_reading()
        self._answer_waiting()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    def _user(self) -> str | None:
        header = self._headers.get("authorization")
        if header is None:
            return self._certificate_user
        return (
            ADMINISTRATOR if hmac.compare_digest(header.encode("latin-1"), self._bearer) else None
        )

    # -- answering ----------------------------------------------------------------------------------------------------

    def _answer_waiting(self) -> None:
        """Answer complete requests in order until one takes time or the peer has enough to read."""
        while self._waiting and self._task is None and self._writable is None:
            request, keeps_alive = self._waiting.popleft()
            if isinstance(request, ApiError):
                self._write(failure(request), "GET", keeps_alive)
                continue
            response = self._server.respond(request)
            if response.stream is not None:
                self._task = self._loop.create_task(
                    self._send_stream(request, response, keeps_alive)
                )
            elif self._server.is_settled:
                self._write(response, request.method, keeps_alive)
            else:
                self._task = self._loop.create_task(
                    self._write_settled(response, request.method, keeps_alive)
                )
        if (
            self._is_reading_paused
            and self._writable is None
            and len(self._waiting) < MAX_PIPELINED
        ):
            self._is_reading_paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _write(self, response: ApiResponse, method: str, keeps_alive: bool) -> None:
        transport = self._transport
        if transport is None:
            return
        body = response.body
        head = _head(response, len(body), keeps_alive and not self._ends_after_answer)
        if method == "HEAD":
            transport.write(head)
        elif len(body) <= _JOIN_LIMIT:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        if not keeps_alive or self._ends_after_answer:
            self.close()

    async def _write_settled(self, response: ApiResponse, method: str, keeps_alive: bool) -> None:
        try:
            response = await self._server.settle(response)
            self._write(response, method, keeps_alive)
        finally:
            self._task = None
        self._answer_waiting()

    async def _send_stream(
        self, request: ApiRequest, response: ApiResponse, keeps_alive: bool
    ) -> None:
        stream = response.stream
        assert stream is not None
        try:
            if self._transport is not None:
                self._transport.write(_stream_head(response))
            async for chunk in stream:
                if self._transport is None:
                    return
                self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                if self._writable is not None:
                    await asyncio.wait_for(asyncio.shield(self._writable), SEND_TIMEOUT_S)
            if self._transport is not None:
                self._transport.write(_LAST_CHUNK)
                if not keeps_alive:
                    self.close()
        except TimeoutError:
            logger.info("watch of %s cut off: its reader does not read", request.path)
            self.abort()
        except ApiError as error:
            # The status line is out; all that is left to say is that the stream did not end well.
            logger.warning("watch of %s ended: %s", request.path, error)
            self.abort()
        finally:
            stream.close()
            self._task = None
        self._answer_waiting()

    def _refuse(self, error: ApiError) -> None:
        """Answer what cannot be parsed any further, and hang up."""
        self._waiting.append((error, False))
        self._pause_reading()
        self._answer_waiting()

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Hang up once everything written has gone out."""
        if self._transport is not None:
            self._transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being received or answered."""
        return self._task is None and not self._waiting and self.received_at is None

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """End a stream or an answer that is still under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))


def _head(response: ApiResponse, length: int, keeps_alive: bool) -> bytes:
    lines = _STATUS_LINES.get(response.status)
    if lines is None:
        lines = b"HTTP/1.1 %d Status\r\n" % response.status
    head = lines + b"Content-Type: %b\r\nContent-Length: %d\r\n" % (
        response.content_type.encode(),
        length,
    )
    if response.headers:
        for name, value in response.headers.items():
            head += f"{name}: {value}\r\n".encode("latin-1", "replace")
    return head + (b"\r\n" if keeps_alive else b"Connection: close\r\n\r\n")


def _stream_head(response: ApiResponse) -> bytes:
    content_type = response.content_type.encode()
    return (
        _STATUS_LINES[response.status]
        + b"Content-Type: %b\r\nTransfer-Encoding: chunked\r\nCache-Control: no-cache, private\r\n\r\n"
        % content_type
    )


def _too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


def _common_name(certificate: dict[str, Any] | None) -> str | None:
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
