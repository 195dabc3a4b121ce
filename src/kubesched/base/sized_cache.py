"""A cache bounded by the size of its entries, not by their number.

A pod can name a hundred thousand things, so a thousand entries may take any amount of memory.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TypeVar

V = TypeVar("V")


class SizedCache(dict[Hashable, V]):
    """Values with their sizes; cleared when full, since entries in use are soon added again."""

    __slots__ = ("_largest", "_limit", "_lock", "held")

    def __init__(self, limit: int, largest: int | None = None) -> None:
        """Values larger than `largest` are not kept."""
        self._limit = limit
        self._largest = limit if largest is None else largest
        self.held = 0
        self._lock = threading.Lock()  # requests that are computed in threads use caches, too

    def keep(self, key: Hashable, size: int, value: V) -> None:
        """Add a value under a new key."""
        if size > self._largest:
            return
        with self._lock:
            if self.held + size > self._limit:
                self.clear()
            self[key] = value
            self.held += size

    def clear(self) -> None:
        super().clear()
        self.held = 0


def by_spelling() -> SizedCache[V]:
    """For parsed fields of pods, sized by the bytes of the unparsed form.

    Holds those of some 2,000 ordinary pods; parsed, they take ten to twenty times as much.
    """
    return SizedCache(256 * 1024, largest=16 * 1024)
