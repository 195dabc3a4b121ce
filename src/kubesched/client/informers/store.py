"""The objects of one informer by key, with indexes.

Looks up objects and keeps the indexes current. The informer decides which revision is newer, and is
the only writer. Reading is safe at any time on the event loop, since no change awaits half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from kubesched.api.meta import ApiObject

NAMESPACE_INDEX = "namespace"


T = TypeVar("T", bound=ApiObject)

IndexFunction = Callable[[T], Iterable[str]]


def _namespace_of(obj: ApiObject) -> tuple[str, ...]:
    namespace = obj.metadata.namespace
    return (namespace,) if namespace else ()


class Index(Generic[T]):
    """The keys of objects by a value computed per object.

    After every change it holds exactly the keys whose object's function yields the value, in
    insertion order; values without keys are dropped.
    """

    __slots__ = ("_function", "_keys_by_value")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._keys_by_value: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> Iterable[str]:
        return self._keys_by_value.get(value, ())

    def values(self) -> Iterator[str]:
        """Every value that some object has."""
        return iter(self._keys_by_value)

    def change(self, key: str, old: T | None, new: T | None) -> None:
        """An object appeared (`old` is None), changed, or disappeared (`new` is None)."""
        old_values = () if old is None else tuple(self._function(old))
        new_values = () if new is None else tuple(self._function(new))
        if old_values == new_values:
            return
        for value in old_values:
            keys = self._keys_by_value.get(value)
            if keys is not None and value not in new_values:
                keys.pop(key, None)
                if not keys:
                    del self._keys_by_value[value]
        for value in new_values:
            # Most pods may be in one namespace.
            self._keys_by_value.setdefault(value, {})[key] = None


class Store(Generic[T]):
    """Objects by key, iterated in insertion order of the keys."""

    def __init__(self) -> None:
        self.version = 0
        """Counts changes."""
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, Index[T]] = {NAMESPACE_INDEX: Index(_namespace_of)}
        self._changing: tuple[Index[T], ...] = ()
        """The indexes an update may change; the namespace, part of the key, never changes."""
        self._listeners: tuple[Callable[[T | None, T | None], None], ...] = ()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def keys(self) -> list[str]:
        return list(self._objects)

    def values(self) -> list[T]:
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects for which the index function yields this value."""
        objects = self._objects
        return [objects[key] for key in self._index(index).keys(value)]

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Index all objects, existing ones included. A name can be used once."""
        if name in self._indexes:
            raise ValueError(f'index "{name}" exists already')
        index = Index(function)
        for key, obj in self._objects.items():
            index.change(key, None, obj)
        self._indexes[name] = index
        self._changing = (*self._changing, index)

    def subscribe(self, listener: Callable[[T | None, T | None], None]) -> Callable[[], None]:
        """Call back with (old, new) on each change, before handlers; returns an unsubscriber.

        Listeners only note what changed: they must neither fail nor change a store.
        """
        self._listeners = (*self._listeners, listener)
        return lambda: self._unsubscribe(listener)

    def _unsubscribe(self, listener: Callable[[T | None, T | None], None]) -> None:
        listeners = list(self._listeners)
        listeners.remove(listener)
        self._listeners = tuple(listeners)

    def put(self, key: str, obj: T) -> T | None:
        """Add or replace; returns the previous object."""
        old = self._objects.get(key)
        self._objects[key] = obj
        self.version += 1
        for index in self._indexes.values() if old is None else self._changing:
            index.change(key, old, obj)
        for listener in self._listeners:
            listener(old, obj)
        return old

    def remove(self, key: str) -> T | None:
        """Remove; returns the previous object, or None."""
        old = self._objects.pop(key, None)
        if old is not None:
            self.version += 1
            for index in self._indexes.values():
                index.change(key, old, None)
            for listener in self._listeners:
                listener(old, None)
        return old

    def _index(self, name: str) -> Index[T]:
        try:
            return self._indexes[name]
        except KeyError:
            raise ValueError(f'no index "{name}", only {", ".join(self._indexes)}') from None
