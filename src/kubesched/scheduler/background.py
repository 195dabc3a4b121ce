"""Background work that outlives its attempt, such as deleting preemption victims.

Owned by the scheduler's task group: a limited number of tasks runs at a time, the others wait in
order, failures are logged with their purpose, and shutdown cancels everything. The backlog is
bounded: a pending pod has at most one preemption in progress.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kubesched.base.logs import get_logger
from kubesched.scheduler.flight import FlightRecorder, Stepped

log = get_logger(__name__)

AT_ONCE: Final = 64
"""Concurrent tasks: enough to keep an API server busy, few enough not to slow down bindings."""


class BackgroundTasks:
    """Starts coroutines once `run` is active, `at_once` of them at a time."""

    def __init__(self, at_once: int = AT_ONCE, flight: FlightRecorder | None = None) -> None:
        self._at_once = at_once
        self._flight = flight
        self.spawned = 0
        """Number of tasks queued so far; distinguishes tasks with the same purpose."""
        self._waiting: deque[tuple[Coroutine[Any, Any, object], str, int]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._is_over = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def spawn(self, work: Coroutine[Any, Any, object], what: str) -> None:
        """Queue work; `what` names it in the log if it fails. After shutdown, work is dropped."""
        if self._is_over:
            work.close()
            return
        self.spawned += 1
        self._waiting.append((work, what, self.spawned))
        self._start()

    async def run(self) -> None:
        """Run the work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._start()
            try:
                await asyncio.Event().wait()
            finally:
                # Before the group cancels the running tasks: no new task must replace them.
                self._is_over = True
                while self._waiting:
                    self._waiting.popleft()[0].close()

    async def drain(self, timeout_s: float) -> None:
        """Wait for running tasks, up to `timeout_s`."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=timeout_s)

    def _start(self) -> None:
        while self._group is not None and self._waiting and len(self._running) < self._at_once:
            work, what, number = self._waiting.popleft()
            task = self._group.create_task(self._watched(work, what, number))
            self._running.add(task)
            task.add_done_callback(partial(self._done, work))

    def _done(self, work: Coroutine[Any, Any, object], task: asyncio.Task[None]) -> None:
        work.close()  # a task cancelled before its first step never closes it
        self._running.discard(task)
        self._start()

    async def _watched(self, work: Coroutine[Any, Any, object], what: str, number: int) -> None:
        try:
            if self._flight is None:
                await work
            else:
                await Stepped(work, f"{what} ({number})", self._flight)
        except Exception:  # top level of a task: log every failure
            log.exception("Background work broke", work=what)
