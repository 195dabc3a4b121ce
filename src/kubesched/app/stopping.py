"""Stop requests: the first SIGINT or SIGTERM asks the process to stop, the second ends it at once.

The handler is Python's own (`signal.signal`), not the event loop's: it runs between two
instructions of the main thread, even while a plugin blocks the loop. It must not log or lock, since
it may interrupt code that does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from kubesched.base.logs import get_logger

log = get_logger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_AT_ONCE = 1
LOOK_S = 0.2
EXIT_S = 15.0
"""Time beyond draining for closing connections and flushing events."""


def release_signals() -> None:
    """Deliver the signals that were blocked until a handler was installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class StopRequest:
    """Set by a stop signal, or by `ask`.

    Readable from any thread; `wait` belongs to the loop that made it.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.on_asked: Callable[[], None] = lambda: None
        """Called first in the loop, before the request is logged."""
        self._asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Handle the signals. Needs a running event loop in the main thread."""
        self._loop = asyncio.get_running_loop()
        for signum in STOP_SIGNALS:
            self._before[signum] = signal.signal(signum, self._on_signal)
        release_signals()

    def uninstall(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if self.is_set:
            os._exit(EXIT_AT_ONCE)  # skips exit handlers, which could block
        self.is_set = True
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._note, signum)

    def _note(self, signum: int) -> None:
        self.ask()
        log.info("Asked to stop", v=1, signal=signal.Signals(signum).name)

    def ask(self) -> None:
        """Stop as if a signal had arrived."""
        self.is_set = True
        self._asked.set()
        self.on_asked()

    async def wait(self) -> None:
        await self._asked.wait()


class ExitLimit:
    """Kills the process if it does not end by itself because a plugin blocks the main thread.

    Nothing is written meanwhile: without the lease every write is refused, and an unreleased lease
    expires.
    """

    def __init__(self, stop: StopRequest, drain_s: float) -> None:
        self._stop = stop
        self._drain_s = drain_s
        self._is_lost = False

    def leadership_lost(self) -> None:
        self._is_lost = True

    async def enforce(self) -> None:
        """Run this on a thread other than the main one, until cancelled."""
        while not (self._stop.is_set or self._is_lost):  # noqa: ASYNC110  # signal handlers only set flags
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(EXIT_S + (0.0 if self._is_lost else self._drain_s))
        log.error("The process does not stop by itself, ending it")
        os._exit(EXIT_AT_ONCE)
