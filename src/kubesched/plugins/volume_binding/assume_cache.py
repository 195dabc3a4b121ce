"""The assume cache: listed objects with our own pending writes applied.

An assumed object replaces the listed one while that still has the revision the assumption is based
on; a newer revision or a deletion ends the assumption. This is checked on every read, without
following the lister's changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of, split_key
from kubesched.framework.handle import Lister
from kubesched.plugins.helper.volumes.claims import not_found

_SWEEP_FROM: Final = 64
"""Outdated assumptions are removed at this many, and then at every doubling."""


T = TypeVar("T", bound=ApiObject)


class AssumeError(Exception):
    """The object was deleted or changed since the decision."""


class AssumeCache(Generic[T]):
    """Assumed objects on top of a lister; `resource` is the plural used in messages."""

    def __init__(
        self, lister: Lister[T], resource: str, changed: Callable[[T], None] | None = None
    ) -> None:
        """`changed` is called with the object in effect after every `assume` and `restore`."""
        self._lister = lister
        self._resource = resource
        self._changed = changed
        self._assumed: dict[str, T] = {}
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        """Number of assumptions, including outdated ones."""
        return len(self._assumed)

    def is_idle(self) -> bool:
        """True if no assumption is in effect."""
        self._sweep()
        return not self._assumed

    def listed(self, key: str) -> T | None:
        """The object as last shown by the API server."""
        namespace, name = split_key(key)
        return self._lister.get(namespace, name)

    def get(self, key: str) -> T | None:
        """The object, in its assumed version if there is one."""
        listed = self.listed(key)
        assumed = self._assumed.get(key)
        if listed is None or assumed is None or not _same_revision(assumed, listed):
            return listed
        return assumed

    def assume(self, obj: T) -> None:
        """Replace the object by a changed copy; raises AssumeError if the original has changed."""
        key = key_of(obj.metadata)
        listed = self.listed(key)
        if listed is None:
            raise AssumeError(not_found(self._resource, key))
        if not _same_revision(listed, obj):
            stored, assumed = listed.metadata.resource_version, obj.metadata.resource_version
            raise AssumeError(f'"{key}" is out of sync (stored: {stored}, assume: {assumed})')
        self._assumed[key] = obj
        if self._changed is not None:
            self._changed(obj)
        if len(self._assumed) >= self._sweep_at:
            self._sweep()

    def restore(self, obj: T) -> None:
        """Revert the assumption, if it was made from this revision."""
        key = key_of(obj.metadata)
        assumed = self._assumed.get(key)
        if assumed is not None and _same_revision(assumed, obj):
            del self._assumed[key]
            listed = self.listed(key)
            if self._changed is not None and listed is not None:
                self._changed(listed)

    def _sweep(self) -> None:
        for key, assumed in list(self._assumed.items()):
            listed = self.listed(key)
            if listed is None or not _same_revision(listed, assumed):
                del self._assumed[key]
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._assumed))


def _same_revision(a: ApiObject, b: ApiObject) -> bool:
    return a.metadata.resource_version == b.metadata.resource_version
