"""Objects of a lister grouped by a derived value, kept current by the lister's changes.

Members are not the objects themselves but facts derived from them, computed once per revision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final, Generic, TypeVar

from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.framework.handle import Lister
from kubesched.plugins.helper.grouping import leave_group

T = TypeVar("T", bound=ApiObject)
F = TypeVar("F")


Change = tuple[Hashable, F | None, F | None]
"""A group, and a member of it before and after the change; None if absent."""

_LOG_LIMIT: Final = 4096


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
        self._log: list[Change[F]] = []
        self._log_begins = 0
        for obj in lister.list():
            self.put(obj)
        self.close: Callable[[], None] = lister.subscribe(self._changed)

    @property
    def version(self) -> int:
        """Changes with every change to any member."""
        return self._log_begins + len(self._log)

    def changes_since(self, version: int) -> list[Change[F]] | None:
        """Changes since that version, oldest first; None if the log does not go back that far."""
        start = version - self._log_begins
        return None if start < 0 else self._log[start:]

    def _note(self, group: Hashable, old: F | None, new: F | None) -> None:
        self._log.append((group, old, new))
        if len(self._log) > _LOG_LIMIT:
            cut = len(self._log) // 2
            del self._log[:cut]
            self._log_begins += cut

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
            members = self._members.setdefault(group, {})
            self._note(group, members.get(key), facts)
            members[key] = facts
            self._group_by_key[key] = group

    def _changed(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self.put(new)
        elif old is not None:
            self._leave(key_of(old.metadata))

    def _leave(self, key: str) -> None:
        if key in self._group_by_key:
            group = self._group_by_key.pop(key)
            self._note(group, self._members[group][key], None)
            leave_group(self._members, group, key)
