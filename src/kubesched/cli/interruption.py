"""How signals end a command: SIGTERM like Ctrl-C, however the command was started.

Python turns SIGINT into KeyboardInterrupt, unless SIGINT was ignored when the process started, as it is for a background
job of a script and under nohup. SIGTERM must work there, too, so it does not depend on SIGINT's handler.

KeyboardInterrupt can be raised between any two instructions. Inside a destructor or a task it is swallowed or reported
with a traceback. Commands that compute for long therefore name safe points and are interrupted only there.

Commands with an event loop (`run`, `up`, `conformance run`) handle both signals themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

EXIT_TERMINATED = 143
SAFE_POINT_S = 5.0
"""A command that reaches no safe point within this time after the signal is ended at once."""


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
        """Within the block, signals raise KeyboardInterrupt only when the function that it gets is called."""
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
