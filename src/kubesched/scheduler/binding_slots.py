"""Slots for binding requests: a concurrency limit with a first-in, first-out queue.

A slot's new owner is called back, at once or when a slot is free; tasks can await one in the same
queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class BindingSlots:
    """A fixed number of slots, granted in request order."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def taken(self) -> int:
        return self._count - self._free

    def acquire(self, start: Callable[[], None]) -> None:
        """Call `start` once it has a slot, possibly now. It must not fail, and must `release`."""
        if self._free:
            self._free -= 1
            start()
        else:
            self._waiting.append(start)

    def release(self) -> None:
        """Return a slot; the next in the queue gets it before this call returns."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Await a slot and hold it while the body runs."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def start() -> None:
            if turn.cancelled():
                self.release()
            else:
                turn.set_result(None)

        self.acquire(start)
        try:
            await turn
        except asyncio.CancelledError:
            # Cancelled after the slot was granted, but before this task ran again.
            if not turn.cancelled():
                self.release()
            raise
        try:
            yield
        finally:
            self.release()
