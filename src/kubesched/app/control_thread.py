"""The control thread: a separate event loop for work that must not wait for scheduling.

Leader election, the serving port and the watchdog run here, each with its own connections;
informers, scheduling and binding run on the main thread's loop. A slow plugin blocks only that
loop. Design: docs/design/0007-control-thread.md.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from kubesched.app import event_loop
from kubesched.base.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")

JOIN_S = 5.0
EXIT_DEAD = 1


class ControlThread:
    """A thread with an event loop; a context manager."""

    def __init__(self) -> None:
        self.loop = event_loop.new()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def _run(self) -> None:
        """Run the loop; if it fails, end the process, which could not keep its lease or serve."""
        try:
            self._serve()
        finally:
            if not self._is_ending:
                try:
                    log.exception("The control thread has died, ending the process")
                finally:
                    os._exit(EXIT_DEAD)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._is_ending = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join, JOIN_S)
        if self._thread.is_alive():
            log.warning("The control thread did not end in time", seconds=JOIN_S)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on this thread's loop; see `run_on`."""
        return await run_on(self.loop, work)


async def run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function on another thread's loop and return its result.

    Cancelling this call cancels the coroutine and waits until it has ended.
    """
    here = asyncio.get_running_loop()
    ended = here.create_future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = loop.create_task(work())
        tasks.append(task)
        task.add_done_callback(lambda _task: here.call_soon_threadsafe(finish))

    def finish() -> None:
        if not ended.done():
            ended.set_result(None)

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    loop.call_soon_threadsafe(start)
    is_cancelled = False
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            is_cancelled = True
            loop.call_soon_threadsafe(cancel)
    result = tasks[0].result()  # raises what the coroutine raised
    if is_cancelled:
        raise asyncio.CancelledError
    return result
