"""A priority queue with lookup, replacement and removal by key.

Lazy deletion over `heapq`: a dictionary holds the valid heap entry for each key. A removed or
replaced member leaves its old entry in the heap until it reaches the top, and the heap is rebuilt
when more than half of it is stale. So add and pop cost O(log n), remove O(1), and memory stays
within twice the members.

Members of equal rank are popped in insertion order, unless the caller assigns turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_Entry = tuple[Any, int, int, str, T]
"""(rank, turn, serial, key, member). The serial is unique, so comparisons never reach the key."""

_SPARE_LEFTOVERS = 64  # below this, rebuilding costs more than it saves


class KeyedHeap(Generic[T]):
    """Members ordered by `rank`, which must not change: replace the member instead."""

    __slots__ = ("_entries", "_heap", "_rank", "_serial")

    def __init__(self, rank: Callable[[T], Any]) -> None:
        """`rank` is the sort key; the smallest is first."""
        self._rank = rank
        self._serial = 0
        self._entries: dict[str, _Entry[T]] = {}
        self._heap: list[_Entry[T]] = []

    def put(self, key: str, member: T, turn: int | None = None) -> None:
        """Add a member, replacing any other with that key. Smaller `turn`s win ties in rank."""
        self._push(key, member, self._rank(member), self._serial + 1 if turn is None else turn)

    def put_newer(self, key: str, member: T) -> None:
        """Replace a member with a newer version; it keeps its position if the rank is equal."""
        rank, replaced = self._rank(member), self._entries[key]
        self._push(key, member, rank, replaced[1] if rank == replaced[0] else self._serial + 1)

    def pop(self) -> T | None:
        """Pop the first member."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heappop(heap)
            key = entry[3]
            if entries.get(key) is entry:
                del entries[key]
                return entry[4]
        return None

    def peek(self) -> T | None:
        """The first member, without removing it."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            if entries.get(entry[3]) is entry:
                return entry[4]
            heappop(heap)
        return None

    def remove(self, key: str) -> T | None:
        """Remove and return the member with that key; None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._rebuild_if_stale()
        return entry[4]

    def get(self, key: str) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[4]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        """Every member, in insertion order."""
        return (entry[4] for entry in self._entries.values())

    def by_arrival(self) -> list[T]:
        """All members in an order that recreates the heap when added to an empty one."""
        return [entry[4] for entry in sorted(self._entries.values(), key=itemgetter(1, 2))]

    def in_order(self) -> list[T]:
        """All members in pop order."""
        return [entry[4] for entry in sorted(self._entries.values())]

    def check_invariants(self) -> None:
        waiting = {id(entry) for entry in self._heap}
        for key, entry in self._entries.items():
            assert entry[3] == key, f"{key} is filed under the entry of {entry[3]}"
            assert id(entry) in waiting, f"{key} has an entry that will never surface"
            assert self._rank(entry[4]) == entry[0], f"{key} changed its rank in place"
        assert len(self._heap) <= 2 * len(self._entries) + _SPARE_LEFTOVERS, (
            "leftovers were not cleared"
        )

    def _push(self, key: str, member: T, rank: object, turn: int) -> None:
        self._serial += 1
        entry = (rank, turn, self._serial, key, member)
        replaces = key in self._entries
        self._entries[key] = entry
        heappush(self._heap, entry)
        if replaces:
            self._rebuild_if_stale()

    def _rebuild_if_stale(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SPARE_LEFTOVERS:
            self._heap = list(self._entries.values())
            heapify(self._heap)


class RankedByLess(Generic[T]):
    """Makes a member comparable through a `less` function, for orders without a sort key."""

    __slots__ = ("less", "member")

    def __init__(self, less: Callable[[T, T], bool], member: T) -> None:
        self.less = less
        self.member = member

    def __lt__(self, other: RankedByLess[T]) -> bool:
        return self.less(self.member, other.member)

    def __eq__(self, other: object) -> bool:
        """True if neither is less; insertion order then decides."""
        if not isinstance(other, RankedByLess):
            return NotImplemented
        return not self.less(self.member, other.member) and not self.less(other.member, self.member)

    __hash__ = None  # type: ignore[assignment]  # equal rank is not identity
