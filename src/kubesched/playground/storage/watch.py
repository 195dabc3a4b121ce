"""Watches: follow a collection's changes from a revision.

A watch has no queue of its own. It is a position in the collection's shared history plus a wake-up:
memory does not grow with the number of watchers, a burst of writes is read as one batch, and a
reader that falls behind the bounded history gets `Gone` instead of slowing the others down.

With a selector, changes are relative to what the watcher could see: an object that begins to match
is ADDED, one that ceases to match is DELETED.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from kubesched.base.errors import Gone
from kubesched.playground.apimachinery.objects import ChangeType
from kubesched.playground.apimachinery.selectors import Predicate
from kubesched.playground.storage.store import Change, Entry, Store

WatchEvent: TypeAlias = tuple[ChangeType, Entry, int]
"""Change type, the entry to show, and the revision of the change."""

MAX_BATCH = 512  # changes processed before other tasks can run


class Watch:
    """A cursor over a collection's changes; a context manager that removes its wake-up."""

    def __init__(
        self,
        store: Store,
        resource: str,
        revision: int,
        *,
        namespace: str | None = None,
        matches: Predicate | None = None,
    ) -> None:
        self._collection = store.collection(resource)
        self._position = self._collection.position_after(revision)
        self._namespace = namespace
        self._matches = matches
        self._wake_up: asyncio.Future[bool] | None = None
        self.is_closed = False
        self._unsubscribe = store.subscribe(resource, self._on_change)

    def close(self) -> None:
        """End the watch; a pending `next_batch` returns an empty batch."""
        self.is_closed = True
        self._unsubscribe()
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(False)

    async def next_batch(self, timeout_s: float | None = None) -> list[WatchEvent]:
        """The next matching events; empty after `timeout_s` without one or after `close`.

        An empty batch means that nothing is pending up to the store's current revision, so a
        bookmark may be sent.
        """
        is_time_up = False
        while not self.is_closed:
            batch = self.poll()
            if batch:
                return batch
            if batch is None:
                if is_time_up:
                    return []
                is_time_up = not await self._wait(timeout_s)
        return []

    def poll(self) -> list[WatchEvent] | None:
        """Pending events: None if there are no changes, empty if no change matches."""
        changes = self._collection.changes_from(self._position, MAX_BATCH)
        if changes is None:
            raise Gone(
                "too old resource version: the watcher is behind revision"
                f" {self._collection.compacted}"
            )
        if not changes:
            return None
        self._position += len(changes)
        if self._namespace is None and self._matches is None:
            return [(change.type, change.entry, change.revision) for change in changes]
        events = []
        for change in changes:
            event = self._seen_from_here(change)
            if event is not None:
                events.append(event)
        return events

    def _seen_from_here(self, change: Change) -> WatchEvent | None:
        if (
            self._namespace is not None
            and change.entry.obj["metadata"].get("namespace", "") != self._namespace
        ):
            return None
        matches = self._matches
        if matches is None:
            return change.type, change.entry, change.revision
        is_visible = change.type != "DELETED" and matches(change.entry.obj)
        was_visible = change.old is not None and matches(change.old.obj)
        if is_visible:
            return "MODIFIED" if was_visible else "ADDED", change.entry, change.revision
        if was_visible:
            assert change.old is not None
            return "DELETED", _last_visible(change, change.old), change.revision
        return None

    def _on_change(self, change: Change) -> None:
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(False)

    async def _wait(self, timeout_s: float | None) -> bool:
        """Wait for a change; False on timeout."""
        loop = asyncio.get_running_loop()
        wake_up = self._wake_up = loop.create_future()
        # A timer that resolves the same future costs a tenth of asyncio.wait_for.
        timer = loop.call_later(timeout_s, self._on_timeout) if timeout_s is not None else None
        try:
            return not await wake_up
        finally:
            self._wake_up = None
            if timer is not None:
                timer.cancel()

    def _on_timeout(self) -> None:
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(True)


def _last_visible(change: Change, old: Entry) -> Entry:
    """The last state the watcher saw, with the revision of the change that hid it."""
    if change.type == "DELETED":
        return change.entry
    metadata = {**old.obj["metadata"], "resourceVersion": str(change.revision)}
    return Entry({**old.obj, "metadata": metadata}, change.revision, old.managers)
