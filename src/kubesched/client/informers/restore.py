"""Coordinates informers after a restore to an older revision: all list again, pods last.

Each reflector notices a restore by itself, but at different times. Meanwhile pods of the new
history would be placed on nodes of the old one, so the first reflector to notice makes the others
list at once, and the pods are listed after the others. Until then nodes look empty, so nothing must
be scheduled (`is_under_way`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kubesched.client.informers.history import ClusterRestored

if TYPE_CHECKING:
    from kubesched.client.informers.reflector import Reflector

LAST = "pods"
MAX_WAIT_S = 30.0
"""How long pods wait for the other kinds, one of which may be forbidden or broken."""


class Restore:
    """Coordinates the reflectors of one process."""

    def __init__(self, reflectors: Callable[[], Iterable[Reflector[Any]]]) -> None:
        self._reflectors = reflectors
        self.on_end: Callable[[], None] = lambda: None
        self._pending: set[str] = set()
        self._progress = asyncio.Event()

    async def is_confirmed(self, revision: int, at: float) -> bool:
        """Whether any kind confirms the server's history of that time, up to this revision.

        Raises:
            ClusterRestored: the server has another history.
        """
        for reflector in self._reflectors():
            if reflector.has_seen(revision, at) and await reflector.is_current():
                return True
        return False

    def begin(self, name: str) -> None:
        """The named reflector noticed a restore; repeated calls for one restore have no effect."""
        if name in self._pending:
            return
        others = [reflector for reflector in self._reflectors() if reflector.name != name]
        self._pending = {name, *(reflector.name for reflector in others)}
        for reflector in others:
            reflector.distrust()

    @property
    def is_under_way(self) -> bool:
        """The known objects are from two histories."""
        return bool(self._pending)

    def require_turn(self, name: str) -> None:
        """Raises `ClusterRestored` if this reflector must list after others."""
        if name == LAST and self._pending - {LAST}:
            raise ClusterRestored(f"{name} are listed when the other kinds are")

    async def wait_for_turn(self, name: str) -> None:
        """Wait until this reflector may list."""
        if name != LAST:
            return
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                while self._pending - {LAST}:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            self._pending = {LAST}

    def finish(self, name: str) -> None:
        was_under_way = self.is_under_way
        self._pending.discard(name)
        self._progress.set()
        if was_under_way and not self._pending:
            self.on_end()
