"""Large dictionaries that get their keys together, and must not grow together.

A dictionary that is full is copied into one of twice the size, in some milliseconds if it has 100,000 keys. CPython does so at
the same number of keys in every dictionary: those with one key per node would all grow at the same node, in one turn of the loop.
Entries that were deleted take room until then. So each dictionary gets some of those after it has grown, another number each,
and the next time they grow one after the other:

    keys             ...  87,253      87,317      87,381
    place 0                                       grows
    place 1                           grows                   64 deleted entries
    place 2               grows                               128
"""

from __future__ import annotations

from typing import Any, Final

LARGE: Final = 8_192
"""With fewer keys a dictionary grows in a fraction of a millisecond."""
APART: Final = 64
"""Insertions between the growth of two dictionaries. Whoever inserts many looks at the clock more often (`informers.slices`)."""


def put_apart(table: dict[Any, Any], key: object, value: object, place: int) -> None:
    """Insert a key; dictionaries with different places do not grow along with each other."""
    if len(table) < LARGE:
        table[key] = value
        return
    size = table.__sizeof__()
    table[key] = value
    if table.__sizeof__() != size:
        # Of the type of most keys: CPython is faster if there is no other.
        fillers = [f"\0{number}" for number in range(place * APART)]
        for filler in fillers:
            table[filler] = None
        for filler in fillers:
            del table[filler]
