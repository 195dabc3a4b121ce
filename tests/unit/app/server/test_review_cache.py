"""Remembered reviews: one question per subject at a time, bounded, failures not kept."""

import asyncio

import pytest

from kubesched.app.server.review_cache import ReviewCache
from kubesched.base.errors import ServerError, TooManyRequests


class Oracle:
    def __init__(self):
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = None

    async def __call__(self):
        self.asked += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return f"answer {self.asked}"


@pytest.fixture
def oracle():
    return Oracle()


def cache_of(clock, **settings):
    return ReviewCache(lambda _answer: 10.0, clock=clock, **settings)


async def test_an_answer_is_used_until_it_is_too_old(clock, oracle):
    cache = cache_of(clock)
    assert await cache.get("a", oracle) == "answer 1"
    clock.advance(9.9)
    assert await cache.get("a", oracle) == "answer 1"
    clock.advance(0.2)
    assert await cache.get("a", oracle) == "answer 2"


async def test_those_who_ask_meanwhile_share_the_question(clock, oracle):
    cache = cache_of(clock)
    oracle.gate.clear()
    asking = [asyncio.ensure_future(cache.get("a", oracle)) for _ in range(5)]
    await asyncio.sleep(0)
    oracle.gate.set()
    assert await asyncio.gather(*asking) == ["answer 1"] * 5
    assert oracle.asked == 1


async def test_a_failure_reaches_everybody_who_waits_and_is_not_kept(clock, oracle):
    cache = cache_of(clock)
    oracle.error = ServerError("down")
    oracle.gate.clear()
    asking = [asyncio.ensure_future(cache.get("a", oracle)) for _ in range(3)]
    await asyncio.sleep(0)
    oracle.gate.set()
    got = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in got] == [ServerError] * 3
    oracle.error = None
    assert await cache.get("a", oracle) == "answer 2"


async def test_a_cancelled_question_does_not_cancel_those_who_share_it(clock, oracle):
    cache = cache_of(clock)
    oracle.gate.clear()
    first = asyncio.ensure_future(cache.get("a", oracle))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(cache.get("a", oracle))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    oracle.gate.set()
    assert await second == "answer 2", "it asks by itself"
    assert await cache.get("a", oracle) == "answer 2"


async def test_open_questions_are_bounded(clock, oracle):
    cache = cache_of(clock, max_questions=2)
    oracle.gate.clear()
    asking = [asyncio.ensure_future(cache.get(name, oracle)) for name in "ab"]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await cache.get("c", oracle)
    oracle.gate.set()
    await asyncio.gather(*asking)


async def test_memory_is_bounded_and_the_longest_unused_goes_first(clock, oracle):
    cache = cache_of(clock, max_entries=2)
    for name in ("a", "b", "a", "c"):
        await cache.get(name, oracle)
    assert len(cache) == 2
    asked = oracle.asked
    await cache.get("a", oracle)
    assert oracle.asked == asked
    await cache.get("b", oracle)
    assert oracle.asked == asked + 1


async def test_an_answer_with_no_lifetime_is_not_kept(clock, oracle):
    cache = ReviewCache(lambda _answer: 0.0, clock=clock)
    await cache.get("a", oracle)
    await cache.get("a", oracle)
    assert oracle.asked == 2
