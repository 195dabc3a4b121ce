"""Events about objects, written in the background, with recurrences folded into series.

Does what client-go's event recorder and broadcaster do: naming, the series rules, retries, and
dropping events instead of growing. Callers of `EventRecorder.event` decide which events are
recorded; the client sends them. Losing an event never matters to scheduling, so nothing here
blocks or raises into it.

Life cycle of an event (all the while it is also in the cache, by key):

    event() --new--> queue (bounded) ------one of the writers---> created on the server --+
       |                                                                                  |
       +--seen before--> count + 1; the second time: queue --> series patched ------------+
                                                                                          |
    every 30 min: all series are patched again, so that the server keeps them <-----------+
    every 6 min: events idle for 6 min are dropped; a series gets its last count <--------+

The key of a series is reporter, reason, action and object revision; the note is not part of it.
Writes of one event are sequential; different events are written concurrently and in no particular
order.

An event costs the API server nearly as much as a binding. So while more urgent writes are under
way, few events or none are written and the queue grows: the fuller it gets, and the longer its
oldest event has waited, the more are written anyway. A new event is sent without a task, and its
response sends the next one; series, and everything that does not succeed at once, are written by a
task each. Upstream formats notes once more without arguments, which mangles a literal percent sign;
that is not copied.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kubesched.base.clock import Clock
from kubesched.base.errors import AlreadyExists, ApiError, KubeschedError, NotFound
from kubesched.base.logs import get_logger
from kubesched.client.event_series import EventEntry, EventKey, Reporter, identity_of
from kubesched.client.retry import Rest
from kubesched.client.transport import StartedRequest

if TYPE_CHECKING:
    from kubesched.client.rest import RestClient

log = get_logger(__name__)

MAX_QUEUED = 25_000
"""Queued events; further ones are dropped. Upstream queues 1000 and loses events in bursts of pods;
these are in the cache anyway.
"""
WRITERS = 32
"""Concurrent event writes when nothing is more urgent: concurrent writes cost the server less."""
PATIENCE_S = 5.0
"""Per this time that the oldest event has waited, one more is written despite urgent writes."""
LOOK_S = 0.05
"""How often the number of concurrent writes is adjusted."""
MAX_CACHED = 50_000
"""Events remembered to recognise recurrences; beyond that the oldest are forgotten early. Upstream
has no bound, which at thousands of pods per second would be gigabytes.
"""
FORGET_BATCH = 1000
MAX_TRIES = 12
RETRY_PAUSE_S = 10.0
RETRY_JITTER = 0.25
FINISH_INTERVAL_S = 6 * 60.0
REFRESH_INTERVAL_S = 30 * 60.0
EVENT_TYPES = ("Normal", "Warning")

QUEUE_FULL = "queue full"
REJECTED = "rejected by the server"
GAVE_UP = "no success after the last try"
FAILED = "unexpected failure"
SHUT_DOWN = "shut down"
BAD_EVENT = "not a valid event"


class EventRecorder:
    """Reports events of one component. `event` is cheap, never blocks and never raises."""

    def __init__(self, broadcaster: EventBroadcaster, reporter: Reporter) -> None:
        self._broadcaster = broadcaster
        self._reporter = reporter

    def event(
        self,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Report an event about `regarding`, an API object or a reference to one."""
        self._broadcaster.record(self._reporter, regarding, related, type_, reason, action, note)


