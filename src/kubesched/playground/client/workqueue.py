"""Work queue: keys to sync, each queued at most once, in a defined order.

A key can be ready, delayed, or both:

    add ────────────► ready (arrival order) ──pop──► the controller's sync
    add_after, retry ► later (by due time)  ──due──► ready

Adding a ready key has no effect; delaying a delayed key keeps the earlier time. While a key is
being synced it is not queued, so an event that arrives meanwhile queues it again. The number of
entries is bounded by the number of distinct keys.

The queue runs nothing: `controller.Controller` owns the task that processes it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubesched.base.clock import Clock

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """Retry delay of a failing key: doubles with each failure, up to a limit."""

    initial_s: float = 0.005
    """First delay. Most failures are conflicts that the next read resolves."""

    limit_s: float = 60.0
    """Longest delay, so that keys recover within a minute after an outage."""

    def delay_s(self, failures: int) -> float:
        """The delay after this many consecutive failures (the first is 1)."""
        doublings = min(failures - 1, 40)  # beyond this every sensible initial_s is over the limit
        return float(min(self.initial_s * 2**doublings, self.limit_s))


class WorkQueue(Generic[K]):
    """De-duplicating queue with delays and per-key backoff; ordered by calls and clock."""

    def __init__(self, clock: Clock, back_off: BackOff | None = None) -> None:
        self._clock = clock
        self._back_off = back_off if back_off is not None else BackOff()
        self._ready: dict[K, float | None] = {}  # with the due time of formerly delayed keys
        self._later: list[tuple[float, int, K]] = []  # heap; entries not in _due are stale
        self._due: dict[K, tuple[float, int]] = {}
        self._failures: dict[K, int] = {}
        self._sequence = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Number of ready and delayed keys."""
        return len(self._ready) + len(self._due)

    def add(self, key: K) -> None:
        """Make this key ready."""
        if key not in self._ready:
            self._ready[key] = None
            self._changed.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Make this key ready after a delay, or at its earlier due time."""
        if delay_s <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + delay_s
        known = self._due.get(key)
        if known is not None and known[0] <= due:
            return
        self._sequence += 1
        self._due[key] = (due, self._sequence)
        heapq.heappush(self._later, (due, self._sequence, key))
        self._changed.set()

    def retry(self, key: K) -> float:
        """Delay the key by its backoff; returns the delay in seconds."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay_s = self._back_off.delay_s(failures)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the key's backoff, after success or deletion."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Number of consecutive failures of this key."""
        return self._failures.get(key, 0)

    def pop(self) -> K | None:
        """The next ready key, or None."""
        self._promote()
        if not self._ready:
            return None
        key = next(iter(self._ready))
        del self._ready[key]
        return key

    def next_due_s(self) -> float | None:
        """Seconds until a key is due: 0.0 if one is ready, None if the queue is empty."""
        self._promote()
        if self._ready:
            return 0.0
        while self._later:
            due, sequence, key = self._later[0]
            if self._due.get(key) == (due, sequence):
                return max(0.0, due - self._clock.monotonic())
            heapq.heappop(self._later)
        return None

    def lag_s(self) -> float:
        """How long the longest-waiting delayed key has been due."""
        self._promote()
        for due in self._ready.values():
            if due is not None:
                return self._clock.monotonic() - due
        return 0.0

    async def wait(self) -> None:
        """Wait until a key may be due. May return early; `pop` decides."""
        due_s = self.next_due_s()
        if due_s == 0.0:
            return
        self._changed.clear()
        if due_s is None:
            await self._changed.wait()
            return
        try:
            async with asyncio.timeout(due_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due, sequence, key = heapq.heappop(self._later)
            if self._due.get(key) == (due, sequence):
                del self._due[key]
                self._ready.setdefault(key, due)
