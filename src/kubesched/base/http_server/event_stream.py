"""Server-sent events: a response that stays open and sends events as they occur.

    async def changes():
        async for change in source:
            yield Event(json.dumps(change), id=str(change.version))

    return event_stream(changes())

A browser's `EventSource` reconnects by itself and sends the id of the last event as
`Last-Event-ID`. An idle stream sends a comment from time to time, so that proxies keep the
connection and a disconnected client is detected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from kubesched.base.http_server.messages import Response

CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEARTBEAT_S = 15.0
_HEARTBEAT = b":\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `data` may have several lines."""

    data: str
    name: str = ""
    """Event type for `addEventListener`; empty means `message`."""
    id: str = ""
    retry_ms: int | None = None
    """Delay before the browser reconnects."""

    def encode(self) -> bytes:
        lines = []
        if self.name:
            lines.append(f"event: {_one_line(self.name)}")
        if self.id:
            lines.append(f"id: {_one_line(self.id)}")
        if self.retry_ms is not None:
            lines.append(f"retry: {self.retry_ms}")
        # The format ends lines at CR, LF and CRLF alike.
        text = self.data.replace("\r\n", "\n").replace("\r", "\n")
        lines += [f"data: {line}" for line in text.split("\n")]
        return ("\n".join(lines) + "\n\n").encode()


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def event_stream(
    events: AsyncGenerator[Event, None], *, heartbeat_s: float = HEARTBEAT_S
) -> Response:
    """A response that streams the events; closes the generator when the client disconnects."""
    return Response(
        content_type=CONTENT_TYPE,
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        stream=_encoded(events, heartbeat_s),
    )


async def _encoded(
    events: AsyncGenerator[Event, None], heartbeat_s: float
) -> AsyncGenerator[bytes, None]:
    yield _HEARTBEAT  # the response head reaches the client before the first event
    async with contextlib.aclosing(events):
        following: asyncio.Task[Event | None] | None = None
        try:
            while True:
                following = following or asyncio.create_task(_next(events))
                done, _ = await asyncio.wait((following,), timeout=heartbeat_s)
                if not done:
                    yield _HEARTBEAT
                    continue
                event, following = following.result(), None
                if event is None:
                    return
                yield event.encode()
        finally:
            if following is not None:
                following.cancel()
                await asyncio.wait((following,))


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)
