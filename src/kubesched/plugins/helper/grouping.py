"""Groups that exist only while they have members."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

G = TypeVar("G", bound=Hashable)
M = TypeVar("M", bound=Hashable)


def leave_group(groups: dict[G, dict[M, Any]], group: G, member: M) -> None:
    """Remove a member, and its group if empty. Unknown groups and members are ignored."""
    members = groups.get(group)
    if members is not None:
        members.pop(member, None)
        if not members:
            del groups[group]
