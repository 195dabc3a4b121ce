"""The client-side token bucket: client-go's meaning of QPS and burst."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.clock import ManualClock
from kubesched.base.errors import DeadlineExceeded
from kubesched.base.rate_limit import TokenBucket


def bucket(qps: float, burst: int) -> tuple[TokenBucket, ManualClock]:
    clock = ManualClock()
    return TokenBucket(qps, burst, clock=clock), clock


def test_burst_is_free_and_what_follows_waits_its_turn():
    limiter, _ = bucket(10, 3)
    assert [limiter.reserve(60) for _ in range(6)] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_tokens_come_back_with_time_but_never_more_than_the_burst():
    limiter, clock = bucket(10, 3)
    for _ in range(3):
        limiter.reserve(60)
    clock.advance(0.2)
    assert [limiter.reserve(60) for _ in range(3)] == pytest.approx([0, 0, 0.1])
    clock.advance(1000)
    assert [limiter.reserve(60) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_request_that_cannot_wait_long_enough_takes_no_token():
    limiter, _ = bucket(1, 1)
    assert limiter.reserve(60) == 0
    assert limiter.reserve(0.5) == -1
    assert limiter.reserve(60) == pytest.approx(1.0)


def test_negative_rate_means_no_limit():
    limiter, _ = bucket(-1, 0)
    assert limiter.is_unlimited
    assert {limiter.reserve(0) for _ in range(1000)} == {0.0}


def test_zero_means_the_default():
    limiter, _ = bucket(0, 0)
    assert [limiter.reserve(60) for _ in range(11)] == pytest.approx([0] * 10 + [0.2])


@given(
    qps=st.floats(0.5, 1000),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 1), min_size=1, max_size=60),
)
def test_no_window_ever_sees_more_than_burst_plus_rate(qps, burst, gaps):
    limiter, clock = bucket(qps, burst)
    start = clock.monotonic()
    used_at = []
    for gap in gaps:
        clock.advance(gap)
        used_at.append(clock.monotonic() - start + limiter.reserve(1e9))
    assert used_at == sorted(used_at)
    for first in range(len(used_at)):
        for last in range(first, len(used_at)):
            window = used_at[last] - used_at[first]
            assert last - first + 1 <= burst + qps * window + 1 + 1e-6


async def test_acquire_waits_or_says_at_once_that_it_would_be_too_late():
    clock = ManualClock()
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limiter = TokenBucket(2, 1, clock=clock, sleep=sleep)
    await limiter.acquire(10)
    await limiter.acquire(10)
    assert waits == pytest.approx([0.5])
    with pytest.raises(DeadlineExceeded, match="rate limit of 2 requests/s") as caught:
        await limiter.acquire(0.1)
    assert not caught.value.sent


async def test_cancelled_wait_gives_its_token_back():
    clock = ManualClock()

    async def forever(_: float) -> None:
        await asyncio.Event().wait()

    limiter = TokenBucket(1, 1, clock=clock, sleep=forever)
    await limiter.acquire(10)
    waiting = asyncio.create_task(limiter.acquire(10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert limiter.reserve(10) == pytest.approx(1.0)


@given(
    qps=st.sampled_from([-1.0, 0.0, 0.5, 5.0, 1000.0]),
    burst=st.integers(0, 5),
    steps=st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=40),
)
def test_taking_a_token_is_reserving_one_without_a_wait(qps, burst, steps):
    clocks = ManualClock(), ManualClock()
    taken, reserved = (TokenBucket(qps, burst, clock=clock) for clock in clocks)
    for takes, seconds in steps:
        if takes:
            assert taken.take() == (reserved.reserve(0.0) == 0.0)
        for clock in clocks:
            clock.advance(seconds)
