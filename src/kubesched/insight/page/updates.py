"""The event stream: changes since an event id, at most ten messages per second.

Nothing is queued per reader. Each reader has a position in the table's log and in the ring, and a
message holds all changes since the previous one. A slow reader gets fewer and larger messages. The
server drops a reader that does not read for `send_s`. A reader that reconnects resumes from its
`Last-Event-ID` if the logs still reach that far.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.base.http_server.event_stream import Event
from kubesched.insight.page.attempts import from_ring
from kubesched.insight.page.nodes import changed_rows, device_version, identities, resources_of
from kubesched.insight.page.source import Source

PERIOD_S: Final = 0.1
RETRY_MS: Final = 1000
MAX_ROWS: Final = 2000
"""Above this many changed rows, the browser fetches all columns instead."""
MAX_DECISIONS: Final = 1000

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Place:
    """A reader's position."""

    epoch: str
    """Identifies the process; positions of another process are invalid."""
    rows: int
    """Position in the table's log."""
    nodes: int
    """Position in the table's log of changed nodes."""
    decisions: int
    """Number of the last attempt."""
    resources: int
    devices: int
    """Version of slices and claims."""

    def __str__(self) -> str:
        return (
            f"{self.epoch}.{self.rows}.{self.nodes}."
            f"{self.decisions}.{self.resources}.{self.devices}"
        )

    @classmethod
    def parse(cls, text: str) -> Place | None:
        epoch, *numbers = text.split(".")
        if len(numbers) != 5 or not all(
            number.isdecimal() and len(number) < 19 for number in numbers
        ):
            return None
        return cls(epoch, *map(int, numbers))


class Updates:
    """The changes of a live source."""

    def __init__(self, source: Source, *, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self.readers = 0
        self.follow(source)

    def follow(self, source: Source) -> None:
        """Tell of the changes of this source; readers of another one are told to reload."""
        self._source = source
        self._epoch = secrets.token_hex(4)

    def place(self) -> Place:
        """The position of an up-to-date reader; call it where the source may be read."""
        table, ring = self._source.view.assembly.table, self._source.ring
        return Place(
            self._epoch,
            table.pod_log.end,
            table.node_log.end,
            0 if ring is None else ring.count,
            len(resources_of(table)),
            device_version(self._source.view.assembly),
        )

    async def events(self, last_event_id: str) -> AsyncGenerator[Event, None]:
        """Messages after the given id; a reader without a usable id is told to reload."""
        self.readers += 1
        try:
            place = Place.parse(last_event_id)
            sizes: dict[str, int] = {}
            while True:
                if place is None or place.epoch != self._epoch:
                    place = await self._source.read(self.place)
                    yield Event("{}", name="reset", id=str(place), retry_ms=RETRY_MS)
                known, seen = place, sizes
                place, sizes, change = await self._source.read(
                    lambda known=known, seen=seen: self._change(known, seen)  # type: ignore[misc]  # bound per turn
                )
                if change:
                    yield Event(_encoder.encode(change).decode(), name="update", id=str(place))
                await asyncio.sleep(self._period_s)
        finally:
            self.readers -= 1

    def _change(
        self, known: Place, sizes: dict[str, int]
    ) -> tuple[Place, dict[str, int], dict[str, Any]]:
        assembly, ring = self._source.view.assembly, self._source.ring
        table = assembly.table
        now = self.place()
        queue = self._sizes()
        change: dict[str, Any] = {}
        if now.devices != known.devices:
            change["reload"] = True  # rare compared with pod changes; refreshes all columns
        elif now.rows != known.rows:
            rows, nodes = table.pod_log.since(known.rows), table.node_log.since(known.nodes)
            distinct = set(rows or ())
            is_new_shape = now.resources != known.resources
            if rows is None or nodes is None or len(distinct) > MAX_ROWS or is_new_shape:
                change["reload"] = True
            else:
                change["nodes"] = changed_rows(table, distinct)
                if nodes:
                    change["identities"] = identities(table, nodes)
        if ring is not None and now.decisions != known.decisions:
            first = max(known.decisions, now.decisions - MAX_DECISIONS)
            change["decisions"] = from_ring(ring, first)
            if first != known.decisions:
                change["missed"] = first - known.decisions
        if queue != sizes:
            change["queue"] = queue
        return now, queue, change

    def _sizes(self) -> dict[str, int]:
        assembly = self._source.view.assembly
        active, backoff, pool = assembly.scheduler.queue.sizes
        return {
            "active": active,
            "backoff": backoff,
            "unschedulable": pool,
            "permit": len(assembly.waiting_pods),
        }
