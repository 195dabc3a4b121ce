"""Injectable clock. Only the application layer reads the system time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def now(self) -> float:
        """Wall-clock time in seconds since the epoch, for timestamps that other programs read."""
        ...

    def monotonic(self) -> float:
        """Monotonic time in seconds, for durations, backoff and deadlines."""
        ...


class SystemClock:
    """The system's clocks."""

    # Direct references without a wrapper method: scheduling one pod reads the clock about 50 times.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class BootClock(SystemClock):
    """A monotonic clock that also counts during suspend, as clocks of other machines do."""

    @staticmethod
    def monotonic() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class ManualClock:
    """A clock that advances only on request; both readings advance together."""

    def __init__(self, start: float = 1_767_225_600.0, monotonic: float | None = None) -> None:
        """By default both readings start at 2026-01-01T00:00:00Z."""
        self._now = start
        self._monotonic = start if monotonic is None else monotonic

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not run backwards"
        self._now += seconds
        self._monotonic += seconds
