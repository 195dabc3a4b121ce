"""FlightRecorder: the scheduler's interface to a recorder, so that decisions can be replayed.

A decision follows from configuration, seed, the order of informer events, the popped pods, and the
points at which concurrent tasks (bindings, evictions) change data that decisions read. The callers
record informer events and calls; the scheduler reports the rest here. During a replay, the same
interface suspends tasks until the log entry at which they continued.

Plugins do not use it, and without a recorder none of it is called.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from kubesched.base.clock import Clock
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Status
from kubesched.scheduler.checkpoint import SchedulerState

BINDING_BEGINS = "binding"
PERMIT_DECIDED = "permit"
PRE_BIND_BEGINS = "prebind begins"
PRE_BIND_DONE = "prebind"
BINDING_DONE = "bound"
WORK_GOES_ON = "work"
ATTEMPT_DECIDED = "decided"

in_call: ContextVar[bool] = ContextVar("in_call", default=False)
"""True while a task is inside a call whose return is recorded: inner steps are not reported."""


class FlightRecorder(Protocol):
    """Receives everything in order of occurrence. Must neither fail nor block."""

    @property
    def clock(self) -> Clock:
        """The queue's clock. It stops between records, so a replayed queue reads the same times."""
        ...

    def tick(self) -> None:
        """Advance the clock before the next event."""
        ...

    def attempt(self, info: QueuedPodInfo) -> None:
        """A pod was popped from the queue at the last tick, or a group that begins with it."""
        ...

    def decided(self, info: QueuedPodInfo, node_name: str, status: Status | None) -> None:
        """The result of the attempt, or of a member of the group that was tried."""
        ...

    def flushed(self) -> None:
        """The queue is about to flush expired pods."""
        ...

    async def reach(self, point: str, uid: str, status: Status | None = None) -> Status | None:
        """A task is about to change data that decisions read; returns the status to continue with.

        While recording, it never suspends. In a replay, it suspends until this log entry and
        returns the logged status.
        """
        ...

    def passed(self, point: str, uid: str) -> None:
        """`reach` for a binding without a task, which cannot suspend: only while recording."""
        ...

    @property
    def wants_checkpoint(self) -> bool:
        """True if `checkpoint` should be called as soon as the scheduler is idle."""
        ...

    def checkpoint(self, state: SchedulerState) -> None:
        """The scheduler is idle and has this state."""
        ...

    def began(self) -> None:
        """The loop starts popping pods."""
        ...

    def ended(self) -> None:
        """The loop ends and work in progress is cancelled."""
        ...


@dataclass(slots=True, eq=False)
class Stepped:
    """Work that reports every step beforehand, so that a replay takes it at the same place."""

    _work: Coroutine[Any, Any, object]
    _what: str
    _flight: FlightRecorder

    def __await__(self) -> Generator[Any, None, None]:
        raised: BaseException | None = None
        while True:
            try:
                if raised is not None:
                    awaited = self._work.throw(raised)
                else:
                    if not in_call.get():
                        yield from self._flight.reach(WORK_GOES_ON, self._what).__await__()
                    awaited = self._work.send(None)
            except StopIteration:
                return
            raised = None
            try:
                yield awaited
            except BaseException as error:  # cancelled: the work decides how to react
                raised = error
