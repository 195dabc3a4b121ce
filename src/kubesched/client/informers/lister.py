"""Read access to an informer's store, for plugins and controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kubesched.api.meta import ApiObject
from kubesched.api.names import object_key
from kubesched.client.informers.store import Store

T = TypeVar("T", bound=ApiObject)


class Lister(Generic[T]):
    """Objects by name or namespace; from memory, so they may lag behind the server."""

    def __init__(self, store: Store[T]) -> None:
        self.store = store

    @property
    def version(self) -> int:
        """Changes with every change to the store, so that users can cache derived data."""
        return self.store.version

    def get(self, namespace: str, name: str) -> T | None:
        """The object, or None; cluster-scoped kinds have namespace ""."""
        return self.store.get(object_key(namespace, name))

    def list(
        self, namespace: str | None = None, matches: Callable[[T], bool] | None = None
    ) -> list[T]:
        """All objects, or those of a namespace or matching a predicate, in order of arrival."""
        store = self.store
        objects = store.of_namespace(namespace) if namespace else store.values()
        return objects if matches is None else [obj for obj in objects if matches(obj)]

    def subscribe(self, listener: Callable[[T | None, T | None], None]) -> Callable[[], None]:
        """`Store.subscribe`: calls back with (old, new); returns a function that unsubscribes."""
        return self.store.subscribe(listener)
