"""SIGINT and SIGTERM of commands that run until told to stop."""

from __future__ import annotations

import asyncio
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


def stop_event() -> asyncio.Event:
    """An event of the running loop that both signals set, those that were held included."""
    from kubesched.app.stopping import STOP_SIGNALS, release_signals

    stop = asyncio.Event()
    for signum in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    release_signals()
    return stop
