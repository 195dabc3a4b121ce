"""/metrics, /metrics/slis and /metrics/resources.

A page is written in slices of about a millisecond, and compressed in a thread, so that a scrape is never a pause in
scheduling.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.clock import Clock
from kubesched.metrics.registry import CONTENT_TYPE, Registry
from kubesched.server import pod_resources
from kubesched.server.answers import Answer, text
from kubesched.server.requests import PageRequest

SLICE_S: Final = 0.001
SMALLEST_TO_COMPRESS: Final = 1024
FASTEST: Final = 1


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A registry as text; DELETE starts its counters and histograms anew."""

    registry: Registry
    clock: Clock

    async def __call__(self, request: PageRequest) -> Answer:
        if request.method == "DELETE":
            self.registry.reset()
            return text("metrics reset\n")
        body = await self._render()
        headers: dict[str, str] = {}
        if request.accepts_gzip and len(body) >= SMALLEST_TO_COMPRESS:
            body = await asyncio.to_thread(gzip.compress, body, FASTEST)
            headers["Content-Encoding"] = "gzip"
        return Answer(body=body, content_type=CONTENT_TYPE, headers=headers)

    async def _render(self) -> bytes:
        now = self.clock.monotonic
        pieces: list[bytes] = []
        lines: list[str] = []
        until = now() + SLICE_S
        for family in self.registry.families():
            for write in family.writers():
                write(lines)
                if now() > until:
                    pieces.append(_text(lines))
                    await asyncio.sleep(0)
                    until = now() + SLICE_S
        pieces.append(_text(lines))
        return b"".join(pieces)


def _text(lines: list[str]) -> bytes:
    """The lines as they go on the wire; the list is empty afterwards."""
    lines.append("")
    text = "\n".join(lines).encode()
    lines.clear()
    return text


@dataclass(frozen=True, slots=True)
class ResourcesPage:
    """What pods ask for; empty on a standby, so that a cluster's pods are counted once."""

    pods: Callable[[], Iterable[Pod]]
    is_active: Callable[[], bool]

    async def __call__(self, request: PageRequest) -> Answer:
        if not self.is_active():
            return Answer(content_type=CONTENT_TYPE)
        stream: AsyncIterator[bytes] = pod_resources.page(self.pods())
        return Answer(content_type=CONTENT_TYPE, stream=stream)
