"""An event loop whose time passes only while everybody waits: hours of waiting cost milliseconds,
and nothing races.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class _Selector(selectors.SelectSelector):
    """Instead of sleeping, moves the loop's time forward."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None):
        if timeout is None:
            raise RuntimeError("every task waits for ever")
        self.loop.elapsed_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Plain asyncio in virtual time."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.elapsed_s


class LoopClock:
    """The clock of one machine: virtual time, a wall clock that may be wrong, an arbitrary
    monotonic origin.
    """

    def __init__(self, *, wall_error_s: float = 0.0, origin_s: float = 1000.0) -> None:
        self.wall_error_s = wall_error_s
        self._origin_s = origin_s

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time() + self.wall_error_s

    def monotonic(self) -> float:
        return self._origin_s + asyncio.get_running_loop().time()


@pytest.fixture
def in_virtual_time() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run an async function in a virtual loop of its own."""

    def run(main: Callable[[], Awaitable[Any]]) -> Any:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())

    return run


@pytest.fixture
def make_clock() -> type[LoopClock]:
    return LoopClock
