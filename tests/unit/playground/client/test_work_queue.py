"""The work queue hands out each key once, in order, no sooner than due, and rests failing keys."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.clock import ManualClock
from kubesched.playground.client.workqueue import BackOff, WorkQueue


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> WorkQueue[str]:
    return WorkQueue(clock, BackOff(initial_s=1.0, limit_s=5.0))


def drain(queue: WorkQueue[str]) -> list[str]:
    keys = []
    while (key := queue.pop()) is not None:
        keys.append(key)
    return keys


def test_keys_come_out_once_each_in_order_of_arrival(queue):
    for key in ("b", "a", "b", "c", "a"):
        queue.add(key)
    assert drain(queue) == ["b", "a", "c"]


def test_a_key_added_while_it_is_being_synced_comes_again(queue):
    queue.add("a")
    assert queue.pop() == "a"
    queue.add("a")
    assert drain(queue) == ["a"]


def test_a_delayed_key_appears_when_it_is_due_and_not_before(queue, clock):
    queue.add_after("late", 10)
    assert (drain(queue), queue.next_due_s()) == ([], 10)
    clock.advance(9.5)
    assert (drain(queue), queue.next_due_s()) == ([], 0.5)
    clock.advance(0.5)
    assert drain(queue) == ["late"]
    assert queue.next_due_s() is None


def test_the_earlier_of_two_delays_wins(queue, clock):
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    clock.advance(3)
    assert drain(queue) == ["a"]
    clock.advance(100)
    assert drain(queue) == []


def test_no_delay_means_now(queue):
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert drain(queue) == ["a", "b"]


def test_delayed_keys_come_in_order_of_their_due_time(queue, clock):
    for key, delay in (("c", 3), ("a", 1), ("b", 2), ("also-c", 3)):
        queue.add_after(key, delay)
    clock.advance(5)
    assert drain(queue) == ["a", "b", "c", "also-c"]


def test_a_failing_key_rests_longer_each_time_up_to_the_limit(queue):
    assert [queue.retry("a") for _ in range(5)] == [1, 2, 4, 5, 5]
    queue.forget("a")
    assert queue.retry("a") == 1


def test_back_off_never_overflows():
    assert BackOff(initial_s=0.005, limit_s=60).delay_s(10_000) == 60


def test_length_counts_ready_and_waiting_keys(queue):
    queue.add("a")
    queue.add_after("b", 5)
    assert len(queue) == 2


async def test_waiting_ends_as_soon_as_a_key_arrives(queue):
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.add("a")
    assert queue.pop() == "a"


async def test_waiting_for_a_ready_key_returns_at_once(queue):
    queue.add("a")
    async with asyncio.timeout(5):
        await queue.wait()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from("abcd"), st.just(0.0)),
            st.tuples(st.just("after"), st.sampled_from("abcd"), st.floats(0.1, 10)),
            st.tuples(st.just("advance"), st.just(""), st.floats(0, 10)),
            st.tuples(st.just("pop"), st.just(""), st.just(0.0)),
        ),
        max_size=60,
    )
)
def test_the_queue_agrees_with_a_naive_one(steps):
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    ready: list[str] = []
    later: dict[str, tuple[float, int]] = {}
    for number, (kind, key, amount) in enumerate(steps):
        if kind == "add":
            queue.add(key)
            ready += [key] if key not in ready else []
        elif kind == "after":
            queue.add_after(key, amount)
            due = clock.monotonic() + amount
            if key not in later or due < later[key][0]:
                later[key] = (due, number)
        elif kind == "advance":
            clock.advance(amount)
        for due_key in sorted(later, key=later.__getitem__):
            if later[due_key][0] <= clock.monotonic():
                del later[due_key]
                ready += [due_key] if due_key not in ready else []
        if kind == "pop":
            assert queue.pop() == (ready.pop(0) if ready else None)
        waits = [due - clock.monotonic() for due, _ in later.values()]
        assert queue.next_due_s() == (0.0 if ready else min(waits, default=None))
        assert len(queue) == len(ready) + len(later)
