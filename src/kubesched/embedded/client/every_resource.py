"""Following every kind of object the server keeps, including those that custom definitions add later."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.embedded.apimachinery.catalog import ResourceInfo
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.client.local import LocalApi

Follower = Callable[[ResourceInfo, str, JsonObject, JsonObject | None], None]
"""Called with the resource, the kind of change, the object and its state before."""

_NOT_FOLLOWED = frozenset({"events"})  # events have no owners, own nothing, and are many


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
            resource.storage_key: resource
            for resource in self._api.registry.catalog
            if resource.is_stored
        }
        return list(by_key.values())

    def start(self) -> None:
        """Subscribe; what exists arrives as ADDED."""
        if not self._followers:
            return
        self._is_started = True
        self._api.registry.catalog.on_change(self._catalog_changed)
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
