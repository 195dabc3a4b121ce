"""Slots for binding requests: how many may be under way at a time, and in which order the others follow.

Whoever gets a slot is called back, at once or when one is free; tasks may await their turn in the
same line.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class BindingSlots:
    """A number of slots, given out in the order in which they were asked for."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Callable[[], None]] = deque()

    def acquire(self, start: Callable[[], None]) -> None:
        """Call `start` once it has a slot, which may be now.

        It must neither fail nor forget `release`.
        """
        if self._free:
            self._free -= 1
            start()
        else:
            self._waiting.append(start)

    def release(self) -> None:
        """Give a slot back; the next in line gets it before this returns."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Await a slot and hold it for as long as the body runs."""
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
            # Cancelled after the slot was given, but before this task ran again.
            if not turn.cancelled():
                self.release()
            raise
        try:
            yield
        finally:
            self.release()
