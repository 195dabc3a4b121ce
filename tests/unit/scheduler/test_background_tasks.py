"""Work that outlives its attempt: it is done, in bounded numbers, and nothing that happens to it is
lost.
"""

from __future__ import annotations

import asyncio
import contextlib

from kubesched.scheduler.background import BackgroundTasks


@contextlib.asynccontextmanager
async def running(tasks: BackgroundTasks):
    owner = asyncio.create_task(tasks.run())
    try:
        yield
    finally:
        owner.cancel()
        await asyncio.wait([owner])


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_work_handed_in_before_the_start_is_done_after_it() -> None:
    tasks, done = BackgroundTasks(), []

    async def work() -> None:
        done.append(1)

    tasks.spawn(work(), "early")
    await turns()
    assert done == []
    async with running(tasks):
        await turns()
        assert done == [1]
    assert len(tasks) == 0


async def test_a_few_at_a_time_in_order() -> None:
    tasks, started, gate = BackgroundTasks(at_once=2), [], asyncio.Event()

    async def work(number: int) -> None:
        started.append(number)
        await gate.wait()

    async with running(tasks):
        for number in range(5):
            tasks.spawn(work(number), "numbered")
        await turns()
        assert started == [0, 1]
        assert len(tasks) == 5
        gate.set()
        await turns(20)
        assert started == [0, 1, 2, 3, 4]
        assert len(tasks) == 0


async def test_a_failure_is_logged_with_its_purpose_and_stops_no_other(caplog) -> None:
    tasks, done = BackgroundTasks(at_once=1), []

    async def fail() -> None:
        raise ValueError("broken")

    async def work() -> None:
        done.append(1)

    async with running(tasks):
        tasks.spawn(fail(), "preemption for pod default/p")
        tasks.spawn(work(), "other")
        await turns(10)
    assert done == [1]
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert record.values["work"] == "preemption for pod default/p"
    assert "broken" in str(record.values["err"])


async def test_shutting_down_calls_off_what_runs_and_drops_what_waits() -> None:
    tasks, seen = BackgroundTasks(at_once=1), []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(name)

    async with running(tasks):
        tasks.spawn(work("running"), "")
        tasks.spawn(work("waiting"), "")
        await turns()
    assert seen == ["running"], "what never began has nothing to undo"
    assert len(tasks) == 0


async def test_nothing_is_begun_during_or_after_the_end() -> None:
    tasks, begun = BackgroundTasks(), []

    async def more() -> None:
        begun.append("more")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.spawn(more(), "asked for while being called off")

    async with running(tasks):
        tasks.spawn(work(), "")
        await turns()
    tasks.spawn(more(), "asked for too late")
    await turns()
    assert begun == []
    assert len(tasks) == 0


async def test_draining_waits_for_what_runs_within_a_bound() -> None:
    tasks, gate = BackgroundTasks(), asyncio.Event()
    async with running(tasks):
        tasks.spawn(_wait(gate), "")
        await turns()
        await tasks.drain(0)
        assert len(tasks) == 1, "not done, and the time is up"
        draining = asyncio.create_task(tasks.drain(60))
        gate.set()
        await draining
        assert len(tasks) == 0


async def _wait(gate: asyncio.Event) -> None:
    await gate.wait()


async def test_work_that_is_called_off_before_its_first_step_is_closed() -> None:
    """Left to the garbage collector it would warn that it was never awaited, and warnings are
    errors here.
    """
    tasks, begun = BackgroundTasks(), []

    async def work() -> None:
        begun.append("work")

    waiting = work()
    async with running(tasks):
        await turns()
        tasks.spawn(waiting, "")
        for task in tasks._running:
            task.cancel()
        await turns()
    assert begun == []
    assert waiting.cr_frame is None
