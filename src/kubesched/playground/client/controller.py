"""Base class of all controllers: one queue, one owner, one key at a time.

A controller maps events to keys and implements `sync`, which brings one key to its desired state.
The base class processes the queue in order, retries a failing key with backoff, syncs a key again
when `sync` asks for it, and isolates failures of one key from the others.

    events ──handlers──► queue ──process──► sync(key) ──► writes to the API
                          ▲                    │ exception: retry after backoff
                          └────────────────────┘ returned seconds: sync again after them

`process` is synchronous, for tests and simulation; `run` does the same in its own task, which
yields to the event loop after a burst of keys.
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
"""A task yields after this many keys or this much time, to keep HTTP requests prompt."""

K = TypeVar("K", bound=Hashable)

SMALL = 200
"""Up to this many objects, a sync is cheap enough to run on every change."""

_SETTLING_S_PER_OBJECT = 100e-6
_LONGEST_SETTLING_S = 1.0
LEASE_NAMESPACE = "kube-node-lease"


def settling_s(objects: int) -> float:
    """How long to batch changes before syncing a key whose sync visits this many objects.

    A sync takes about 5 µs per object. Batching limits it to about a twentieth of the time even if
    thousands of objects change.
    """
    if objects <= SMALL:
        return 0.0
    return min(_LONGEST_SETTLING_S, objects * _SETTLING_S_PER_OBJECT)


# Another writer was faster; the next sync reads the new state.
_EXPECTED_ERRORS = (Conflict, AlreadyExists, NotFound)


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Shared dependencies of all controllers."""

    api: LocalApi
    clock: Clock
    seed: int
    """Seed of the per-controller generators; see `generator`."""
    informers: InformerFactory
    events: EventRecorder
    heartbeats: HeartbeatClock

    def generator(self, name: str) -> random.Random:
        """A random generator per controller, so that disabling one does not affect the others."""
        return random.Random(f"{self.seed}/{name}")


class Controller(ABC, Generic[K]):
    """Base of all controllers; subclasses register handlers in `__init__` and implement `sync`."""

    name: ClassVar[str]
    component: ClassVar[str] = ""
    """Reported as the source of its events."""

    def __init__(self, context: ControllerContext, back_off: BackOff | None = None) -> None:
        self.context = context
        self.api = context.api
        self.clock = context.clock
        self.informers = context.informers
        self.events = context.events
        self.queue: WorkQueue[K] = WorkQueue(context.clock, back_off)

    def watch(self, resource: str, handler: Listener | None = None, *indexes: Index) -> Informer:
        """The shared informer of a resource; `handler` is called on every change."""
        informer = self.informers.informer(resource)
        for index in indexes:
            informer.add_index(index)
        if handler is not None:
            informer.add_handler(handler)
        return informer

    def add_key(self, kind: str, obj: JsonObject, old: JsonObject | None) -> None:
        """Handler that enqueues the changed object's key."""
        self.queue.add(cast("K", key_of(obj)))

    def normal(self, about: JsonObject, reason: str, message: str) -> None:
        """Record a Normal event."""
        self.events.normal(about, self.component, reason, message)

    def warning(self, about: JsonObject, reason: str, message: str) -> None:
        """Record a Warning event."""
        self.events.warning(about, self.component, reason, message)

    @abstractmethod
    def sync(self, key: K) -> float | None:
        """Bring one key to its desired state; returns seconds until the next sync, or None."""

    def process(self, limit: int | None = None, slice_s: float | None = None) -> int:
        """Sync due keys, at most `limit` and for about `slice_s`; returns the count."""
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
        """Process due keys until cancelled."""
        while True:
            if self.process(BURST, SLICE_S):
                await asyncio.sleep(0)
            else:
                await self.queue.wait()

    def _sync_one(self, key: K) -> None:
        try:
            again_s = self.sync(key)
        except _EXPECTED_ERRORS as error:
            log.info("Trying again", v=4, controller=self.name, key=key, err=error)
            self.queue.retry(key)
        except ApiError as error:
            rest_s = self.queue.retry(key)
            # The journal reports a full disk once; every controller hits it on every attempt.
            tell = partial(log.info, v=4) if error.code == 507 else log.warning
            tell("Failed; trying again", controller=self.name, key=key, err=error, afterS=rest_s)
        except Exception:  # outermost level: one key's bug must not stop the others
            rest_s = self.queue.retry(key)
            log.exception("Failed; trying again", controller=self.name, key=key, afterS=rest_s)
        else:
            self.queue.forget(key)
            if again_s is not None:
                self.queue.add_after(key, again_s)


class HeartbeatClock:
    """Monotonic clock for judging heartbeats, minus the lag of this process's own kubelets.

    The kubelets of simulated nodes run in the process that judges them. On a loaded host their
    heartbeats are late, which says nothing about the nodes. This clock lags equally, so a node
    counts as silent only if its kubelet ran and sent no heartbeat.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag_s: Callable[[], float] = float

    def follow(self, lag_s: Callable[[], float]) -> None:
        """Lag behind by `lag_s()`, the time for which the oldest heartbeat has been due."""
        self._lag_s = lag_s

    def monotonic(self) -> float:
        return self._clock.monotonic() - self._lag_s()
