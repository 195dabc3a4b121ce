"""An event loop in virtual time: no sockets, no threads; time advances only while every task waits.

Order is a function of the program alone. Handles run in the order asyncio queued them; tasks hash by their number
instead of their address, because task groups keep their children in sets and cancel them in iteration order; the
garbage collector is off, because when it runs it decides when abandoned generators are closed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar, cast

from kubesched.errors import KubeschedError

T = TypeVar("T")

EPOCH_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
MAX_ROUNDS_AT_ONE_INSTANT = 20_000
"""Rounds of the loop without time passing before a run counts as stuck in a busy loop."""


class SimulationStuck(KubeschedError):
    """The simulation is stuck: every task waits for ever, or one never waits."""


class NumberedTask(asyncio.Task[Any]):
    """A task that hashes by its number: sets of tasks iterate alike in every process."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **settings: Any) -> None:  # noqa: ANN401  # asyncio's own keywords
        self._number = number
        super().__init__(coro, **settings)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Jump:
    """Replaces the selector: instead of sleeping, advances the time to the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.rounds = 0

    def select(self, timeout: float | None = None) -> list[object]:
        self._loop.safe_point()
        if timeout is None:
            raise SimulationStuck("every task waits for ever")
        if timeout > 0:
            self.rounds = 0
            self._loop.pass_time()
        else:
            self.rounds += 1
            if self.rounds > MAX_ROUNDS_AT_ONE_INSTANT:
                raise SimulationStuck(f"busy without end at {self._loop.time():.6f} s")
        return []

    def close(self) -> None:
        """A selector can be closed; there is nothing to close here."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Plain asyncio in virtual time, starting at zero."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jump(self)
        self._elapsed_s = 0.0
        self._task_count = 0
        self.before_time_passes: Callable[[], None] = lambda: None
        """Called whenever nothing is left to do at this instant. What it raises ends the run."""
        self.safe_point: Callable[[], None] = lambda: None
        """Called between two rounds, when no task or callback runs. What it raises ends the run."""
        self._broken: BaseException | None = None
        self.set_exception_handler(self._note_broken)
        # typeshed's factory is generic in a way that no method can be.
        self.set_task_factory(cast("Any", self._new_task))

    def time(self) -> float:
        return self._elapsed_s

    def _note_broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback that raises ends the run, instead of being logged."""
        if "handle" in context and self._broken is None:
            self._broken = context.get("exception")

    def pass_time(self) -> None:
        """Go to the next timer."""
        if self._broken is not None:
            raise SimulationStuck(f"a callback broke: {self._broken!r}") from self._broken
        self.before_time_passes()
        self._elapsed_s = max(self._elapsed_s, self._scheduled[0].when())  # type: ignore[attr-defined]  # asyncio's heap of timers

    def begin_instant(self) -> None:
        """What spun so far is forgiven."""
        self._selector.rounds = 0

    def stall(self, seconds: float) -> None:
        """Let time pass without running a task, as when a machine freezes."""
        assert seconds >= 0, "time does not run backwards"
        self._elapsed_s += seconds

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        **settings: Any,  # noqa: ANN401  # asyncio's own keywords
    ) -> NumberedTask:
        self._task_count += 1
        return NumberedTask(self._task_count, coro, loop=loop, **settings)

    # The parts of an event loop that need I/O.

    def _process_events(self, event_list: list[object]) -> None:
        """There are no events from outside."""

    def _write_to_self(self) -> None:
        """There is no other thread that would have to wake this one."""

    def run_in_executor(self, *arguments: object) -> NoReturn:
        raise SimulationStuck(f"there are no threads here: {arguments}")

    async def getaddrinfo(self, *arguments: object, **settings: object) -> NoReturn:
        raise SimulationStuck(f"there is no network here: {arguments} {settings}")


class LoopClock:
    """The clock of one machine: monotonic with the loop, and a wall clock that may be wrong."""

    def __init__(self, loop: VirtualLoop, *, wall_error_s: float = 0.0) -> None:
        self._loop = loop
        self.wall_error_s = wall_error_s

    def now(self) -> float:
        return EPOCH_S + self._loop.time() + self.wall_error_s

    def monotonic(self) -> float:
        return self._loop.time()


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function in a virtual loop of its own, to its end."""
    gc.collect()
    gc.freeze()  # existing objects are not traversed again: runs are short, and there are thousands
    was_enabled = gc.isenabled()
    gc.disable()
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.before_time_passes = loop.safe_point = lambda: None
        _finish(loop)
        if was_enabled:
            gc.enable()


def _finish(loop: VirtualLoop) -> None:
    """Cancel all tasks, including those started during cancellation; then close the loop."""
    try:
        while left := sorted(asyncio.all_tasks(loop), key=hash):
            loop.begin_instant()
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
            for task in left:
                if not task.cancelled():
                    task.exception()  # retrieved: reported during the run, or a consequence of its end
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
