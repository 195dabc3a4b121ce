"""An event loop in virtual time: no sockets, no threads; time advances only while every task waits.

Order is a function of the program alone. Handles run in the order asyncio queued them; tasks hash by their number
instead of their address, because task groups keep their children in sets and cancel them in iteration order; the
garbage collector is off, because when it runs it decides when abandoned generators are closed.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar, cast

from kubesched.errors import KubeschedError

T = TypeVar("T")

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""Which simulated process a task or callback belongs to; empty for the world around them."""
SENDER: ContextVar[str] = ContextVar("sender", default="")
"""Which simulated process sent the request that is being served; empty if none is."""

EPOCH_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
RESOLUTION_S = 1e-6
"""Least time that passes while a loop waits, as on a real machine. Without it a task whose own clock is a little slow would
come ever closer to its deadline and never reach it."""
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
        if self._loop.is_partly_frozen:
            self._loop.hold_back()
            timeout = self._loop.idle_s()
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
        self._frozen: dict[str, list[asyncio.Handle]] = {}
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
        self._elapsed_s = max(self._elapsed_s + RESOLUTION_S, self._timers[0].when())

    # One process stands still while the others go on.

    def freeze(self, owner: str) -> None:
        """Run nothing that belongs to this process until `thaw`, as after SIGSTOP. Takes effect in the next round."""
        self._frozen.setdefault(owner, [])

    def thaw(self, owner: str) -> None:
        """Go on with all that was held back, in its order; overdue timers fire at once."""
        for handle in self._frozen.pop(owner, ()):
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._timers, handle)
            else:
                self._queued.append(handle)

    def thaw_all(self) -> None:
        for owner in list(self._frozen):
            self.thaw(owner)

    @property
    def is_partly_frozen(self) -> bool:
        return bool(self._frozen)

    def idle_s(self) -> float | None:
        """How long nothing is to be done; None for ever."""
        if self._queued:
            return 0.0
        timers = self._timers
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        return max(0.0, timers[0].when() - self._elapsed_s) if timers else None

    def hold_back(self) -> None:
        """Set aside what belongs to frozen processes. For the selector, between two rounds."""
        queued = list(self._queued)
        self._queued.clear()
        self._queued.extend(handle for handle in queued if not self._is_held(handle))
        timers = self._timers
        kept = [handle for handle in timers if not self._is_held(handle)]
        if len(kept) < len(timers):
            timers[:] = kept
            heapq.heapify(timers)

    def _is_held(self, handle: asyncio.Handle) -> bool:
        context = handle._context  # type: ignore[attr-defined]  # no public way to ask
        held = self._frozen.get(context.get(OWNER, ""))
        if held is None:
            return False
        held.append(handle)
        return True

    @property
    def _queued(self) -> Any:  # noqa: ANN401  # asyncio's deque of handles
        return self._ready  # type: ignore[attr-defined]

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        heap: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own
        return heap

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
    """The clock of one machine: monotonic, a little fast or slow perhaps, and a wall clock that may be wrong."""

    def __init__(self, loop: VirtualLoop, *, wall_error_s: float = 0.0, drift: float = 0.0) -> None:
        """`drift` is by how much of a second the clock gains every second."""
        self._loop = loop
        self.wall_error_s = wall_error_s
        self._speed = 1.0 + drift

    def now(self) -> float:
        return EPOCH_S + self.monotonic() + self.wall_error_s

    def monotonic(self) -> float:
        return self._loop.time() * self._speed


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
        loop.thaw_all()
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
