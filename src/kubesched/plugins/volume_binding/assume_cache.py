"""Objects as they will be once our own pending writes have come back through the watch.

An assumed object stands in for the lister's as long as that one still has the revision the assumption was made from;
any newer revision, and deletion, end the assumption. The lister's changes are not listened to: whether an assumption
still holds is found out when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from kubesched.api.meta import ObjectMeta
from kubesched.api.names import key_of, split_key
from kubesched.framework.handle import Lister
from kubesched.plugins.helper.volumes.claims import not_found

_SWEEP_FROM: Final = 64
"""Assumptions that nobody asks for any more are cleared out when there are this many, and then at every doubling."""


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_HasMetadata)


class AssumeError(Exception):
    """The object is not there any more, or not as it was when the decision was made."""


class AssumeCache(Generic[T]):
    """Assumed objects on top of a lister; `resource` is the plural used in messages."""

    def __init__(
        self, lister: Lister[T], resource: str, changed: Callable[[T], None] | None = None
    ) -> None:
        """`changed` is told the object that counts from now on after every `assume` and `restore`."""
        self._lister = lister
        self._resource = resource
        self._changed = changed
        self._assumed: dict[str, T] = {}
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        """Assumptions held, those included that do not count any more."""
        return len(self._assumed)

    def listed(self, key: str) -> T | None:
        """The object as the API server last showed it."""
        namespace, name = split_key(key)
        return self._lister.get(namespace, name)

    def get(self, key: str) -> T | None:
        """The object, assumed if it is."""
        listed = self.listed(key)
        assumed = self._assumed.get(key)
        if listed is None or assumed is None or not _same_revision(assumed, listed):
            return listed
        return assumed

    def assume(self, obj: T) -> None:
        """Let a changed copy stand for the object; raises AssumeError if the original has moved on."""
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
        """Take the assumption back, if it was made from this revision."""
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


def _same_revision(a: _HasMetadata, b: _HasMetadata) -> bool:
    return a.metadata.resource_version == b.metadata.resource_version
