"""Long work in slices: by time, and by steps where time stands still."""

import asyncio

from kubesched.base.clock import ManualClock
from kubesched.client.informers.slices import SLICE_S, SLICE_STEPS, STEPS_PER_CHECK, Slices


def steps_in_slice(slices, clock, step_s):
    for count in range(1, 10 * SLICE_STEPS):
        clock.advance(step_s)
        if slices.step():
            return count
    raise AssertionError("the slice never ends")


def test_a_slice_ends_after_its_time_or_its_steps():
    clock = ManualClock()
    slices = Slices(clock)
    assert steps_in_slice(slices, clock, 0.0) == SLICE_STEPS
    asyncio.run(slices.pause())
    assert steps_in_slice(slices, clock, SLICE_S / 20) <= 20 + STEPS_PER_CHECK
    asyncio.run(slices.pause())
    assert steps_in_slice(slices, clock, 1.0) == STEPS_PER_CHECK + 1
