"""Keeps a sink equal to the server's state: list once, then watch forever, despite failures.

Chooses between streamed and paged lists, continues a watch where the last one ended, starts over
when that is no longer possible, and pauses between failures. `informer` stores objects and calls
handlers.

Life cycle:

    must list --streamed or paged list--> following --watch ended--> following (last revision)
        ^                                     |
        |____ 410 Gone, revision unknown to the server, or cluster restored from a backup

A cluster restored from a backup continues at an older revision with other changes (`history`). A
watch is therefore resumed one revision before the newest known change: the server must first repeat
this change, and then must have no other one up to the revision reached. If it has forgotten the
change, or nothing has changed since a list, a change of any kind is read instead that is not older
than the revision reached. A watch from a revision in the server's future stays silent, so a quiet
watch proves nothing: while no events arrive, the object of the newest change is read (10 s after a
connect, then every minute), which also tells the server's revision. If the histories differ,
everything is listed again.

Invariants: the sink sees every object's revisions in increasing order and none twice within one
watch or across reconnects; after a gap it gets the complete state (`replace`) and can tell what
vanished; failures never end the loop, programming errors do; pauses grow to 30 s and are jittered;
a watch that brought events and that the server ended normally is resumed without a pause.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from kubesched.api.codec import ListOf
from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.api.status import StatusDetails
from kubesched.api.watch import INITIAL_EVENTS_END, WatchEvent
from kubesched.base.clock import Clock
from kubesched.base.errors import (
    ApiError,
    BadRequest,
    CredentialsError,
    Forbidden,
    Gone,
    Invalid,
    KubeschedError,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from kubesched.base.logs import get_logger
from kubesched.client.backoff import Backoff
from kubesched.client.informers.history import ClusterRestored, Witness, number_of, witness_of
from kubesched.client.informers.restore import Restore
from kubesched.client.informers.slices import Slices
from kubesched.client.watch import Watch

log = get_logger(__name__)

T = TypeVar("T", bound=ApiObject)

MAX_FAILED_STREAMS = 2
"""Streamed lists that may fail in a row before one is made in pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    """Times and sizes; the defaults are client-go's where it has them."""

    page_size: int = 500
    min_watch_s: float = 300.0
    """Minimum requested watch duration; each asks for up to twice that, to spread their ends."""
    backoff_initial_s: float = 0.8
    backoff_max_s: float = 30.0
    steady_s: float = 5.0
    """A watch that lived this long was healthy: the next begins without a pause."""
    initial_silence_s: float = 30.0
    """Silence after which a streamed list is given up: old servers never finish it."""
    prefers_streaming: bool = True
    first_check_s: float = 10.0
    """A watch that is quiet for this long after its start is compared with the server's state."""
    check_s: float = 60.0
    """Pause between further comparisons while the watch stays quiet."""
    silence_s: float = 75.0
    """A watch that brought not even a bookmark for this long is replaced. Servers send one each
    minute, and a proxy that lost its other side looks like a quiet server."""


class ListerWatcher(Protocol[T]):
    """One collection on the server."""

    async def list_page(self, *, limit: int, continue_token: str) -> ListOf[T]:
        """A page of a consistent read. Raises `Gone` when the continue token has expired."""
        ...

    async def read(self, namespace: str, name: str) -> ListOf[T]:
        """A list of this object, or empty; a consistent read."""
        ...

    def watch(
        self, *, resource_version: str, timeout_s: float, send_initial_events: bool
    ) -> Watch[T]:
        """A watch from a revision on, or with the whole state first; always with bookmarks."""
        ...


