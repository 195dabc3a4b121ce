"""/metrics, /metrics/slis and /metrics/resources.

A page is sent in chunks, and the event loop is released between them; compression runs in a thread.
So a scrape does not pause scheduling, even for a long page. A family is consistent; two families of
one page may be milliseconds apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.app.server import pod_resources
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.responses import text
from kubesched.base.http_server.messages import Response
from kubesched.base.metrics.registry import CONTENT_TYPE, MetricsRegistry

LINES_PER_PIECE: Final = 500
"""About a quarter of a millisecond of work, and 50 kB."""
FASTEST: Final = 1
GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A registry as text; DELETE resets its counters and histograms."""

    registry: MetricsRegistry
    started: float = 0.0
    """Start of the process, in seconds since the epoch."""

    async def __call__(self, request: PageRequest) -> Response:
        if request.method == "DELETE":
            self.registry.reset()
            return text("metrics reset\n")
        return _streamed(page(self.registry), request, self.started)


async def page(registry: MetricsRegistry) -> AsyncGenerator[bytes, None]:
    """The registry's text in chunks; releases the event loop between them."""
    lines: list[str] = []
    for family in registry.families():
        for write in family.writers():
            write(lines)
            if len(lines) >= LINES_PER_PIECE:
                yield _text(lines)
                await asyncio.sleep(0)
    if lines:
        yield _text(lines)


async def compressed(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The chunks as one gzip stream."""
    compressor = zlib.compressobj(FASTEST, wbits=GZIP_WINDOW)
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if smaller := await asyncio.to_thread(compressor.compress, piece):
                yield smaller
    yield await asyncio.to_thread(compressor.flush)


def _streamed(
    pieces: AsyncGenerator[bytes, None], request: PageRequest, started: float
) -> Response:
    headers = {"Process-Start-Time-Unix": str(int(started))}
    if request.accepts_gzip:
        headers["Content-Encoding"] = "gzip"
        pieces = compressed(pieces)
    return Response(content_type=CONTENT_TYPE, headers=headers, stream=pieces)


def _text(lines: list[str]) -> bytes:
    """The lines as text; empties the list."""
    lines.append("")
    text = "\n".join(lines).encode()
    lines.clear()
    return text


@dataclass(frozen=True, slots=True)
class ResourcesPage:
    """Pod requests and limits; empty on a standby, so that pods are counted once per cluster."""

    pods: Callable[[], Iterable[Pod]]
    is_active: Callable[[], bool]
    started: float = 0.0

    async def __call__(self, request: PageRequest) -> Response:
        if not self.is_active():
            return _streamed(_nothing(), request, self.started)
        return _streamed(pod_resources.page(self.pods()), request, self.started)


async def _nothing() -> AsyncGenerator[bytes, None]:
    return
    yield b""
