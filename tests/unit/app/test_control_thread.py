"""The control thread: coroutines that cross threads, and the watchdog of the scheduling loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from kubesched.app.control_thread import ControlThread, run_on
from kubesched.base.clock import SystemClock
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.framework.interfaces import EXTENSION_POINTS, FilterPlugin, Plugin, ScorePlugin
from kubesched.scheduler import watchdog
from kubesched.scheduler.watchdog import Culprit, LoopWatchdog, find_culprit


async def test_a_coroutine_runs_on_the_other_thread_and_its_result_comes_back():
    async def where(answer):
        await asyncio.sleep(0)
        return threading.current_thread().name, answer

    async with ControlThread() as control:
        assert await control.run(lambda: where(3)) == ("control", 3)
    assert control.loop.is_closed()


async def test_an_error_comes_back():
    async def fail():
        raise LookupError("over there")

    async with ControlThread() as control:
        with pytest.raises(LookupError, match="over there"):
            await control.run(fail)


async def test_cancelling_waits_for_the_end_over_there():
    events = []
    began = threading.Event()

    async def work():
        try:
            began.set()
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            events.append("tidied up")

    async with ControlThread() as control:
        running = asyncio.ensure_future(control.run(work))
        await asyncio.to_thread(began.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert events == ["tidied up"]


async def test_cancelling_at_once_leaves_nothing_behind():
    async with ControlThread() as control:
        for _ in range(20):
            running = asyncio.ensure_future(control.run(lambda: asyncio.sleep(3600)))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


async def test_work_can_go_back_and_forth():
    here = asyncio.get_running_loop()

    async def there():
        async def back():
            return threading.current_thread() is threading.main_thread()

        return await run_on(here, back)

    async with ControlThread() as control:
        assert await control.run(there)


# The watchdog.


class Slow(FilterPlugin, ScorePlugin):
    name = "Slow"

    def __init__(self, action):
        self.action = action

    def filter(self, state, pod, node_info):
        return self._helper()

    def score(self, state, pod, node_info):
        return 0

    def _helper(self):
        return self.action()


def test_the_culprit_is_the_innermost_call_of_an_extension_point():
    results = []
    inner = Slow(lambda: results.append(find_culprit(sys._getframe())))
    Slow(lambda: inner.filter(None, None, None)).filter(None, None, None)
    inner._helper()
    assert results == [Culprit("Slow", "Filter"), Culprit("Slow", "")]
    assert find_culprit(sys._getframe()) == Culprit()


def test_every_method_of_an_extension_point_has_a_name():
    """A new method of the plugin interfaces must be named here, or the watchdog calls its point
    empty.
    """
    labels_read = {"labels_read", "labels_read_version"}
    internal = {
        "events_to_register",
        "keys_affected_by",
        "class_fields",
        "close",
        "is_idle",
    } | labels_read
    methods = {
        name
        for kind in EXTENSION_POINTS.values()
        for base in kind.__mro__
        if issubclass(base, Plugin)
        for name, member in vars(base).items()
        if callable(member) and not name.startswith("_")
    }
    assert methods - internal - set(watchdog.EXTENSION_POINTS) == set()


async def test_a_blocked_loop_is_reported_with_plugin_point_and_stack(monkeypatch, caplog):
    monkeypatch.setattr(watchdog, "PERIOD_S", 0.01)
    monkeypatch.setattr(watchdog, "STALL_S", 0.05)
    registry = MetricsRegistry()
    dog = LoopWatchdog(asyncio.get_running_loop(), registry, SystemClock())

    def counted():
        return 'plugin="Slow",extension_point="Filter"' in registry.text()

    def block_until_reported():
        while not counted():
            time.sleep(0.01)

    async with ControlThread() as control:
        watching = asyncio.ensure_future(control.run(dog.run))
        await asyncio.sleep(0)
        Slow(block_until_reported).filter(None, None, None)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
    (record, *_) = [r for r in caplog.records if "blocked" in r.getMessage()]
    text = str(record.__dict__)
    assert "Slow" in text
    assert "block_until_reported" in text


async def test_a_loop_that_never_comes_back_ends_the_process(monkeypatch):
    monkeypatch.setattr(watchdog, "STALL_S", 0.02)
    stuck = threading.Event()
    dog = LoopWatchdog(
        asyncio.get_running_loop(),
        MetricsRegistry(),
        SystemClock(),
        on_stuck=stuck.set,
        stuck_s=0.05,
    )
    async with ControlThread() as control:
        watching = asyncio.ensure_future(control.run(dog.run))
        await asyncio.sleep(0)
        assert stuck.wait(60)  # blocks this loop
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
