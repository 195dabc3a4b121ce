"""The sender of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A Kubernetes user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def authenticated(self) -> User:
        """The same user with the group `system:authenticated`."""
        if AUTHENTICATED in self.groups or self.name == ANONYMOUS.name:
            return self
        return User(
            name=self.name, groups=(*self.groups, AUTHENTICATED), uid=self.uid, extra=self.extra
        )

    def cache_key(self) -> tuple[object, ...]:
        """Equal for users who get the same authorization decisions."""
        extra = tuple(sorted((key, values) for key, values in self.extra.items()))
        return self.name, self.uid, self.groups, extra


ANONYMOUS: Final = User(name="system:anonymous", groups=(UNAUTHENTICATED,))