class EventBroadcaster:
    """Owns the queue, the cache and the writers. `run` writes until it is cancelled."""

    def __init__(
        self,
        client: RestClient,
        *,
        clock: Clock,
        rng: random.Random,
        host_name: str,
        writer_count: int = WRITERS,
        flush_s: float = 10.0,
        is_urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        """`flush_s` bounds the end of `run`.

        `is_urgent` returns whether more important requests are under way.
        """
        self._client = client
        self._under_way: dict[EventEntry, StartedRequest | None] = {}
        self._clock = clock
        self._random = rng
        self._host_name = host_name
        self._writer_count = writer_count
        self._flush_s = flush_s
        self._is_urgent = is_urgent
        self._queue: deque[EventEntry] = deque()
        self._has_work = asyncio.Event()
        self._cache: dict[EventKey, EventEntry] = {}
        self._is_stopping = False
        self._is_more_due = False
        self._last_nanos = 0
        self.dropped: Counter[str] = Counter()
        """Lost events or patches by reason."""

    def recorder(self, controller: str) -> EventRecorder:
        """A recorder reporting as `controller`, usually a profile's scheduler name."""
        instance = f"{controller}-{self._host_name}"
        return EventRecorder(self, Reporter(controller, instance, is_legacy=False))

    def legacy_recorder(self, component: str) -> EventRecorder:
        """A recorder of core/v1 events, for leader election."""
        return EventRecorder(self, Reporter(component, "", is_legacy=True))

    async def run(self) -> None:
        """Write events until cancelled, then flush for at most the flush time."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write_queued(group))
                group.create_task(_every(FINISH_INTERVAL_S, self._finish_series))
                group.create_task(_every(REFRESH_INTERVAL_S, self._refresh_series))
        finally:
            self._is_stopping = True
            for give_up in self._under_way.values():
                if give_up is not None:
                    give_up()
            await self._flush()

    # Recording events. On the scheduler's hot path: no formatting, no records.

    def record(
        self,
        reporter: Reporter,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        about = identity_of(regarding)
        if about is None or type_ not in EVENT_TYPES:
            self._drop(BAD_EVENT, f'{type_} "{reason}" about a {type(regarding).__name__}')
            return
        beside = None if related is None else identity_of(related)
        # Upstream: legacy events are recognised by their note as well.
        key = (reporter, type_, reason, action, about, beside, note if reporter.is_legacy else "")
        entry = self._cache.get(key)
        if entry is not None:
            self._fold(entry)
        elif self._is_stopping:
            self._drop(SHUT_DOWN, reason)
        elif len(self._queue) >= MAX_QUEUED:
            self._drop(QUEUE_FULL, reason)
        else:
            now = self._clock.now()
            # Names end in the time, so no two events may have the same.
            self._last_nanos = max(int(now * 1e9), self._last_nanos + 1)
            self._cache[key] = entry = EventEntry(key, note, now, self._last_nanos)
            self._enqueue(entry)
            if len(self._cache) > MAX_CACHED:
                self._forget_oldest()

    def _fold(self, entry: EventEntry) -> None:
        entry.count += 1
        entry.last_observed = self._clock.now()
        if entry.count == 2:
            self._enqueue(entry)

    def _enqueue(self, entry: EventEntry) -> None:
        """Queue the entry, unless it is queued or being written already."""
        # A patch dropped for lack of room is made up for when the series ends.
        if not entry.is_taken and len(self._queue) < MAX_QUEUED:
            entry.is_taken = True
            self._queue.append(entry)
            if not self._has_work.is_set():
                self._has_work.set()

    def _forget_oldest(self) -> None:
        # In batches: popping the first item of a dictionary gets slower with each popped item.
        for key in list(itertools.islice(self._cache, FORGET_BATCH)):
            entry = self._cache.pop(key)
            entry.is_final = True
            if entry.is_due():
                self._enqueue(entry)

    def _drop(self, why: str, what: str) -> None:
        """Count a loss, and log only the first: there may be thousands per second."""
        self.dropped[why] += 1
        if self.dropped[why] == 1:
            log.warning("Event dropped; further ones are only counted", why=why, event=what)

    # Writing.

    async def _write_queued(self, group: asyncio.TaskGroup) -> None:
        """Keep the wanted number of writes under way; concurrent writes cost the server less."""
        while True:
            if not self._queue:
                self._has_work.clear()
                await self._has_work.wait()
            self._write_more(group)
            await asyncio.sleep(LOOK_S)

    def _write_more_soon(self, group: asyncio.TaskGroup) -> None:
        """Called once for all events written in this turn of the loop."""
        if not self._is_more_due:
            self._is_more_due = True
            asyncio.get_running_loop().call_soon(self._write_more, group)

    def _write_more(self, group: asyncio.TaskGroup) -> None:
        self._is_more_due = False
        if self._is_stopping:
            return
        wanted = self._writers_wanted()
        while self._queue and len(self._under_way) < wanted:
            entry = self._queue.popleft()
            self._under_way[entry] = None
            if entry.written_count:
                self._spawn(group, entry, None)
            else:
                self._start(group, entry)

    def _start(self, group: asyncio.TaskGroup, entry: EventEntry) -> None:
        """Create the event without a task that awaits the response."""

        def done(rest: Rest | None) -> None:
            if rest is None:
                entry.written_count = 1
            if entry.is_due():
                self._under_way[entry] = None
                self._spawn(group, entry, rest)
            else:
                entry.is_taken = False
                del self._under_way[entry]
                self._write_more_soon(group)

        try:
            entry.give_name(self._random)
            self._under_way[entry] = self._client.start_event(entry, done)
        except Exception:  # runs in other requests' callbacks: must not raise
            self._failed(entry)
            entry.written_count, entry.is_taken = 1, False
            del self._under_way[entry]

    def _spawn(self, group: asyncio.TaskGroup, entry: EventEntry, rest: Rest | None) -> None:
        work = self._write_on(group, entry, rest)
        try:
            group.create_task(work)
        except RuntimeError:  # the group is being cancelled: `_flush` writes these
            work.close()

    async def _write_on(
        self, group: asyncio.TaskGroup, entry: EventEntry, rest: Rest | None
    ) -> None:
        """Write what is due of an event; `rest` finishes a creation that was started."""
        await self._write_due(entry, rest)
        del self._under_way[entry]  # not if cancelled: `_flush` writes it
        self._write_more_soon(group)

    def _writers_wanted(self) -> int:
        """Number of events that may be in flight now."""
        if not self._queue or not self._is_urgent():  # events themselves are not urgent
            return self._writer_count
        # Few while there is plenty of room, all of them before any event would be dropped.
        by_room = self._writer_count * len(self._queue) ** 2 // MAX_QUEUED**2
        by_age = int((self._clock.now() - self._queue[0].last_observed) / PATIENCE_S)
        return min(max(by_room, by_age), self._writer_count)

    async def _write_due(self, entry: EventEntry, rest: Rest | None = None) -> None:
        while entry.is_due():
            is_series = entry.written_count > 0
            count = entry.count if is_series else 1
            try:
                await self._write_patiently(entry, is_series=is_series, rest=rest)
            except Exception:
                self._failed(entry)
            # Also after giving up: if the event recurs, the patch finds nothing and creates it.
            entry.written_count = count
            rest = None
        entry.is_taken = False

    def _failed(self, entry: EventEntry) -> None:
        log.exception("Writing an event failed unexpectedly", event=entry.described())
        self._drop(FAILED, entry.described())

    async def _write_patiently(
        self, entry: EventEntry, *, is_series: bool, rest: Rest | None
    ) -> None:
        for _ in range(MAX_TRIES):
            if await self._try_write(entry, is_series=is_series, rest=rest):
                return
            rest = None
            if self._is_stopping:
                break
            await asyncio.sleep(RETRY_PAUSE_S * (1 + RETRY_JITTER * self._random.random()))
        self._drop(SHUT_DOWN if self._is_stopping else GAVE_UP, entry.described())

    async def _try_write(
        self, entry: EventEntry, *, is_series: bool, rest: Rest | None = None
    ) -> bool:
        """One try; False if another may help."""
        try:
            await (self._write(entry, is_series=is_series) if rest is None else rest())
        except AlreadyExists:
            # The patch found nothing, yet creating found an event that appeared in between: patch
            # again. A plain creation that was tried before has simply succeeded.
            return not is_series
        except ApiError as error:
            log.info(
                "Server rejected event (will not retry!)", v=2, event=entry.described(), err=error
            )
            self._drop(REJECTED, f"{entry.described()} ({error})")
            return True
        except KubeschedError as error:
            log.error(
                "Unable to write event (may retry after sleeping)", error, event=entry.described()
            )
            return False
        return True

    async def _write(self, entry: EventEntry, *, is_series: bool) -> None:
        entry.give_name(self._random)
        if is_series:
            try:
                await self._client.patch_event(entry)
                return
            except NotFound:
                pass  # the server keeps events for an hour; start a new series
        await self._client.create_event(entry, is_series=is_series)

    # Expiry of series.

    async def _finish_series(self) -> None:
        """Drop events that did not recur lately, and write the final counts of series."""
        limit = self._clock.now() - FINISH_INTERVAL_S
        for number, (key, entry) in enumerate(list(self._cache.items()), 1):
            if number % FORGET_BATCH == 0:
                await asyncio.sleep(0)  # there may be many: let other tasks run
            if entry.is_taken or entry.last_observed >= limit:
                continue
            if entry.count > 1 and not await self._rewrite_series(entry):
                continue
            if self._cache.get(key) is entry and entry.last_observed < limit:
                del self._cache[key]

    async def _refresh_series(self) -> None:
        """Patch every series again: the server expires events that are not updated."""
        for entry in list(self._cache.values()):
            if entry.count > 1 and not entry.is_taken:
                await self._rewrite_series(entry)

    async def _rewrite_series(self, entry: EventEntry) -> bool:
        count, entry.is_taken = entry.count, True
        try:
            is_over = await self._try_write(entry, is_series=True)
        finally:
            entry.is_taken = False
        if is_over:
            entry.written_count = count
        return is_over

    # The end.

    async def _flush(self) -> None:
        """Write queued events and the final counts of all series, for a bounded time."""
        series = [entry for entry in self._cache.values() if entry.count > 1]
        entries = list(dict.fromkeys([*self._under_way, *self._queue, *series]))
        self._queue.clear()
        self._under_way.clear()
        for entry in entries:
            entry.is_final = True
        left = deque(entries)

        async def drain() -> None:
            while left:
                await self._write_due(left.popleft())

        writers = [asyncio.ensure_future(drain()) for _ in range(self._writer_count)]
        try:
            await asyncio.wait(writers, timeout=self._flush_s)
        finally:
            for writer in writers:
                writer.cancel()
        await asyncio.wait(writers)
        for entry in entries:
            if entry.is_due():
                self._drop(SHUT_DOWN, entry.described())


async def _every(interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            await action()
        except Exception:  # the next round may succeed
            log.exception("Looking after event series failed unexpectedly")
