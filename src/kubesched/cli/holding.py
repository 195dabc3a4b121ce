"""Signals that arrive while a command is still being loaded."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep SIGINT and SIGTERM until the command is ready for them (`app.stopping.release_signals`).

    Loading takes a good part of a second. A signal during that time must neither be lost nor end the process half-way,
    which would give the wrong exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
