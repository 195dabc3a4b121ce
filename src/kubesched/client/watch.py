"""A watch: newline-delimited JSON, decoded into typed events as it arrives.

Splits the byte stream into lines, decodes them, and raises an ERROR event as its exception. An
event whose object cannot be decoded is logged and skipped. `reflector` restarts watches that ended.

Invariants: events are returned in order of arrival, and all of them before the error that followed
them; chunk boundaries make no difference; a stream that ends in the middle of a line is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from kubesched.api import codec
from kubesched.api.codec import DECODE_ERRORS, MalformedObject
from kubesched.api.watch import MalformedContent, WatchDecoder, WatchEvent
from kubesched.base.errors import ApiError, StreamEnded, TransportError
from kubesched.base.logs import get_logger
from kubesched.client.transport import Response

T = TypeVar("T")

log = get_logger(__name__)

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Far above anything an API server sends; etcd limits objects to 1.5 MB."""


def log_malformed(error: MalformedObject) -> None:
    """Skip an object that cannot be decoded: dropping one is better than losing the watch."""
    log.error("Object from the API server makes no sense and is ignored", error)


class EventStream(Generic[T]):
    """Decodes bytes into events; `error` ends the stream, after all events before it."""

    def __init__(self, record: type[T]) -> None:
        self._decode_lines = codec.decoder(WatchEvent[record]).decode_lines  # type: ignore[valid-type]  # a run-time value
        # Unbound here so that callers may be generic over less than `Record`.
        self._decode_line: Callable[[bytes], WatchEvent[T]] = WatchDecoder(
            cast("Any", record)
        ).decode
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self.error: ApiError | TransportError | None = None

    def feed(self, chunk: bytes) -> list[WatchEvent[T]]:
        """The events completed by this chunk; none after an error."""
        if self.error is not None:
            return []
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._keep(chunk)
            return []
        lines = chunk if end == len(chunk) else chunk[:end]
        if self._partial:
            self._partial.append(lines)
            lines = b"".join(self._partial)
            self._partial.clear()
            self._partial_bytes = 0
        if end < len(chunk):
            self._keep(chunk[end:])
        try:
            return self._decode_lines(lines)
        except DECODE_ERRORS:
            return self._decode_one_by_one(lines)

    def finish(self) -> None:
        """The stream has ended; sets `error` if that was in the middle of a line."""
        if self.error is None and self._partial_bytes and b"".join(self._partial).strip():
            self.error = StreamEnded("watch ended in the middle of an event")

    def _keep(self, part: bytes) -> None:
        self._partial.append(part)
        self._partial_bytes += len(part)
        if self._partial_bytes > MAX_LINE_BYTES:
            self.error = TransportError(f"watch event exceeds the limit of {MAX_LINE_BYTES} bytes")

    def _decode_one_by_one(self, lines: bytes) -> list[WatchEvent[T]]:
        """Find the event that is not an ordinary one: usually the server's own ERROR."""
        events: list[WatchEvent[T]] = []
        for line in lines.split(b"\n"):
            if not line.strip():
                continue
            try:
                events.append(self._decode_line(line))
            except MalformedContent as error:
                log_malformed(error)
            except MalformedObject as error:
                self.error = TransportError(f"watch event cannot be understood: {error}")
                break
            except ApiError as error:
                self.error = error
                break
        return events


class Watch(Generic[T]):
    """An open watch: `async with client.watch(...) as watch: async for event in watch: ...`."""

    def __init__(self, record: type[T], start: Callable[[], Awaitable[Response]]) -> None:
        """`start` sends the request; it raises the server's or the transport's error."""
        self._stream: EventStream[T] = EventStream(record)
        self._start = start
        self._response: Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> Watch[T]:
        self._response = await self._start()
        self._chunks = self._response.iter_chunks()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()

    async def next_batch(self) -> list[WatchEvent[T]]:
        """The events that have arrived, waiting for at least one; empty if the server ended it.

        Raises `ApiError` for an ERROR event (often `Gone`) and `TransportError` for a broken
        stream.
        """
        assert self._chunks is not None, "a watch must be entered before it is read"
        stream = self._stream
        while stream.error is None:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                stream.finish()
                if stream.error is None:
                    return []
                break
            if events := stream.feed(chunk):
                return events
        raise stream.error

    async def __aiter__(self) -> AsyncIterator[WatchEvent[T]]:
        while events := await self.next_batch():
            for event in events:
                yield event
