"""Injectable clock. Only the application layer reads the system time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Wall-clock time in seconds since the epoch: for timestamps other programs read."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards: for durations, backoff and deadlines."""
        ...


class SystemClock:
    """The machine's own clocks."""

    # The functions themselves, without a method around them: scheduling one pod asks some fifty
    # times.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class BootClock(SystemClock):
    """A monotonic clock that also counts while the machine is suspended, as the clocks of other machines do."""

    @staticmethod
    def monotonic() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class ManualClock:
    """A clock that stands still until told otherwise; both readings advance together."""

    def __init__(self, start: float = 1_767_225_600.0, monotonic: float | None = None) -> None:
        """By default both readings begin at 2026-01-01T00:00:00Z."""
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
