"""Wakes tasks that wait for an object to change."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from kubesched.plugins.helper.grouping import leave_group

K = TypeVar("K", bound=Hashable)


class ChangeSignals(Generic[K]):
    """Waiting tasks, by the keys of the objects they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[K, dict[asyncio.Event, None]] = {}

    def __bool__(self) -> bool:
        """Is any task waiting?"""
        return bool(self._waiting)

    @contextmanager
    def watching(self, keys: Iterable[K]) -> Iterator[asyncio.Event]:
        """Yields an event that is set when one of the objects changes, appears or disappears."""
        event, mine = asyncio.Event(), list(dict.fromkeys(keys))
        for key in mine:
            self._waiting.setdefault(key, {})[event] = None
        try:
            yield event
        finally:
            for key in mine:
                leave_group(self._waiting, key, event)

    def wake(self, key: K) -> None:
        for event in self._waiting.get(key, ()):
            event.set()
