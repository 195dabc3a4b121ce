"""The frame every controller runs in: one queue, one owner, one key at a time.

A controller says which events concern which keys and how to bring one key to its desired state
(`sync`). This frame owns the rest: it empties the queue in order, retries a failing key with
back-off, re-checks a key when `sync` asks for it, and never lets one key's failure reach another.

    events ──handlers──► queue ──process──► sync(key) ──► writes to the API
                          ▲                    │ raised: retry after back-off
                          └────────────────────┘ returned seconds: look again then

`process` is synchronous and is what tests and simulation call; `run` is the same in a task of its
own that yields to the loop after a burst of keys.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, TypeVar, cast

from kubesched.base.clock import Clock
from kubesched.base.errors import AlreadyExists, ApiError, Conflict, NotFound
from kubesched.base.logs import get_logger
from kubesched.playground.apimachinery.objects import JsonObject, key_of
from kubesched.playground.client.events import EventRecorder
from kubesched.playground.client.informers import Index, Informer, InformerFactory
from kubesched.playground.client.local import Listener, LocalApi
from kubesched.playground.client.workqueue import BackOff, WorkQueue

log = get_logger(__name__)

BURST = 64
SLICE_S = 0.005
"""A task yields after this many keys or this much time, so that HTTP requests stay prompt."""

K = TypeVar("K", bound=Hashable)

SMALL = 200
"""Up to this many objects a look is cheap enough to follow every change at once."""

_SETTLING_S_PER_OBJECT = 100e-6
_LONGEST_SETTLING_S = 1.0
LEASE_NAMESPACE = "kube-node-lease"


def settling_s(objects: int) -> float:
    """How long to gather changes before looking at a key whose look visits this many objects.

    A look takes about 5 µs per object; at every change of thousands of objects it would leave no
    time for anything else. Gathering keeps it to about a twentieth of the time.
    """
    if objects <= SMALL:
        return 0.0
    return min(_LONGEST_SETTLING_S, objects * _SETTLING_S_PER_OBJECT)


# Another writer was faster; the next sync reads the new state.
_EXPECTED_ERRORS = (Conflict, AlreadyExists, NotFound)


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What every controller works with."""

    api: LocalApi
    clock: Clock
    seed: int
    """Source of the controllers' own generators; see `generator`."""
    informers: InformerFactory
    events: EventRecorder
    heartbeats: HeartbeatClock

    def generator(self, name: str) -> random.Random:
        """A generator for one controller, so that switching off another does not change its draws."""
        return random.Random(f"{self.seed}/{name}")


@dataclass(frozen=True, slots=True)
class ControllerStatistics:
    """What one controller has done so far."""

    name: str
    syncs: int
    failures: int
    queued: int


class Controller(ABC, Generic[K]):
    """Base of all controllers; subclasses register handlers in `__init__` and implement `sync`."""

    name: ClassVar[str]
    component: ClassVar[str] = ""
    """Who its events are from."""

    def __init__(self, context: ControllerContext, back_off: BackOff | None = None) -> None:
        self.context = context
        self.api = context.api
        self.clock = context.clock
        self.informers = context.informers
        self.events = context.events
        self.queue: WorkQueue[K] = WorkQueue(context.clock, back_off)
        self._sync_count = 0
        self._failure_count = 0

    def watch(self, resource: str, handler: Listener | None = None, *indexes: Index) -> Informer:
        """The shared view of a resource; `handler` is told of every change."""
        informer = self.informers.informer(resource)
        for index in indexes:
            informer.add_index(index)
        if handler is not None:
            informer.add_handler(handler)
        return informer

    def add_key(self, kind: str, obj: JsonObject, old: JsonObject | None) -> None:
        """A handler: every change of an object asks for a look at it."""
        self.queue.add(cast("K", key_of(obj)))

    def normal(self, about: JsonObject, reason: str, message: str) -> None:
        """Record an event: something went as it should."""
        self.events.normal(about, self.component, reason, message)

    def warning(self, about: JsonObject, reason: str, message: str) -> None:
        """Record an event: something needs attention."""
        self.events.warning(about, self.component, reason, message)

    @abstractmethod
    def sync(self, key: K) -> float | None:
        """Bring one key to its desired state; returns seconds until it wants another look."""

    def process(self, limit: int | None = None, slice_s: float | None = None) -> int:
        """Sync keys that are due, at most `limit` and for about `slice_s`; returns how many."""
        done = 0
        end = self.clock.monotonic() + slice_s if slice_s is not None else None
        while limit is None or done < limit:
            key = self.queue.pop()
            if key is None:
                break
            self._sync_one(key)
            done += 1
            if end is not None and self.clock.monotonic() > end:
                break
        return done

    async def run(self) -> None:
        """Keep the queue empty until cancelled."""
        while True:
            if self.process(BURST, SLICE_S):
                await asyncio.sleep(0)
            else:
                await self.queue.wait()

    def statistics(self) -> ControllerStatistics:
        return ControllerStatistics(
            self.name, self._sync_count, self._failure_count, len(self.queue)
        )

    def _sync_one(self, key: K) -> None:
        self._sync_count += 1
        try:
            again_s = self.sync(key)
        except _EXPECTED_ERRORS as error:
            self._failure_count += 1
            log.info("Trying again", v=4, controller=self.name, key=key, err=error)
            self.queue.retry(key)
        except ApiError as error:
            self._failure_count += 1
            rest_s = self.queue.retry(key)
            # The journal reports a full disk once; every controller meets it at every attempt.
            tell = partial(log.info, v=4) if error.code == 507 else log.warning
            tell("Failed; trying again", controller=self.name, key=key, err=error, afterS=rest_s)
        except Exception:  # the outermost edge: one key's bug must not stop the others
            self._failure_count += 1
            rest_s = self.queue.retry(key)
            log.exception("Failed; trying again", controller=self.name, key=key, afterS=rest_s)
        else:
            self.queue.forget(key)
            if again_s is not None:
                self.queue.add_after(key, again_s)


class HeartbeatClock:
    """Monotonic time, less the lag of this process's own kubelets: heartbeats are judged by it.

    The kubelets of simulated nodes run in the process that judges them. On a loaded host they fall
    behind with their heartbeats, which says nothing about the nodes. This clock is late by as much
    as they are: a node is silent only if its kubelet had its turn and did not use it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag_s: Callable[[], float] = float

    def follow(self, lag_s: Callable[[], float]) -> None:
        """Be late by what `lag_s` says: how long the oldest heartbeat has been due."""
        self._lag_s = lag_s

    def monotonic(self) -> float:
        return self._clock.monotonic() - self._lag_s()
