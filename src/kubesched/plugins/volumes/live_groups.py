"""Objects of a lister grouped by a value computed from each, kept current by the lister's changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Generic, Protocol, TypeVar

from kubesched.api.meta import ObjectMeta
from kubesched.api.names import key_of
from kubesched.framework.handle import Lister


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_HasMetadata)


class LiveGroups(Generic[T]):
    """Groups in the order in which their members entered them."""

    def __init__(self, lister: Lister[T], group_of: Callable[[T], Hashable]) -> None:
        self._group_of = group_of
        self._members: dict[Hashable, dict[str, T]] = {}
        self.version = 0
        """Changes with every change to any object."""
        for obj in lister.list():
            self._enter(obj)
        self.close: Callable[[], None] = lister.subscribe(self._changed)

    def members(self, group: Hashable) -> Collection[T]:
        found = self._members.get(group)
        return () if found is None else found.values()

    def _changed(self, old: Any, new: Any) -> None:  # noqa: ANN401  # what the lister's kind is
        self.version += 1
        if old is not None and (new is None or self._group_of(old) != self._group_of(new)):
            group = self._group_of(old)
            members = self._members[group]
            del members[key_of(old.metadata)]
            if not members:
                del self._members[group]
        if new is not None:
            self._enter(new)

    def _enter(self, obj: T) -> None:
        self._members.setdefault(self._group_of(obj), {})[key_of(obj.metadata)] = obj
