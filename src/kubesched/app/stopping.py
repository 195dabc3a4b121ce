"""Signals: the first asks the process to stop, the second ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal

from kubesched.logs import get_logger

log = get_logger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_AT_ONCE = 1


def release_signals() -> None:
    """Deliver the signals that were held back until handlers were installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class StopRequest:
    """Set by SIGINT or SIGTERM; a second signal ends the process at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    def install(self) -> None:
        """Listen to the signals. Needs a running event loop in the main thread."""
        loop = asyncio.get_running_loop()
        for signum in STOP_SIGNALS:
            loop.add_signal_handler(signum, self._signalled, signum)
        release_signals()

    def uninstall(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in STOP_SIGNALS:
            loop.remove_signal_handler(signum)

    def _signalled(self, signum: signal.Signals) -> None:
        if self.is_set:
            os._exit(EXIT_AT_ONCE)  # exit handlers must not delay this
        log.info("Asked to stop", v=1, signal=signal.Signals(signum).name)
        self.ask()

    def ask(self) -> None:
        self._asked.set()

    @property
    def is_set(self) -> bool:
        return self._asked.is_set()

    async def wait(self) -> None:
        await self._asked.wait()
