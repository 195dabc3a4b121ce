"""Virtual time passes only while everybody waits, and there is no way out of the virtual world."""

from __future__ import annotations

import asyncio

import pytest

from kubesched.insight.state.virtual_loop import (
    EPOCH_S,
    OWNER,
    LoopClock,
    SimulationStuck,
    VirtualLoop,
    run_virtual,
)


def test_an_hour_of_waiting_is_exactly_an_hour() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, float]:
        clock = LoopClock(loop, wall_error_s=5.0)
        await asyncio.sleep(3600.0)
        return clock.monotonic(), clock.now()

    assert run_virtual(main) == (3600.0, EPOCH_S + 3605.0)


def test_timers_run_in_the_order_of_their_times() -> None:
    seen: list[int] = []

    async def main(loop: VirtualLoop) -> None:
        for delay_s in (3, 1, 2):
            loop.call_later(delay_s, seen.append, delay_s)
        await asyncio.sleep(5)

    run_virtual(main)
    assert seen == [1, 2, 3]


def test_a_freeze_makes_timers_late() -> None:
    async def main(loop: VirtualLoop) -> float:
        loop.call_later(0.5, loop.stall, 10.0)
        await asyncio.sleep(1.0)
        return loop.time()

    assert run_virtual(main) == 10.5


def test_one_process_is_frozen_while_the_others_go_on() -> None:
    async def ticks(owner: str, seen: list[tuple[str, float]], loop: VirtualLoop) -> None:
        OWNER.set(owner)
        while True:
            await asyncio.sleep(1.0)
            seen.append((owner, loop.time()))

    async def main(loop: VirtualLoop) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        tasks = [loop.create_task(ticks(owner, seen, loop)) for owner in ("a", "b")]
        loop.call_later(1.5, loop.freeze, "a")
        loop.call_later(3.5, loop.thaw, "a")
        await asyncio.sleep(4.2)
        for task in tasks:
            task.cancel()
        return seen

    assert run_virtual(main) == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("a", 3.5), ("b", 4)]


def test_a_run_can_end_while_a_process_is_frozen() -> None:
    async def sleeper() -> None:
        OWNER.set("a")
        await asyncio.sleep(100.0)

    async def main(loop: VirtualLoop) -> None:
        loop.create_task(sleeper())
        await asyncio.sleep(1.0)
        loop.freeze("a")
        await asyncio.sleep(1.0)

    run_virtual(main)


def test_a_slow_clock_reaches_its_deadlines() -> None:
    async def main(loop: VirtualLoop) -> float:
        clock = LoopClock(loop, drift=-0.01)
        deadline = clock.monotonic() + 10.0
        while (left_s := deadline - clock.monotonic()) > 0:  # noqa: ASYNC110  # what is tested
            await asyncio.sleep(left_s)
        return loop.time()

    assert run_virtual(main) == pytest.approx(10.0 / 0.99, abs=1e-4)


def test_waiting_for_ever_is_an_error() -> None:
    async def main(_loop: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuck, match="every task waits for ever"):
        run_virtual(main)


def test_spinning_for_ever_is_an_error() -> None:
    async def main(loop: VirtualLoop) -> None:
        def spin() -> None:
            loop.call_soon(spin)

        spin()
        await asyncio.sleep(1)

    with pytest.raises(SimulationStuck, match="busy without end"):
        run_virtual(main)


def test_there_is_no_network() -> None:
    async def main(_loop: VirtualLoop) -> None:
        await asyncio.open_connection("localhost", 80)

    with pytest.raises(SimulationStuck, match="no network"):
        run_virtual(main)


def test_there_are_no_threads() -> None:
    async def main(_loop: VirtualLoop) -> None:
        await asyncio.to_thread(print)

    with pytest.raises(SimulationStuck, match="no threads"):
        run_virtual(main)


def test_children_of_a_group_are_cancelled_in_one_order() -> None:
    def order() -> list[int]:
        seen: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                seen.append(number)

        async def main(_loop: VirtualLoop) -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(child(number))
                await asyncio.sleep(1)
                raise RuntimeError("the group is given up")

        with pytest.raises(ExceptionGroup):
            run_virtual(main)
        return seen

    assert order() == order()
