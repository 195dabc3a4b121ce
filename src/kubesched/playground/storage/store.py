"""The revisioned store: live objects and their ordered changes.

One counter numbers every write of every resource. A collection per resource keeps the live entries
and a bounded history of changes; the history serves watches resuming from a revision, lists that
continue at the revision of their first page (undoing later changes), and in-process subscribers.

    write ──> replace entry, append change, journal ──> pending changes ──> subscribers, in order

Invariants:
- A stored object is never changed in place; `Entry.body` is computed once and shared by readers.
- `metadata.resourceVersion` of an entry is its revision; a deleted object carries the revision of
  its deletion.
- Subscribers see every change of a collection once and in order, even if one of them
  writes during a notification.
- A revision at or below `Collection.compacted` can no longer be read or resumed from.

Elsewhere: admission, defaults, uids, conflict messages (`registry`), waiting and streaming
(`watch`), disks (`journal`).
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from kubesched.base.errors import Gone
from kubesched.base.logs import get_logger
from kubesched.playground.apimachinery.managed_fields.managers import Manager, parse_managers
from kubesched.playground.apimachinery.objects import ChangeType, JsonObject, encode

if TYPE_CHECKING:
    from kubesched.playground.storage.journal import SqliteJournal

log = get_logger(__name__)


# Enough for a watcher seconds behind a burst of thousands of writes/s, at a few KB each.
DEFAULT_HISTORY_LIMIT = 32_768


class Entry:
    """One version of one object; all readers share its encoding."""

    __slots__ = ("_body", "_variants", "managers", "obj", "revision")

    def __init__(self, obj: JsonObject, revision: int, managers: tuple[Manager, ...] = ()) -> None:
        self.obj = obj
        self.revision = revision
        self.managers = managers
        """Owners of fields, kept outside the object because in-process readers do not need them."""
        self._body: bytes | None = None
        self._variants: dict[str, bytes] | None = None

    @property
    def body(self) -> bytes:
        """The object as JSON, including managed fields."""
        if self._body is None:
            self._body = encode(self.with_managed_fields())
        return self._body

    def with_managed_fields(self) -> JsonObject:
        if not self.managers:
            return self.obj
        managed = [manager.encoded for manager in self.managers]
        return {**self.obj, "metadata": {**self.obj["metadata"], "managedFields": managed}}

    def release_encodings(self) -> None:
        """Drop cached encodings; a later reader encodes again."""
        self._body = self._variants = None

    def variant(self, name: str, build: Callable[[Entry], bytes]) -> bytes:
        """Another encoding of this version (e.g. metadata only), built once."""
        if self._variants is None:
            self._variants = {}
        variant = self._variants.get(name)
        if variant is None:
            variant = self._variants[name] = build(self)
        return variant


class Change:
    """One write: the new entry and the old one; for a deletion, `entry` is the last state."""

    __slots__ = ("entry", "old", "revision", "type")

    def __init__(self, change_type: ChangeType, entry: Entry, old: Entry | None) -> None:
        self.type = change_type
        self.entry = entry
        self.old = old
        self.revision = entry.revision


Subscriber: TypeAlias = Callable[[Change], None]
_revision_of = attrgetter("revision")


class Collection:
    """All objects of one resource, and their recent changes."""

    def __init__(self, resource: str, compacted: int, history_limit: int) -> None:
        self.resource = resource
        self.by_namespace: dict[str, dict[str, Entry]] = {}
        self.count = 0
        self.changed_at = compacted
        """Revision of the last change."""
        self.compacted = compacted
        """The newest revision after which the history is incomplete."""
        self.subscribers: list[Subscriber] = []
        self._history: list[Change] = []
        self._dropped = 0  # total changes dropped from the history; maps positions to list indexes
        self._history_limit = history_limit
        self._sorted_names: dict[str, list[str]] = {}

    def get(self, namespace: str, name: str) -> Entry | None:
        names = self.by_namespace.get(namespace)
        return names.get(name) if names is not None else None

    def entries(
        self, namespace: str | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[Entry]:
        """Live entries in key order, of one or all namespaces, after the key `after`."""
        for other, first in self._spans(namespace, after):
            names = self.by_namespace[other]
            for name in islice(self._names_in_order(other, names), first, None):
                yield names[name]

    def count_entries(
        self, namespace: str | None = None, after: tuple[str, str] | None = None
    ) -> int:
        """Number of entries that `entries` would return."""
        return sum(
            len(self.by_namespace[other]) - first for other, first in self._spans(namespace, after)
        )

    def _spans(
        self, namespace: str | None, after: tuple[str, str] | None
    ) -> Iterator[tuple[str, int]]:
        """Namespaces in order, each with the position of the first name after `after`."""
        for other in sorted(self.by_namespace) if namespace is None else [namespace]:
            names = self.by_namespace.get(other)
            if names is None or (after is not None and other < after[0]):
                continue
            if after is not None and other == after[0]:
                yield other, bisect.bisect_right(self._names_in_order(other, names), after[1])
            else:
                yield other, 0

    def entries_at(self, revision: int, namespace: str | None = None) -> Iterator[Entry]:
        """Entries at `revision` in key order; `Gone` if it is no longer in the history."""
        self.require_history(revision)
        undone: dict[tuple[str, str], Entry | None] = {}
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            metadata = change.entry.obj["metadata"]
            undone[metadata.get("namespace", ""), metadata["name"]] = change.old
        if not undone:
            yield from self.entries(namespace)
            return
        current = {
            (space, name): entry
            for space, names in self.by_namespace.items()
            if namespace is None or space == namespace
            for name, entry in names.items()
        }
        for key, old in undone.items():
            if old is None:
                current.pop(key, None)
            elif namespace is None or key[0] == namespace:
                current[key] = old
        for key in sorted(current):
            yield current[key]

    def require_history(self, revision: int) -> None:
        if revision < self.compacted:
            raise Gone(f"too old resource version: {revision} ({self.compacted})")

    def position_after(self, revision: int) -> int:
        """Position of the first change after `revision`, counted from the first one ever."""
        self.require_history(revision)
        return self._dropped + bisect.bisect_right(self._history, revision, key=_revision_of)

    def changes_from(self, position: int, limit: int) -> list[Change] | None:
        """Up to `limit` changes from `position`; None if some were dropped already."""
        index = position - self._dropped
        if index < 0:
            return None
        return self._history[index : index + limit]

    def compact(self, revision: int) -> None:
        """Drop all changes up to and including `revision`."""
        index = bisect.bisect_right(self._history, revision, key=_revision_of)
        self._drop(index)
        self.compacted = max(self.compacted, revision)

    def apply(self, namespace: str, name: str, change: Change) -> None:
        """Apply a change that the store has numbered."""
        names = self.by_namespace.get(namespace)
        if change.type == "DELETED":
            assert names is not None
            del names[name]
            self.count -= 1
            self._sorted_names.pop(namespace, None)
            if not names:
                del self.by_namespace[namespace]
        else:
            if names is None:
                names = self.by_namespace[namespace] = {}
            if change.old is None:
                self.count += 1
                self._sorted_names.pop(namespace, None)
            names[name] = change.entry
        self.changed_at = change.revision
        self._history.append(change)
        # Dropping a quarter at a time keeps the amortised cost of a write constant.
        if len(self._history) > self._history_limit:
            self._drop(len(self._history) - self._history_limit * 3 // 4)

    def rewind(self, revision: int) -> None:
        """Undo every change after `revision`; see `Store.rewind`."""
        while self._history and self._history[-1].revision > revision:
            change = self._history.pop()
            metadata = change.entry.obj["metadata"]
            namespace, name = metadata.get("namespace", ""), metadata["name"]
            names = self.by_namespace.setdefault(namespace, {})
            self.count += (change.old is not None) - (name in names)
            names.pop(name, None)
            if change.old is not None:
                names[name] = change.old
            elif not names:
                del self.by_namespace[namespace]
            self._sorted_names.pop(namespace, None)
        self.changed_at = self._history[-1].revision if self._history else self.compacted

    def _drop(self, count: int) -> None:
        if count <= 0:
            return
        self.compacted = self._history[count - 1].revision
        del self._history[:count]
        self._dropped += count

    def _names_in_order(self, namespace: str, names: dict[str, Entry]) -> list[str]:
        ordered = self._sorted_names.get(namespace)
        if ordered is None:
            ordered = self._sorted_names[namespace] = sorted(names)
        return ordered


class Store:
    """All collections, sharing one revision counter."""

    def __init__(
        self, *, history_limit: int = DEFAULT_HISTORY_LIMIT, journal: SqliteJournal | None = None
    ) -> None:
        assert history_limit > 0
        self.revision = 1
        self._history_limit = history_limit
        self._journal = journal
        self._collections: dict[str, Collection] = {}
        self._initial_revision = 1
        self._pending: deque[tuple[Collection, Change]] = deque()
        self._is_notifying = False

    @classmethod
    def restore(
        cls,
        rows: Iterator[tuple[str, int, JsonObject]],
        revision: int,
        *,
        history_limit: int = DEFAULT_HISTORY_LIMIT,
        journal: SqliteJournal | None = None,
    ) -> Store:
        """A store with a journal's objects: resource, revision and content."""
        store = cls(history_limit=history_limit, journal=journal)
        store.revision = store._initial_revision = max(revision, 1)
        for resource, object_revision, obj in rows:
            collection = store.collection(resource)
            metadata = obj["metadata"]
            managers = parse_managers(metadata.pop("managedFields", None))
            names = collection.by_namespace.setdefault(metadata.get("namespace", ""), {})
            names[metadata["name"]] = Entry(obj, object_revision, managers)
            collection.count += 1
        return store

    def collection(self, resource: str) -> Collection:
        collection = self._collections.get(resource)
        if collection is None:
            collection = Collection(resource, self._initial_revision, self._history_limit)
            self._collections[resource] = collection
        return collection

    def collections(self) -> list[Collection]:
        return list(self._collections.values())

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        collection = self._collections.get(resource)
        return collection.get(namespace, name) if collection is not None else None

    def put(self, resource: str, obj: JsonObject, managers: tuple[Manager, ...] = ()) -> Entry:
        """Store a new version; takes over `obj`, whose `metadata` must not be shared."""
        if self._journal is not None:
            self._journal.check_writable()
        collection = self.collection(resource)
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        old = collection.get(namespace, name)
        assert old is None or old.obj["metadata"] is not metadata, "a stored object is frozen"
        self.revision += 1
        metadata["resourceVersion"] = str(self.revision)
        entry = Entry(obj, self.revision, managers)
        if old is not None:
            # The old version stays in the history, but watchers that keep up have read it.
            old.release_encodings()
        self._commit(
            collection, namespace, name, Change("ADDED" if old is None else "MODIFIED", entry, old)
        )
        return entry

    def remove(
        self, resource: str, namespace: str, name: str, last: JsonObject | None = None
    ) -> Entry:
        """Delete an existing object; the returned entry carries the deletion's revision.

        `last` is the final state to record, if it differs from the stored one.
        """
        if self._journal is not None:
            self._journal.check_writable()
        collection = self.collection(resource)
        old = collection.get(namespace, name)
        assert old is not None, f"{resource} {namespace}/{name} is not in the store"
        self.revision += 1
        obj = last if last is not None else old.obj
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision)}
        entry = Entry({**obj, "metadata": metadata}, self.revision, old.managers)
        self._commit(collection, namespace, name, Change("DELETED", entry, old))
        return entry

    def subscribe(self, resource: str, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` on every later change; the returned function unsubscribes it."""
        subscribers = self.collection(resource).subscribers
        subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in subscribers:
                subscribers.remove(subscriber)

        return unsubscribe

    def rewind(self, revision: int) -> None:
        """Return to an older revision, like an etcd restore; for tests and simulation.

        Subscribers are not notified, and open watches stay silent. `Gone` if the revision is no
        longer in the history.
        """
        for collection in self._collections.values():
            collection.require_history(revision)
        for collection in self._collections.values():
            collection.rewind(revision)
        self.revision = revision

    def check_invariants(self) -> None:
        """Assert the invariants between writes; for tests and simulation."""
        for collection in self._collections.values():
            entries = list(collection.entries())
            assert len(entries) == collection.count
            for entry in entries:
                assert entry.obj["metadata"]["resourceVersion"] == str(entry.revision)
                assert entry.revision <= self.revision
                if entry._body is not None:
                    assert entry._body == encode(entry.with_managed_fields()), (
                        "a stored object was changed in place"
                    )

    def _commit(self, collection: Collection, namespace: str, name: str, change: Change) -> None:
        collection.apply(namespace, name, change)
        if self._journal is not None:
            self._journal.record(collection.resource, change)
        if collection.subscribers:
            self._pending.append((collection, change))
            self._notify()

    def _notify(self) -> None:
        # A subscriber may write: its change is queued until the current one has reached all
        # subscribers.
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._pending:
                collection, change = self._pending.popleft()
                for subscriber in tuple(collection.subscribers):
                    try:
                        subscriber(change)
                    except Exception:
                        metadata = change.entry.obj["metadata"]
                        log.exception(
                            "Subscriber failed",
                            resource=collection.resource,
                            change=change.type,
                            namespace=metadata.get("namespace", ""),
                            name=metadata["name"],
                        )
        finally:
            self._is_notifying = False
