"""Slices: bounds the work done before other tasks on the loop run."""

from __future__ import annotations

import asyncio
from typing import Final

from kubesched.base.clock import Clock

SLICE_S: Final = 0.002
"""As long as a burst of scheduling attempts; lists of several kinds are often handled at once."""
SLICE_STEPS: Final = 256
"""Maximum steps in a slice; the only limit under virtual time, where work takes no time."""
STEPS_PER_CHECK: Final = 8
"""Steps between clock reads; reading it after every step would cost too much."""


class Slices:
    """Divides one task's work. Call `step` after each part, and `pause` if it returns True."""

    __slots__ = ("_clock", "_ends_at", "_steps")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps = 0
        self._ends_at = 0.0

    def step(self) -> bool:
        """Count a step; True if the slice is over."""
        self._steps += 1
        if self._steps % STEPS_PER_CHECK != 1:
            return self._steps >= SLICE_STEPS
        now = self._clock.monotonic()
        if self._steps == 1:
            self._ends_at = now + SLICE_S
            return False
        return now >= self._ends_at

    async def pause(self) -> None:
        """Let the other tasks run, then begin the next slice."""
        self._steps = 0
        await asyncio.sleep(0)