class Sink(Protocol[T]):
    """Receives the changes."""

    def trimmed(self, obj: T) -> T:
        """Trims a listed object on arrival, so that a long list is never in memory in full."""
        ...

    async def replace(self, objects: Mapping[str, T], *, is_restored: bool) -> None:
        """The complete state: trimmed objects by key; objects not in it are gone.

        With `is_restored` it is a different history: equal revisions may differ in content.
        """
        ...

    def are_equal(self, known: T, fresh: T) -> bool:
        """Whether a freshly read object equals the known one, in the fields the sink keeps."""
        ...

    def is_foreign(self, obj: T, reached: int) -> bool:
        """Whether a listed object contradicts what the sink knows as of revision `reached`."""
        ...

    def apply(self, event: WatchEvent[T]) -> None:
        """One change; never a bookmark."""
        ...


class Reflector(Generic[T]):
    """Lists and watches one collection until its task is cancelled."""

    def __init__(
        self,
        source: ListerWatcher[T],
        sink: Sink[T],
        *,
        name: str,
        clock: Clock,
        random: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        settings: ReflectorSettings | None = None,
        restore: Restore | None = None,
        is_optional: bool = False,
        hint: str = "",
    ) -> None:
        """With `is_optional`, a resource that is not served is empty; `hint`: how to serve it."""
        self.name = name
        self.resource_version = ""
        """The revision the sink has reached; "" while a list is due."""
        self.last_error: KubeschedError | None = None
        """Why the last attempt failed, until one succeeds."""
        self.confirmed_at: float | None = None
        """When a list, a watch event or a comparison last confirmed that the sink is current."""
        self._source = source
        self._sink = sink
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self._settings = settings or ReflectorSettings()
        self._streams = self._settings.prefers_streaming
        self._revision: int | None = None  # `resource_version` as a number, if it is one
        self._is_restored = False  # the next list is of another history
        self._highest: int | None = None  # the last known `_revision`; kept while a list is due
        self._newest: WatchEvent[T] | None = None  # the newest known change, or listed object
        self._is_listed = False  # `_newest` is a listed object
        self._opened_at = 0.0  # when the latest list or watch was requested
        self._batch_at = 0.0  # when the latest events came
        self._heard_at = 0.0  # when the server last confirmed the revision reached
        # When the newest change's connection was opened, and when the change arrived.
        self._newest_span = (0.0, 0.0)
        self._unproven: Witness[T] | None = None  # the change that the server must repeat first
        self._changeless: range | None = None  # revisions known to be without a change
        self._taken = 0  # events that were new
        self._slices = Slices(clock)
        self._failed_streams = 0
        self._restore = restore
        self._is_optional = is_optional
        self._hint = hint
        self._distrusted = asyncio.Event()
        self._backoff = Backoff(
            self._settings.backoff_initial_s, self._settings.backoff_max_s, random
        )

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            began_at, taken_before = self._clock.monotonic(), self._taken
            retry_after_s = 0.0
            was_useful = False
            try:
                await self._attempt()
                # A server under load repeatedly ends watches whose events it cannot deliver fast
                # enough. As long as each brings new events, pausing would only increase the lag.
                was_useful = self._taken > taken_before
            except (ApiError, TransportError, CredentialsError, ClusterRestored) as error:
                if isinstance(error, NotFound) and self._is_optional:
                    await self._note_missing(error)
                else:
                    self._note_failure(error)
                retry_after_s = getattr(error, "retry_after_s", None) or 0.0
            was_steady = self._clock.monotonic() - began_at >= self._settings.steady_s
            if was_useful or (was_steady and not retry_after_s):
                self._backoff.reset()
            else:
                await self._sleep(max(self._backoff.next_s(), retry_after_s))

    async def _attempt(self) -> None:
        """List if due, then follow one watch; returns normally if the server ended it."""
        if self._is_restored and self._restore is not None:
            await self._restore.wait_for_turn(self.name)
        if self._distrusted.is_set():
            self._reached("", None)
            self._distrusted.clear()  # only for the list that begins now
        if self.resource_version:
            await self._resume()
            return
        if self._streams and self._failed_streams < MAX_FAILED_STREAMS:
            await self._stream_list_and_follow()
            if self._streams:
                return
        await self._list()
        witness = self._witness()
        # The cluster may have been restored since the list was answered.
        if witness is None or witness.revision != self._revision or not await self._repeat(witness):
            await self._watch(self.resource_version, self.is_current)

    async def _resume(self) -> None:
        """Resume the last watch, if the server proves that it has the history we know."""
        witness, reached = self._witness(), self._revision
        if witness is None or reached is None:
            await self._watch(self.resource_version, self.is_current)
            return
        # A list shows no deletions: its newest object may be in both histories, while objects
        # deleted later may have reappeared.
        if not self._is_listed or witness.revision == reached:
            self._changeless = range(witness.revision + 1, reached + 1)
            if await self._repeat(witness):
                return
        await self._watch(self.resource_version, partial(self._require_continued, reached))

    async def _repeat(self, witness: Witness[T]) -> bool:
        """Watch from the newest known change on; False if the server has forgotten it."""
        self._unproven = witness
        try:
            await self._watch(witness.revision_before)
        except Gone:
            if self._unproven is None:
                raise  # proven: the watch expired later
            self._unproven = self._changeless = None
            return False
        return True

    async def _require_continued(self, reached: int) -> None:
        """Some kind has to confirm that the server has our history up to the revision reached.

        Raises:
            ClusterRestored: the server has another history.
            Gone: the history is unclear.
        """
        if self._restore is not None:
            is_continued = await self._restore.is_confirmed(reached, self._heard_at)
        else:
            is_continued = self.has_seen(reached, self._heard_at) and await self.is_current()
        if not is_continued:
            raise Gone(f"the server shows no change at revision {reached} or later that is known")

    def has_seen(self, revision: int, at: float) -> bool:
        """Whether its newest change is at least this revision, from a connection open at that time.

        A restore ends all connections. So this change is of the history that the server had then.
        """
        witness = None if self._revision is None else self._witness()
        if witness is None or witness.revision < revision:
            return False
        opened_at, came_at = self._newest_span
        return opened_at <= at <= came_at

    async def _watch(
        self, resource_version: str, confirm: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Follow a watch.

        `confirm` asks which history the server has. It asks beside the open watch, whose connection
        a later restore ends, and before any event is applied.
        """
        self._opened_at = self._clock.monotonic()
        async with self._source.watch(
            resource_version=resource_version,
            timeout_s=self._watch_timeout_s(),
            send_initial_events=False,
        ) as watch:
            if confirm is not None:
                await confirm()
            await self._follow(watch, [])

    def _witness(self) -> Witness[T] | None:
        newest = self._newest
        return None if newest is None else witness_of(newest, self._sink.are_equal)

    async def _note_missing(self, error: NotFound) -> None:
        """The server has no such resource: there are no objects until it does."""
        if not isinstance(self.last_error, NotFound):
            log.error("Resource is not served, taken as empty until it is", error, type=self.name)
        self.last_error = error
        await self._sink.replace({}, is_restored=False)
        self._reached("", None)
        self._confirm()

    def _note_failure(self, error: KubeschedError) -> None:
        before, self.last_error = self.last_error, error
        if self._hint and isinstance(error, NotFound):
            if not isinstance(before, NotFound):  # told once, however often it is asked for
                log.error("Resource is not served", error, type=self.name, hint=self._hint)
            self._reached("", None)
            return
        if isinstance(error, ClusterRestored):
            self._note_restore(error)
        if self.resource_version and self._makes_revision_useless(error):
            log.info(
                "Watch cannot go on from its revision, listing again",
                type=self.name,
                resourceVersion=self.resource_version,
                err=error,
            )
            self._reached("", None)
        else:
            doing = "watch" if self.resource_version else "list"
            log.error("Failed to watch", f"failed to {doing} {self.name}: {error}", type=self.name)

    @staticmethod
    def _makes_revision_useless(error: KubeschedError) -> bool:
        """Whether retrying the watch is useless: refused, not for lack of time or permission."""
        if isinstance(error, ClusterRestored):
            return True
        if not isinstance(error, ApiError):
            return False
        if isinstance(error, TooManyRequests | ServerError | Unauthorized | Forbidden):
            return is_resource_version_too_large(error)
        return True

    # Listing.

    async def _list(self) -> None:
        """List the whole state in pages.

        A consistent read: older than what we have only if the cluster was restored.
        """
        self._opened_at = self._clock.monotonic()
        try:
            objects, resource_version = await self._list_pages(self._settings.page_size)
        except Gone:
            # The list outlived the server's revision history; without pages nothing can expire.
            objects, resource_version = await self._list_pages(0)
        await self._replace(objects, resource_version)

    async def _list_pages(self, page_size: int) -> tuple[dict[str, T], str]:
        objects: dict[str, T] = {}
        token = ""
        while True:
            page = await self._source.list_page(limit=page_size, continue_token=token)
            for obj in page.items:
                objects[key_of(obj.metadata)] = self._sink.trimmed(obj)
                if self._slices.step():
                    await self._slices.pause()
            last, token = token, page.metadata.continue_
            if not token:
                return objects, page.metadata.resource_version
            if token == last:
                raise TransportError("server returned the same continue token twice")

    async def _stream_list_and_follow(self) -> None:
        """Streamed list, then its watch; clears `_streams` if the server does not support it."""
        self._opened_at = self._clock.monotonic()
        try:
            async with self._source.watch(
                resource_version="", timeout_s=self._watch_timeout_s(), send_initial_events=True
            ) as watch:
                # Separate functions: the list must not live as long as the watch, nor as the error
                # that ends it.
                newer = await self._stream_list(watch)
                await self._follow(watch, newer)
        except (ApiError, TransportError) as error:
            if self.resource_version:
                raise  # the list was complete; the watch after it failed
            if isinstance(error, BadRequest | Invalid):
                log.info("The server does not stream lists, using pages", type=self.name, err=error)
                self._streams = False
                return
            # A list that repeatedly fails to stream is made in pages: progress matters more.
            self._failed_streams += 1
            raise

    async def _stream_list(self, watch: Watch[T]) -> list[WatchEvent[T]]:
        """Apply a streamed list; returns the events that arrived together with its end."""
        objects, resource_version, newer = await self._collect_initial(watch)
        await self._replace(objects, resource_version)
        return newer

    async def _collect_initial(
        self, watch: Watch[T]
    ) -> tuple[dict[str, T], str, list[WatchEvent[T]]]:
        """The objects of a streamed list, its revision, and events that arrived with its end."""
        objects: dict[str, T] = {}
        trimmed = self._sink.trimmed
        while True:
            batch = await self._next_initial_batch(watch)
            # A buffered batch is returned without waiting, and the next may be, too.
            await self._slices.pause()
            for position, event in enumerate(batch):
                if event.type == "BOOKMARK":
                    metadata = event.object.metadata
                    if (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                        newer = batch[position + 1 :]
                        return objects, metadata.resource_version, newer
                elif event.type == "DELETED":
                    objects.pop(key_of(event.object.metadata), None)
                else:
                    objects[key_of(event.object.metadata)] = trimmed(event.object)

    async def _next_initial_batch(self, watch: Watch[T]) -> list[WatchEvent[T]]:
        try:
            async with asyncio.timeout(self._settings.initial_silence_s):
                batch = await watch.next_batch()
        except TimeoutError:
            self._streams = False
            raise TransportError("server never finished the streamed list, using pages") from None
        if not batch:
            raise TransportError("server ended the streamed list before it was complete")
        return batch

    async def _replace(self, objects: Mapping[str, T], resource_version: str) -> None:
        was_restored = self._is_restored
        await self._examine(objects.values(), resource_version)
        if self._is_restored and not was_restored and self._restore is not None:
            self._restore.require_turn(self.name)
        self._require_trust()
        await self._sink.replace(objects, is_restored=self._is_restored)
        self._require_trust()
        if self._is_restored and self._restore is not None:
            self._restore.finish(self.name)
        self._is_restored, self._highest = False, None
        self._unproven = self._changeless = None
        self._reached(resource_version, number_of(resource_version))
        self._confirm()
        self._failed_streams = 0
        self.last_error = None
        log.info("Caches populated", v=2, type=self.name, objects=len(objects))

    async def _examine(self, objects: Iterable[T], resource_version: str) -> None:
        """Find the newest listed object, and whether the list continues the history we know."""
        reached, revision = self._highest, number_of(resource_version)
        if reached is not None and revision is not None and revision < reached:
            self._note_restore(ClusterRestored(f"server is at revision {revision}"))
        newest, newest_revision = None, 0
        for obj in objects:
            obj_revision = number_of(obj.metadata.resource_version) or 0
            if obj_revision > newest_revision:
                newest, newest_revision = obj, obj_revision
            if (
                reached is not None
                and not self._is_restored
                and self._sink.is_foreign(obj, reached)
            ):
                self._note_restore(_foreign(obj))
            if self._slices.step():
                await self._slices.pause()
        self._newest = WatchEvent("ADDED", newest) if newest is not None else None
        self._is_listed = True
        self._newest_span = self._opened_at, self._clock.monotonic()
        self._heard_at = self._opened_at

    def _note_restore(self, error: ClusterRestored) -> None:
        if self._is_restored:
            return
        self._is_restored = True
        log.warning(
            "The cluster went back to an older revision, listing again",
            type=self.name,
            reached=self._highest,
            err=error,
        )
        if self._restore is not None:
            self._restore.begin(self.name)

    def distrust(self) -> None:
        """Another reflector noticed a restore: list again at once."""
        self._is_restored = True
        self._distrusted.set()

    def _require_trust(self) -> None:
        """Reject a list that may predate a restore that another reflector noticed meanwhile."""
        if self._distrusted.is_set():
            raise ClusterRestored("another kind went back to an older revision during the list")

    # Watching.

    async def _follow(self, watch: Watch[T], batch: list[WatchEvent[T]]) -> None:
        """Apply this batch and all further ones; compare revisions while none arrive."""
        applying = asyncio.ensure_future(self._apply_all(watch, batch))
        checking = asyncio.ensure_future(self._check_while_quiet())
        try:
            await asyncio.wait((applying, checking), return_when=asyncio.FIRST_COMPLETED)
            (applying if applying.done() else checking).result()
        finally:
            applying.cancel()
            checking.cancel()
            await asyncio.gather(applying, checking, return_exceptions=True)

    async def _apply_all(self, watch: Watch[T], batch: list[WatchEvent[T]]) -> None:
        while batch or (batch := await watch.next_batch()):
            self.last_error = None
            self._batch_at = self._clock.monotonic()
            taken_before = self._taken
            for event in batch:
                self._take(event)
                if self._slices.step():
                    await self._slices.pause()
            if self._taken > taken_before:
                self._confirm()
            batch = []

    async def _check_while_quiet(self) -> None:
        """Runs beside a watch until cancelled; returns if the watch is to be replaced.

        Raises:
            ClusterRestored: the server has another history.
            Gone: the history is unclear; requires a list.
            TransportError: the watch is behind; requires a new one.
        """
        pause_s = self._settings.first_check_s
        was_behind = False
        while True:
            taken_before = self._taken
            await self._sleep_unless_distrusted(pause_s)
            pause_s = self._settings.check_s
            if self._taken != taken_before:
                was_behind = False
                continue
            try:
                is_current = await self.is_current()
            except (ApiError, TransportError, CredentialsError) as error:
                log.info("Cannot compare with the server's state", v=2, type=self.name, err=error)
                continue
            if is_current or self._taken != taken_before:
                # Objects that are new to the server show only in a watch.
                silent_s = self._clock.monotonic() - max(self._opened_at, self._batch_at)
                if silent_s >= self._settings.silence_s:
                    log.info("Watch is silent, replacing it", v=2, type=self.name, after=silent_s)
                    return
                self._confirm()
            elif self._unproven is not None:
                raise Gone("the server did not repeat the newest known change, and has another one")
            elif was_behind:
                raise TransportError("the watch does not bring the changes that the server has")
            else:
                pause_s = self._settings.first_check_s  # the event may be in transit
            was_behind = not is_current

    async def _sleep_unless_distrusted(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._distrusted.wait()
        except TimeoutError:
            return
        raise ClusterRestored("another kind went back to an older revision")

    async def is_current(self) -> bool:
        """Whether the object of the newest known change is unchanged; False if changed since.

        Raises:
            ClusterRestored: the server has not reached our revision, or has another history.
        """
        reached, witness = self._revision, self._witness()
        if witness is None:
            page = await self._source.list_page(limit=1, continue_token="")
        else:
            metadata = witness.obj.metadata
            page = await self._source.read(metadata.namespace, metadata.name)
        current = number_of(page.metadata.resource_version)
        if reached is None or current is None:
            return True
        if current < reached:
            raise ClusterRestored(f"server is at revision {current}")
        if witness is not None:
            return witness.agrees_with(page.items, reached)
        for obj in page.items:
            if self._sink.is_foreign(obj, reached):
                raise _foreign(obj)
        return True

    def _confirm(self) -> None:
        self.confirmed_at = self._clock.monotonic()

    def _take(self, event: WatchEvent[T]) -> None:
        resource_version = event.object.metadata.resource_version
        # Within one collection revisions only grow, so an event that is not newer than the last is
        # a repetition. Events of servers with non-numeric revisions (some aggregated ones) are all
        # applied.
        revision = number_of(resource_version)
        if self._unproven is not None and revision is not None:
            self._prove(event, revision, self._unproven)
        if self._revision is not None and revision is not None and revision <= self._revision:
            if self._changeless is not None and revision in self._changeless:
                self._doubt(event)
            return
        self._taken += 1
        self._heard_at = self._batch_at
        if event.type != "BOOKMARK":
            self._sink.apply(event)
            self._newest, self._is_listed = event, False
            self._newest_span = self._opened_at, self._batch_at
        # As `_reached`, inlined because every pod comes here twice.
        self.resource_version = resource_version
        self._revision = revision
        if revision is not None:
            self._highest = revision

    def _prove(self, event: WatchEvent[T], revision: int, witness: Witness[T]) -> None:
        """The first event of a resumed watch must be the newest known change."""
        if revision < witness.revision:
            return  # an older event, repeated
        if revision != witness.revision or not witness.is_repeated_by(event):
            raise ClusterRestored(
                f"server has revision {revision} where {witness.key} was changed at "
                f"{witness.revision}"
            )
        self._unproven = None

    @staticmethod
    def _doubt(event: WatchEvent[T]) -> None:
        """An event between the newest known change and the revision reached before resuming.

        The object may have come and gone before it could be listed, or the cluster was restored;
        only a list shows which.
        """
        if event.type != "BOOKMARK":
            key, revision = key_of(event.object.metadata), event.object.metadata.resource_version
            raise Gone(
                f"the server has a change of {key} at revision {revision}, which is not known"
            )

    def _reached(self, resource_version: str, revision: int | None) -> None:
        """`revision` is that version as a number, if it is one."""
        self.resource_version = resource_version
        self._revision = revision
        if revision is not None:
            self._highest = revision

    def _watch_timeout_s(self) -> float:
        return self._settings.min_watch_s * (1.0 + self._random.random())


def _foreign(obj: ApiObject) -> ClusterRestored:
    key, revision = key_of(obj.metadata), obj.metadata.resource_version
    return ClusterRestored(f"{key} at revision {revision} does not follow from what is known")


def is_resource_version_too_large(error: ApiError) -> bool:
    """Whether the server has not reached the requested revision (perhaps after a restore)."""
    details = error.details
    causes = (isinstance(details, StatusDetails) and details.causes) or []
    return any(cause.reason == "ResourceVersionTooLarge" for cause in causes) or (
        "Too large resource version" in error.message
    )
