"""How signals end a command: SIGTERM like Ctrl-C, however the command was started.

Python turns SIGINT into KeyboardInterrupt, unless SIGINT was ignored when the process started, as
for a script's background job and under nohup. SIGTERM must work there too, so it does not depend on
SIGINT's handler.

KeyboardInterrupt can be raised between any two instructions. Inside a destructor or a task it is
swallowed or reported with a traceback. Long-running commands therefore define safe points and are
interrupted only there.

Commands with an event loop handle both signals themselves: `conformance run`, and with
`signals_held` and `stop_event` those that run until stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

EXIT_TERMINATED = 143
SAFE_POINT_S = 5.0
"""A command that reaches no safe point within this time after the signal is killed."""


class Interruption:
    """The signals of this process."""

    def __init__(self) -> None:
        self.is_terminated = False
        """SIGTERM has arrived."""
        self._is_due = False
        self._is_deferred = False

    def install(self) -> None:
        """Let SIGTERM end the process from now on. Call it in the main thread."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.is_terminated and signum == signal.SIGTERM:
            os._exit(EXIT_TERMINATED)  # second signal: end at once
        self.is_terminated |= signum == signal.SIGTERM
        if self._is_deferred:
            self._is_due = True
            signal.setitimer(signal.ITIMER_REAL, SAFE_POINT_S)
            return
        on_interrupt = signal.getsignal(signal.SIGINT)
        if callable(on_interrupt):
            on_interrupt(signal.SIGINT, frame)  # asyncio's cancels the main task
        else:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def at_safe_points(self) -> Iterator[Callable[[], None]]:
        """In the block, signals raise KeyboardInterrupt only in calls of the yielded function."""
        handled = [signal.SIGTERM]
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            handled.append(signal.SIGINT)
        before = {signum: signal.signal(signum, self._on_signal) for signum in handled}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _give_up)
        self._is_deferred = True
        try:
            yield self._safe_point
        finally:
            self._is_deferred = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            self._safe_point()

    def _safe_point(self) -> None:
        if self._is_due:
            self._is_due = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt


def _give_up(_signum: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_TERMINATED)


INTERRUPTION = Interruption()


# -- commands that run until stopped ---------------------------------------------------------------


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Block SIGINT and SIGTERM until the command is ready (`app.stopping.release_signals`).

    Loading takes a good part of a second. A signal during that time must neither be lost nor end
    the process half-way, which would give the wrong exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def stop_event() -> asyncio.Event:
    """An event of the running loop that both signals set, including blocked ones."""
    import asyncio

    from kubesched.app.stopping import STOP_SIGNALS, release_signals

    stop = asyncio.Event()
    for signum in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    release_signals()
    return stop
