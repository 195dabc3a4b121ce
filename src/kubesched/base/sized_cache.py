"""A cache with a bound on what its entries hold, not on their number.

A pod can name a hundred thousand things, so a thousand entries may be any amount of memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

V = TypeVar("V")


class SizedCache(dict[Hashable, V]):
    """Values with their sizes; emptied when it is full, as whatever is in use comes back soon."""

    __slots__ = ("_largest", "_limit", "held")

    def __init__(self, limit: int, largest: int | None = None) -> None:
        """Values larger than `largest` are not kept."""
        self._limit = limit
        self._largest = limit if largest is None else largest
        self.held = 0

    def keep(self, key: Hashable, size: int, value: V) -> None:
        """For a key that is not there."""
        if size > self._largest:
            return
        if self.held + size > self._limit:
            self.clear()
        self[key] = value
        self.held += size

    def clear(self) -> None:
        super().clear()
        self.held = 0


def by_spelling() -> SizedCache[V]:
    """For checked forms of what pods spell out, sized by the bytes of their spelling.

    These are some 2,000 of ordinary pods; checked, they take ten to twenty times as much.
    """
    return SizedCache(256 * 1024, largest=16 * 1024)
