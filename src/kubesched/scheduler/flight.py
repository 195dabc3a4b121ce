"""FlightRecorder: what the scheduler tells a recorder, so that its decisions can be played again.

A decision follows from configuration, seed, the order of informer events, the pods taken off the
queue, and the points at which tasks beside the loop (bindings, evictions) change what decisions
read. Informer events and calls are recorded by those who make them; the scheduler reports the rest
here. While a recording is played, the same interface holds tasks back until the place in the log
where they went on.

No plugin knows of this, and without a recorder none of it is called.
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
"""Whether a task is inside a call whose return is recorded: what happens in there is not its own
steps.
"""


class FlightRecorder(Protocol):
    """Told of everything in the order in which it happens. Must neither fail nor block."""

    @property
    def clock(self) -> Clock:
        """The queue's clock: it stands still between two records, so that a played queue reads the same times."""
        ...

    def tick(self) -> None:
        """Something may happen now: the clock moves on."""
        ...

    def attempt(self, info: QueuedPodInfo) -> None:
        """A pod was taken off the queue at the last tick."""
        ...

    def decided(self, info: QueuedPodInfo, node_name: str, status: Status | None) -> None:
        """What its attempt came to."""
        ...

    def flushed(self) -> None:
        """The queue is about to look for pods whose time has come."""
        ...

    async def reach(self, point: str, uid: str, status: Status | None = None) -> Status | None:
        """A task is about to change what decisions read; returns the status to go on with.

        Recording, it never suspends. Playing, it suspends until this place of the log, and the
        status is the logged one.
        """
        ...

    @property
    def wants_checkpoint(self) -> bool:
        """Whether `checkpoint` should be called as soon as the scheduler is idle."""
        ...

    def checkpoint(self, state: SchedulerState) -> None:
        """The scheduler is idle and in this state."""
        ...

    def began(self) -> None:
        """The loop takes pods from now on."""
        ...

    def ended(self) -> None:
        """The loop ends, and what is under way is called off."""
        ...


@dataclass(slots=True, eq=False)
class Stepped:
    """Work whose every step is reported before it is taken, so that a played one is taken at the same place."""

    _work: Coroutine[Any, Any, None]
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
            except BaseException as error:  # cancelled: the work itself decides what that means
                raised = error
