"""Large dictionaries that get their keys together, and must not grow together.

A dictionary that is full is copied into one of twice the size, in some milliseconds if it has 100,000 keys. CPython does so at
the same number of keys in every dictionary: those with one key per node would all grow at the same node, in one turn of the loop.
Entries that were deleted take room until then. So each dictionary gets some of those after it has grown, another number each,
and the next time they grow one after the other:

    keys                     ...  87,253      87,317      87,381
    an informer's store                                   grows
    its index                                 grows                   64 deleted entries
    names to rows                 grows                               128
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any, Final

LARGE: Final = 8_192
"""With fewer keys a dictionary grows in a fraction of a millisecond."""
APART: Final = 64
"""Insertions between the growth of two dictionaries. Whoever inserts many looks at the clock more often (`informers.slices`)."""


class Place(IntEnum):
    """The dictionaries with a key per node, pod or class, besides the stores of the informers, which are the first to get it."""

    INFORMER_INDEX = auto()
    NODE_ROWS = auto()
    NODES_NOT_SEEN_YET = auto()
    LABEL_VALUES = auto()
    """Of the hostname there is one per node."""
    NODES_OF_ZONE = auto()
    CACHED_PODS = auto()
    PARKED_PODS = auto()
    WAITING_CLASSES = auto()
    """As many as pods, if all of these differ."""
    CLASSES_BY_REJECTION = auto()
    STATUS_UPDATES = auto()


def put_apart(table: dict[Any, Any], key: object, value: object, place: Place) -> None:
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
