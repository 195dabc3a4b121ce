"""An event loop in virtual time: no sockets, no threads; time advances only while all tasks wait.

Execution order depends on the program alone. Handles run in queue order. Tasks hash by number, not
by address, because task groups keep children in sets and cancel them in iteration order. Garbage
collection is off, because its timing decides when abandoned generators are closed.

Rounds are asyncio's own. The loop stands where a selector would: asked to wait, it lets time pass.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
from asyncio import tasks
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from kubesched.base.errors import KubeschedError
from kubesched.insight.state.collector import collector_paused

T = TypeVar("T")

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""The simulated process that owns a task or callback; empty for the environment."""
SENDER: ContextVar[str] = ContextVar("sender", default="")
"""The simulated process that sent the current request; empty if there is none."""

EPOCH_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
RESOLUTION_S = 1e-6
"""Minimum time that passes while a loop waits, as on a real machine. Without it, a task with a
slightly slow clock would approach its deadline without ever reaching it.
"""
CLOCK_RESOLUTION_S = 1e-9
"""Timers due within this time run at once, as in asyncio on Linux."""
FEW_TASKS = 256
"""Number of tasks kept, finished or not, before finished ones are dropped."""
MAX_ROUNDS_AT_ONE_INSTANT = 20_000
"""Rounds without time passing after which a run counts as a busy loop."""


class SimulationStuck(KubeschedError):
    """The simulation is stuck: every task waits forever, or one never waits."""


