"""One request under way and its response, buffered or streamed.

Buffers what has arrived and wakes the waiter; a stream also tells its connection to stop reading
while its consumer lags. `connection` parses and enforces deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from kubesched.base.errors import TransportError
from kubesched.client.transport import DEFAULT_MAX_BODY_BYTES, Request

if TYPE_CHECKING:
    from kubesched.client.connection import HttpConnection

STREAM_HIGH_WATER_BYTES = 1024 * 1024
"""A stream whose consumer lags by this much stops reading; TCP then slows the server down."""
STREAM_TAKE_BYTES = 128 * 1024
"""Approximate chunk size for consumers; decoding one blocks the loop for a few milliseconds."""

_INFORMATIONAL = b"1"
"""First digit of an interim (1xx) status."""


RawHeaders = list[tuple[bytes, bytes]]


def headers_from_raw(raw: RawHeaders) -> dict[str, str]:
    """Lower-case names; repeated headers are joined with a comma."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name = raw_name.decode("latin-1").lower()
        value = raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def headers_of(received: bytes) -> dict[str, str]:
    """The headers of an accepted response, from all bytes received until its head was complete."""
    block, _, received = received.partition(b"\r\n\r\n")
    while block.lstrip(b"\r\n").partition(b" ")[2].startswith(_INFORMATIONAL):
        block, _, received = received.partition(b"\r\n\r\n")
    lines = [line.partition(b":") for line in block.lstrip(b"\r\n").split(b"\r\n")[1:]]
    return headers_from_raw([(name, value.strip(b" \t")) for name, _, value in lines])


class BufferedResponse:
    """A completely received response. Headers are decoded on first access."""

    __slots__ = ("_head", "_headers", "body", "status")

    def __init__(self, status: int, head: bytes | RawHeaders, body: bytes) -> None:
        """`head`: the headers, or the received bytes as `headers_of` takes them."""
        self.status = status
        self.body = body
        self._head = head
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        if self._headers is None:
            head = self._head
            self._headers = headers_of(head) if isinstance(head, bytes) else headers_from_raw(head)
        return self._headers

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        if len(self.body) > max_bytes:
            raise TransportError(
                f"answer of {len(self.body)} bytes exceeds the limit of {max_bytes}"
            )
        return self.body

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        if self.body:
            yield self.body

    def close(self) -> None:
        """Does nothing: no resource is open."""


class StreamingResponse:
    """A response whose body is consumed while it arrives. It is its own iterator of chunks."""

    def __init__(self, status: int, head: bytes, source: HttpConnection) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers_of(head)
        self._source = source
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: TransportError | None = None

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in self:
            size += len(chunk)
            if size > max_bytes:
                self.close()
                raise TransportError(f"streamed answer exceeds the limit of {max_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)

    def iter_chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._chunks:
                return self._take()
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            assert self._waiter is None, "a stream has one consumer"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._chunks.clear()
            self._source.abort()

    def _take(self) -> bytes:
        chunks = self._chunks
        if self._buffered_bytes <= STREAM_TAKE_BYTES or len(chunks) == 1:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
        else:
            size = count = 0
            while size < STREAM_TAKE_BYTES:
                size += len(chunks[count])
                count += 1
            data = b"".join(chunks[:count])
            del chunks[:count]
        self._buffered_bytes -= len(data)
        if self._buffered_bytes <= STREAM_TAKE_BYTES:
            self._resume()
        return data

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._source.resume_reading()

    # Called by the connection.

    def feed(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > STREAM_HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            self._source.pause_reading()
        self._wake()

    def finish(self, error: TransportError | None = None) -> None:
        if not self._ended:
            self._ended = True
            self._error = error
            self._resume()  # the connection may be reused
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


Outcome = BufferedResponse | StreamingResponse | TransportError
"""How an exchange ends."""


class Exchange:
    """One request under way and the received part of its response.

    It ends once, with a call of `done` from the event loop, or never if the connection was told to
    abandon it.
    """

    __slots__ = (
        "body",
        "body_bytes",
        "deadline_at",
        "done",
        "head",
        "head_due_at",
        "request",
        "response_started",
        "status",
        "stream",
    )

    def __init__(
        self,
        request: Request,
        done: Callable[[Exchange, Outcome], None],
        deadline_at: float,
        head_due_at: float,
    ) -> None:
        self.request = request
        self.done = done
        self.deadline_at = deadline_at
        self.head_due_at = head_due_at
        self.head = b""
        """Bytes received until the head was complete; may include the beginning of the body."""
        self.body: list[bytes] = []
        self.body_bytes = 0
        self.status = 0
        self.response_started = False
        self.stream: StreamingResponse | None = None
