"""An informer: a store kept current by a reflector, and handlers called on every change.

Turns lists and watch events into consistent add, update and delete calls, makes tombstones, and
isolates a failing handler from the others. `reflector` talks to the server.

What handlers may rely on:

* calls for one informer come in order, one at a time, after the store has changed;
* an object is added once, then updated with the very object of the previous call as `old`, then
  deleted once;
* no revision is delivered twice; an object re-created under its old name is deleted and added,
  never updated;
* a deletion that was only noticed by a later list arrives as `DeletedFinalStateUnknown` with the
  last known state;
* when the cluster was restored to an older revision, every object is deleted (as above) and added.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.api.watch import WatchEvent
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError, Unrecoverable
from kubesched.base.logs import get_logger
from kubesched.client.informers.history import is_foreign
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.reflector import ListerWatcher, Reflector, ReflectorSettings
from kubesched.client.informers.restore import Restore
from kubesched.client.informers.slices import Slices
from kubesched.client.informers.store import Store

log = get_logger(__name__)

T = TypeVar("T", bound=ApiObject)

TYPE_FIELDS = ("kind", "api_version")
"""Servers leave these out of the items of lists."""

Transform = Callable[[T], T]
OnChange = Callable[[str, str, str, Any, Any], None]


@dataclass(frozen=True, slots=True)
class DeletedFinalStateUnknown(Generic[T]):
    """A tombstone for an object whose deletion was missed; `obj` is its last known state."""

    key: str
    obj: T


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventHandler(Generic[T]):
    """Callbacks per change: plain functions on the event loop, which they must not block."""

    on_add: Callable[[T], None] | None = None
    on_update: Callable[[T, T], None] | None = None
    on_delete: Callable[[T | DeletedFinalStateUnknown[T]], None] | None = None


class Informer(Generic[T]):
    """The local copy of one collection."""

    def __init__(
        self,
        source: ListerWatcher[T],
        *,
        name: str,
        clock: Clock,
        random: random.Random,
        transform: Transform[T] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        settings: ReflectorSettings | None = None,
        restore: Restore | None = None,
        is_optional: bool = False,
        hint: str = "",
    ) -> None:
        """`transform` trims each object once, in place; it keeps identity and revision."""
        self.name = name
        self.store: Store[T] = Store()
        self.lister: Lister[T] = Lister(self.store)
        self.handler_error_count = 0
        self.on_change: OnChange | None = None
        """Called before every change: name, op (`a`, `u`, `d`; `t`: tombstone), key, old, new."""
        self.on_processed: Callable[[float], None] | None = None
        """Called with the seconds that each change took."""
        self.reflector = Reflector(
            source,
            self,
            name=name,
            clock=clock,
            random=random,
            sleep=sleep,
            settings=settings,
            restore=restore,
            is_optional=is_optional,
            hint=hint,
        )
        self._clock = clock
        self._transform = transform
        self._handlers: tuple[EventHandler[T], ...] = ()
        self._synced = asyncio.Event()

    # For users.

    @property
    def has_synced(self) -> bool:
        """Whether the first list is in the store and every handler has received all of it."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        await self._synced.wait()

    def unconfirmed_s(self) -> float:
        """Seconds since the store was last known to be current; 0 before the first list."""
        confirmed_at = self.reflector.confirmed_at
        return 0.0 if confirmed_at is None else self._clock.monotonic() - confirmed_at

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Call the handler on every change; existing objects are added before this returns."""
        if handler.on_add is not None:
            for obj in self.store.values():
                self._call(handler.on_add, key_of(obj.metadata), obj)
        self._handlers = (*self._handlers, handler)

    async def run(self) -> None:
        """Never returns; cancel it."""
        await self.reflector.run()

    # For the reflector.

    def trimmed(self, obj: T) -> T:
        return obj if self._transform is None else self._transform(obj)

    async def replace(self, objects: Mapping[str, T], *, is_restored: bool) -> None:
        """Apply the differences in slices: as with a watch, handlers see only valid states."""
        slices = Slices(self._clock)
        for key, obj in objects.items():
            if is_restored:
                # The old object is not an earlier revision of this one, so an update would be a
                # false transition: a bound pod may have lost its node. Both calls follow each other
                # without a yield, so that the scheduler never sees a half-empty cluster.
                self._remove(key, None)
            self._put(key, obj)
            if slices.step():
                await slices.pause()
        for key in self.store.keys():  # noqa: SIM118  # a copy, not a dictionary's view
            if key not in objects:
                self._remove(key, None)
            if slices.step():
                await slices.pause()
        self._synced.set()

    def are_equal(self, known: T, fresh: T) -> bool:
        fresh = self.trimmed(fresh)
        fields = (field for field in type(known).__annotations__ if field not in TYPE_FIELDS)
        return all(getattr(known, field) == getattr(fresh, field) for field in fields)

    def is_foreign(self, obj: T, reached: int) -> bool:
        return is_foreign(obj, self.store.get(key_of(obj.metadata)), reached)

    def apply(self, event: WatchEvent[T]) -> None:
        obj = event.object
        key = key_of(obj.metadata)
        started = 0.0 if self.on_processed is None else self._clock.monotonic()
        if event.type == "DELETED":
            self._remove(key, obj)
        else:
            self._put(key, self.trimmed(obj))
        if self.on_processed is not None:
            self.on_processed(self._clock.monotonic() - started)

    def note_missing(self, key: str) -> None:
        """Forget an object whose deletion was missed; handlers get a tombstone."""
        self._remove(key, None)

    # Changes.

    def _put(self, key: str, obj: T) -> None:
        old = self.store.get(key)
        if old is not None:
            if old.metadata.resource_version == obj.metadata.resource_version:
                return
            if old.metadata.uid != obj.metadata.uid:
                self._remove(key, None)
                old = None
        if self.on_change is not None:
            self.on_change(self.name, "a" if old is None else "u", key, old, obj)
        self.store.put(key, obj)
        for handler in self._handlers:
            if old is None:
                if handler.on_add is not None:
                    self._call(handler.on_add, key, obj)
            elif handler.on_update is not None:
                self._call(handler.on_update, key, old, obj)

    def _remove(self, key: str, final: T | None) -> None:
        """Forget an object; without its final state handlers get a tombstone."""
        old = self.store.get(key)
        if old is None:
            return
        if final is not None:
            final = self.trimmed(final)
        if self.on_change is not None:
            self.on_change(self.name, "t" if final is None else "d", key, old, final)
        self.store.remove(key)
        gone = DeletedFinalStateUnknown(key, old) if final is None else final
        for handler in self._handlers:
            if handler.on_delete is not None:
                self._call(handler.on_delete, key, gone)

    def _call(self, function: Callable[..., None], key: str, *arguments: object) -> None:
        try:
            function(*arguments)
        except Unrecoverable:
            raise  # ends the informer, and with it the process
        except KubeschedError as error:
            # The object is invalid; the message names it and its field.
            self.handler_error_count += 1
            log.error("Event handler failed", error, informer=self.name, object=key)
        except Exception:
            # A failing handler must neither stop the informer nor hide the change from others.
            self.handler_error_count += 1
            log.exception("Event handler failed", informer=self.name, object=key)
