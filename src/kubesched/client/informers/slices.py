"""Slices: how much of a long piece of work is done before other tasks on the loop get their turn."""

from __future__ import annotations

import asyncio
from typing import Final

from kubesched.base.clock import Clock

SLICE_S: Final = 0.002
"""As long as a burst of scheduling attempts. Lists of several kinds are often handled at the same
time.
"""
SLICE_STEPS: Final = 256
"""Steps in a slice at most. Under virtual time, where work takes no time, this is the only limit.
"""
STEPS_PER_CHECK: Final = 8
"""Reading the clock after every step would cost more than it tells."""


class Slices:
    """Divides one task's work. Call `step` after each small part, and `pause` when it says so."""

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
