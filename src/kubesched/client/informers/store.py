"""The objects of one informer by key and by namespace.

The informer decides which revision is newer, and is the only writer. Reading is safe at any time on
the event loop, since no change awaits half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kubesched.api.meta import ApiObject

T = TypeVar("T", bound=ApiObject)


class Store(Generic[T]):
    """Objects by key, iterated in insertion order of the keys."""

    def __init__(self) -> None:
        self.version = 0
        """Counts changes."""
        self._objects: dict[str, T] = {}
        self._keys_by_namespace: dict[str, dict[str, None]] = {}
        """In insertion order, without cluster-scoped objects; an update changes nothing here."""
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

    def of_namespace(self, namespace: str) -> list[T]:
        objects = self._objects
        return [objects[key] for key in self._keys_by_namespace.get(namespace, ())]

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
        if old is None and (namespace := obj.metadata.namespace):
            # Most pods may be in one namespace.
            self._keys_by_namespace.setdefault(namespace, {})[key] = None
        for listener in self._listeners:
            listener(old, obj)
        return old

    def remove(self, key: str) -> T | None:
        """Remove; returns the previous object, or None."""
        old = self._objects.pop(key, None)
        if old is not None:
            self.version += 1
            if namespace := old.metadata.namespace:
                keys = self._keys_by_namespace[namespace]
                del keys[key]
                if not keys:
                    del self._keys_by_namespace[namespace]
            for listener in self._listeners:
                listener(old, None)
        return old
