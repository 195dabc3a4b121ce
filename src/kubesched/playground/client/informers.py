"""Shared, indexed views of the API server's objects.

There is one `Informer` per resource, shared by all controllers. The server delivers every change
synchronously, in revision order, so a view is never older than the last write: controllers need
neither expectations nor re-reads. Views hold references to the server's own objects, not copies.

`InformerFactory.start` subscribes in the order in which informers were requested; handlers run in
the order in which they were added; lists follow the order in which objects appeared. Handlers only
enqueue keys. They must not write to the API, which would nest one write in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import ChangeType, JsonObject, key_of, namespace_of
from kubesched.playground.apimachinery.pods import node_name_of
from kubesched.playground.client.local import Listener, LocalApi

Part = Literal["spec", "ownership", ""]
"""The part of an object that an index reads: its spec, its labels and owners, or anything."""

Follower = Callable[[ResourceInfo, str, JsonObject, JsonObject | None], None]
"""Called with the resource, the change type, the object and its previous state."""

_NOT_FOLLOWED = frozenset({"events"})  # events are many, and have neither owners nor dependents


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Index:
    """Maps an object to index values, and declares which part of the object they depend on."""

    values: Callable[[JsonObject], Iterable[str]]
    reads: Part = ""
    """Objects are not re-indexed if a change leaves this part the same."""


BY_NAMESPACE = Index(lambda obj: (namespace_of(obj),), "ownership")
BY_NODE = Index(lambda pod: (node_name_of(pod),), "spec")
"""Pods by the node they are bound to; unbound pods under "" (the empty name)."""


class Informer:
    """All objects of one resource, by key and by index."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self._objects: dict[str, JsonObject] = {}
        self._indexes: dict[Index, dict[str, dict[str, None]]] = {}
        self._derived: dict[type, object] = {}
        self._handlers: list[Listener] = []

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self._objects.values())

    def get(self, key: str) -> JsonObject | None:
        """The object with key `namespace/name` (or `name`, if cluster-scoped)."""
        return self._objects.get(key)

    def find(self, index: Index, value: str) -> list[JsonObject]:
        """The objects with this index value."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def values(self, index: Index) -> list[str]:
        """All values of an index that have objects."""
        return list(self._indexes[index])

    def count(self, index: Index, value: str) -> int:
        return len(self._indexes[index].get(value, ()))

    def add_index(self, index: Index) -> None:
        """Add an index; adding the same one again has no effect."""
        if index in self._indexes:
            return
        self._indexes[index] = {}
        for key, obj in self._objects.items():
            self._file(index, key, index.values(obj))

    def add_handler(self, handler: Listener) -> None:
        self._handlers.append(handler)

    def derive(self, make: Callable[[Informer], T]) -> T:
        """An object derived from this view by `make` (its class), created once and shared."""
        key = cast("type", make)
        if key not in self._derived:
            self._derived[key] = make(self)
        return cast("T", self._derived[key])

    def apply(self, kind: ChangeType, obj: JsonObject, old: JsonObject | None) -> None:
        """Apply one change from the server, then call the handlers."""
        key = key_of(obj)
        before = self._objects.get(key)
        if kind == "DELETED":
            self._objects.pop(key, None)
            self._refile(key, before, None)
        else:
            self._objects[key] = obj
            self._refile(key, before, obj)
        for handler in self._handlers:
            handler(kind, obj, old if old is not None else before)

    def _refile(self, key: str, before: JsonObject | None, after: JsonObject | None) -> None:
        same = _same_parts(before, after) if before is not None and after is not None else ()
        for index, filed in self._indexes.items():
            if index.reads in same:
                continue
            old_values = tuple(index.values(before)) if before is not None else ()
            new_values = tuple(index.values(after)) if after is not None else ()
            if old_values == new_values:
                continue
            for value in old_values:
                keys = filed.get(value)
                if keys is not None and value not in new_values:
                    keys.pop(key, None)
                    if not keys:
                        del filed[value]
            self._file(index, key, new_values)

    def _file(self, index: Index, key: str, values: Iterable[str]) -> None:
        for value in values:
            self._indexes[index].setdefault(value, {})[key] = None


def _same_parts(before: JsonObject, after: JsonObject) -> tuple[Part, ...]:
    """The parts that two versions share by identity; others are compared by their index values."""
    has_same_spec = before.get("spec") is after.get("spec")
    old, new = before["metadata"], after["metadata"]
    has_same_ownership = old.get("labels") is new.get("labels") and old.get(
        "ownerReferences"
    ) is new.get("ownerReferences")
    if has_same_spec:
        return ("spec", "ownership") if has_same_ownership else ("spec",)
    return ("ownership",) if has_same_ownership else ()


class InformerFactory:
    """Provides the one informer of each resource and connects them to the server."""

    def __init__(self, api: LocalApi) -> None:
        self._api = api
        self._informers: dict[str, Informer] = {}
        self._unsubscribe: dict[str, Callable[[], None]] = {}
        self._started = False

    def informer(self, resource: str) -> Informer:
        """The shared informer of a resource; connected immediately if the factory has started."""
        informer = self._informers.get(resource)
        if informer is None:
            informer = self._informers[resource] = Informer(resource)
            if self._started:
                self._connect(informer)
        return informer

    def start(self) -> None:
        """Subscribe all informers requested so far; existing objects arrive as ADDED."""
        self._started = True
        for informer in list(self._informers.values()):
            if informer.resource not in self._unsubscribe:
                self._connect(informer)

    def stop(self) -> None:
        """Unsubscribe; informers keep their last state."""
        self._started = False
        for unsubscribe in self._unsubscribe.values():
            unsubscribe()
        self._unsubscribe.clear()

    def _connect(self, informer: Informer) -> None:
        self._unsubscribe[informer.resource] = self._api.subscribe(
            informer.resource, informer.apply, replay=True
        )


class EveryResource:
    """One subscription per stored resource, shared by all followers."""

    def __init__(self, api: LocalApi) -> None:
        self._api = api
        self._followers: list[Follower] = []
        self._unsubscribe: dict[str, Callable[[], None]] = {}
        self._is_started = False

    def follow(self, follower: Follower) -> None:
        self._followers.append(follower)

    def resources(self) -> list[ResourceInfo]:
        """Every stored resource, each collection once."""
        by_key = {
            resource.storage_key: resource for resource in self._api.catalog if resource.is_stored
        }
        return list(by_key.values())

    def start(self) -> None:
        """Subscribe; existing objects arrive as ADDED."""
        if not self._followers:
            return
        self._is_started = True
        self._api.catalog.on_change(self._catalog_changed)
        self._catalog_changed()

    def stop(self) -> None:
        self._is_started = False
        for unsubscribe in self._unsubscribe.values():
            unsubscribe()
        self._unsubscribe.clear()

    def _catalog_changed(self) -> None:
        if not self._is_started:
            return
        for resource in self.resources():
            key = resource.storage_key
            if key not in self._unsubscribe and key not in _NOT_FOLLOWED:
                self._unsubscribe[key] = self._subscribe(resource)

    def _subscribe(self, resource: ResourceInfo) -> Callable[[], None]:
        def on_change(kind: str, obj: JsonObject, old: JsonObject | None) -> None:
            for follower in self._followers:
                follower(resource, kind, obj, old)

        return self._api.subscribe(resource, on_change, replay=True)