class NumberedTask(asyncio.Task[Any]):
    """A task that hashes by its number: sets of tasks iterate alike in every process."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **settings: Any) -> None:  # noqa: ANN401  # asyncio's own keywords
        self._number = number
        context = settings.get("context")
        self.owner: str = OWNER.get() if context is None else context.get(OWNER, "")
        super().__init__(coro, **settings)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Plain asyncio in virtual time, starting at zero."""

    def __init__(self) -> None:
        super().__init__()
        self._elapsed_s = 0.0
        self._task_count = 0
        self._tasks: list[NumberedTask] = []
        """In numerical order; some are done."""
        self._tasks_looked_through = FEW_TASKS
        self._rounds = 0
        """Rounds since time last advanced."""
        self._queued: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]  # asyncio's own queue
        self._timer_cancelled_count = 0
        self._selector = self
        self._clock_resolution = CLOCK_RESOLUTION_S
        self.before_time_passes: Callable[[], None] = lambda: None
        """Called when nothing is left to do at this instant. An exception ends the run."""
        self.safe_point: Callable[[], None] = lambda: None
        """Called between two instants, when no task or callback runs. Exceptions end the run."""
        self._broken: BaseException | None = None
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        self.set_exception_handler(self._note_broken)

    def time(self) -> float:
        return self._elapsed_s

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        """Asyncio's heap, which it sometimes replaces."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # as above
        return timers

    def create_task(self, coro: Any, **settings: Any) -> NumberedTask:  # noqa: ANN401  # asyncio's own keywords
        self._task_count += 1
        task = NumberedTask(self._task_count, coro, loop=self, **settings)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_looked_through:
            self._tasks = self.unfinished_tasks()
            self._tasks_looked_through = max(FEW_TASKS, 2 * len(self._tasks))
        return task

    def unfinished_tasks(self) -> list[NumberedTask]:
        """Like `asyncio.all_tasks`, which iterates over all loops; in numerical order."""
        return [task for task in self._tasks if not task.done()]

    def held_by(self, owner: str) -> tuple[int, int]:
        """Number of unfinished tasks and of running timers of a simulated process."""
        timers = (timer for timer in self._timers if not timer.cancelled())
        return (
            sum(task.owner == owner for task in self.unfinished_tasks()),
            sum(timer._context.get(OWNER, "") == owner for timer in timers),  # type: ignore[attr-defined]  # as below
        )

    def _run_once(self) -> None:
        if self._frozen:
            self._hold_back()
        super()._run_once()  # type: ignore[misc]  # asyncio's own round

    def select(self, timeout: float | None) -> tuple[()]:
        """Called by asyncio's round to wait, like a selector; lets time pass instead."""
        if timeout is None:
            raise SimulationStuck("every task waits for ever")
        if timeout > 0:
            self._rounds = 0
            self._pass_time()
            return ()
        self._rounds += 1
        if self._rounds > MAX_ROUNDS_AT_ONE_INSTANT:
            raise SimulationStuck(f"busy without end at {self._elapsed_s:.6f} s")
        return ()

    def _process_events(self, events: tuple[()]) -> None:
        """Does nothing: there are no sockets."""

    def _drop_cancelled_timers(self) -> None:
        timers = self._timers
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]  # as asyncio does
            self._timer_cancelled_count -= 1

    def _pass_time(self) -> None:
        """Advance to the next timer."""
        self.safe_point()
        self._raise_if_broken()
        self.before_time_passes()
        self._elapsed_s = max(self._elapsed_s + RESOLUTION_S, self._timers[0].when())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do at this instant, apart from the running handle."""
        return not self._queued

    @property
    def next_timer_at(self) -> float | None:
        return self._timers[0].when() if self._timers else None

    # Freezing one process while the others continue.

    def freeze(self, owner: str) -> None:
        """Run nothing of this process from the next round until `thaw`, as after SIGSTOP."""
        self._frozen.setdefault(owner, [])

    def is_interrupted(self, owner: str) -> bool:
        """Whether this process is frozen with work that is due."""
        return any(
            not isinstance(handle, asyncio.TimerHandle) for handle in self._frozen.get(owner, ())
        )

    def thaw(self, owner: str) -> None:
        """Resume held-back work in order; overdue timers fire at once."""
        for handle in self._frozen.pop(owner, ()):
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._timers, handle)
            else:
                self._queued.append(handle)

    def _hold_back(self) -> None:
        """Set aside handles of frozen processes. Call it between two rounds."""
        queued, timers, frozen = list(self._queued), self._timers, self._frozen
        self._queued.clear()
        for handle in queued:
            held = frozen.get(handle._context.get(OWNER, ""))  # type: ignore[attr-defined]  # no public way to ask
            (self._queued if held is None else held).append(handle)
        kept: list[Any] = []
        for timer in timers:
            held = frozen.get(timer._context.get(OWNER, ""))  # type: ignore[attr-defined]  # as above
            (kept if held is None else held).append(timer)
        if len(kept) < len(timers):
            timers[:] = kept
            heapq.heapify(timers)
        self._drop_cancelled_timers()

    def begin_instant(self) -> None:
        """Reset the round count of the busy-loop check."""
        self._rounds = 0

    # Stepping from outside.

    def run_until_idle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run everything possible without advancing time: queued callbacks and due timers.

        Ends early, between two rounds, once `until` returns True. Also works inside another running
        loop (an async test, a notebook), which is suspended.
        """
        with entered(self):
            self._rounds = 0
            while not until():
                self._drop_cancelled_timers()
                timers = self._timers
                if not self._queued and not (timers and timers[0].when() <= self._elapsed_s):
                    break
                self._run_once()
        self._raise_if_broken()

    def run(self, work: Awaitable[T]) -> T:
        """Run an awaitable to its end, with all work that becomes ready; time does not advance."""

        async def awaited() -> T:
            return await work

        task = self.create_task(awaited())
        self.run_until_idle()
        if not task.done():
            task.cancel()
            self.run_until_idle()
            raise SimulationStuck("waits for what does not happen by itself")
        result: T = task.result()
        return result

    def finish(self) -> None:
        """Cancel all tasks, including those started during cancellation; then close the loop."""
        self.before_time_passes = self.safe_point = lambda: None
        for owner in list(self._frozen):
            self.thaw(owner)
        with entered(None):
            try:
                while left := self.unfinished_tasks():
                    self.begin_instant()
                    for task in left:
                        task.cancel()
                    self.run_until_complete(asyncio.wait(left))
                    for task in left:
                        if not task.cancelled():
                            task.exception()  # already reported, or a consequence of the end
                self.run_until_complete(self.shutdown_asyncgens())
            finally:
                self.close()

    def _note_broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback failed: ends the run after this instant. Tasks are reported otherwise."""
        if "handle" in context:
            self._broken = self._broken or context["exception"]

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise SimulationStuck(f"a callback broke: {broken!r}") from broken

    def __del__(self) -> None:
        """Suppress asyncio's warning about an unclosed loop; this one holds no resources."""

    def stall(self, seconds: float) -> None:
        """Advance time without running a task, as when a machine freezes."""
        assert seconds >= 0, "time does not run backwards"
        self._elapsed_s += seconds

    # The parts of an event loop that need I/O.

    def _write_to_self(self) -> None:
        """Does nothing: no other thread has to wake this one."""

    def run_in_executor(self, *arguments: object) -> NoReturn:
        raise SimulationStuck(f"there are no threads here: {arguments}")

    async def getaddrinfo(self, *arguments: object, **settings: object) -> NoReturn:
        raise SimulationStuck(f"there is no network here: {arguments} {settings}")


class LoopClock:
    """The clock of one machine: monotonic time with a drift, wall time with an error."""

    def __init__(self, loop: VirtualLoop, *, wall_error_s: float = 0.0, drift: float = 0.0) -> None:
        """`drift` is the gain of the clock in seconds per second."""
        self._loop = loop
        self.wall_error_s = wall_error_s
        self._speed = 1.0 + drift

    def now(self) -> float:
        return EPOCH_S + self.monotonic() + self.wall_error_s

    def monotonic(self) -> float:
        return self._loop._elapsed_s * self._speed  # called several thousand times per run


@contextmanager
def entered(loop: VirtualLoop | None) -> Iterator[None]:
    """Make this the thread's running loop; restores the previous loop and task afterwards."""
    outer = asyncio._get_running_loop()
    if loop is not None and outer is loop:
        raise SimulationStuck("a callback of this loop cannot run the loop")
    swap = getattr(tasks, "_swap_current_task", None)  # 3.11 keeps the current task per loop
    task = swap(outer, None) if swap is not None and outer is not None else None
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
        if swap is not None and outer is not None:
            swap(outer, task)


def clear_garbage() -> None:
    """Collect garbage of earlier runs and freeze the rest: runs are short and many.

    Do not call it while a finished run is still referenced: it would never be freed.
    """
    gc.collect()
    gc.freeze()


@collector_paused()
def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function to its end in a new virtual loop."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.finish()
