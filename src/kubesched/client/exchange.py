"""One request under way and its answer, buffered or streamed.

Responsible for buffering what has arrived and for waking the waiter; a stream also tells its connection to
stop reading while its consumer lags. Not responsible for parsing or deadlines (`connection`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from kubesched.client.transport import DEFAULT_MAX_BODY_BYTES, Request
from kubesched.errors import TransportError

STREAM_HIGH_WATER_BYTES = 1024 * 1024
"""A stream whose consumer lags by this much stops reading; TCP then slows the server down."""

RawHeaders = list[tuple[bytes, bytes]]


def headers_from_raw(raw: RawHeaders) -> dict[str, str]:
    """Lower-case names; repeated headers are joined with a comma."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name = raw_name.decode("latin-1").lower()
        value = raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class BufferedResponse:
    """An answer that has arrived completely. Headers are decoded on first access."""

    __slots__ = ("_headers", "_raw_headers", "body", "status")

    def __init__(self, status: int, raw_headers: RawHeaders, body: bytes) -> None:
        self.status = status
        self.body = body
        self._raw_headers = raw_headers
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        if self._headers is None:
            self._headers = headers_from_raw(self._raw_headers)
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
        """Nothing is left open."""


class StreamSource(Protocol):
    """The connection as its stream sees it."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abandon(self, exchange: Exchange) -> None: ...


class StreamingResponse:
    """An answer whose body is handed out while it arrives. It is its own iterator of chunks."""

    def __init__(
        self, status: int, raw_headers: RawHeaders, source: StreamSource, exchange: Exchange
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers_from_raw(raw_headers)
        self._source = source
        self._exchange = exchange
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
            self._source.abandon(self._exchange)

    def _take(self) -> bytes:
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._buffered_bytes = 0
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
            self._resume()  # the connection may go on to serve others
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Exchange:
    """One request under way and as much of its answer as has arrived."""

    __slots__ = (
        "body",
        "body_bytes",
        "deadline_at",
        "future",
        "head_due_at",
        "max_body_bytes",
        "raw_headers",
        "response_started",
        "status",
        "stream",
        "wants_stream",
    )

    def __init__(
        self,
        future: asyncio.Future[BufferedResponse | StreamingResponse],
        request: Request,
        deadline_at: float,
        head_due_at: float,
    ) -> None:
        self.future = future
        self.deadline_at = deadline_at
        self.head_due_at = head_due_at
        self.wants_stream = request.stream
        self.max_body_bytes = request.max_body_bytes
        self.raw_headers: RawHeaders = []
        self.body: list[bytes] = []
        self.body_bytes = 0
        self.status = 0
        self.response_started = False
        self.stream: StreamingResponse | None = None
