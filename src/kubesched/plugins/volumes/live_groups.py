"""Objects of a lister grouped by a value computed from each, kept current by the lister's changes.

Members are not the objects but what somebody wants to know of them, worked out once per revision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, Protocol, TypeVar

from kubesched.api.meta import ObjectMeta
from kubesched.api.names import key_of
from kubesched.framework.handle import Lister


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_HasMetadata)
F = TypeVar("F")


class LiveGroups(Generic[T, F]):
    """Groups in the order in which their members entered them."""

    def __init__(
        self,
        lister: Lister[T],
        group_of: Callable[[T], Hashable],
        facts_of: Callable[[T], F | None],
    ) -> None:
        """Objects for which `facts_of` has nothing to say are left out."""
        self._group_of = group_of
        self._facts_of = facts_of
        self._members: dict[Hashable, dict[str, F]] = {}
        self._group_by_key: dict[str, Hashable] = {}
        self.version = 0
        """Changes with every change to any member."""
        for obj in lister.list():
            self.put(obj)
        self.close: Callable[[], None] = lister.subscribe(self._changed)

    def members(self, group: Hashable) -> Collection[F]:
        found = self._members.get(group)
        return () if found is None else found.values()

    def put(self, obj: T) -> None:
        """Take an object in, in place of the one of its name: the lister's, or one that is to stand in for it."""
        key, group = key_of(obj.metadata), self._group_of(obj)
        if self._group_by_key.get(key) != group:
            self._leave(key)
        facts = self._facts_of(obj)
        self.version += 1
        if facts is None:
            self._leave(key)
        else:
            self._members.setdefault(group, {})[key] = facts
            self._group_by_key[key] = group

    def _changed(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self.put(new)
        elif old is not None:
            self.version += 1
            self._leave(key_of(old.metadata))

    def _leave(self, key: str) -> None:
        if key in self._group_by_key:
            group = self._group_by_key.pop(key)
            members = self._members[group]
            del members[key]
            if not members:
                del self._members[group]
