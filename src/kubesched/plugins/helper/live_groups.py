"""Objects of a lister grouped by a derived value, kept current by the lister's changes.

Members are not the objects themselves but facts derived from them, computed once per revision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.framework.handle import Lister
from kubesched.plugins.helper.grouping import leave_group

T = TypeVar("T", bound=ApiObject)
F = TypeVar("F")


class LiveGroups(Generic[T, F]):
    """Groups whose members are in order of insertion."""

    def __init__(
        self,
        lister: Lister[T],
        group_of: Callable[[T], Hashable],
        facts_of: Callable[[T], F | None],
    ) -> None:
        """Objects for which `facts_of` returns None are left out."""
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
        members = self._members.get(group)
        return () if members is None else members.values()

    def put(self, obj: T) -> None:
        """Add or replace an object: the listed version or an assumed one."""
        key, group = key_of(obj.metadata), self._group_of(obj)
        if self._group_by_key.get(key) != group:
            self._leave(key)
        facts = self._facts_of(obj)
        if facts is None:
            self._leave(key)
        else:
            self._members.setdefault(group, {})[key] = facts
            self.version += 1
            self._group_by_key[key] = group

    def _changed(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self.put(new)
        elif old is not None:
            self._leave(key_of(old.metadata))

    def _leave(self, key: str) -> None:
        if key in self._group_by_key:
            group = self._group_by_key.pop(key)
            self.version += 1
            leave_group(self._members, group, key)
