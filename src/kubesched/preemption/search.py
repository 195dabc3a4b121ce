"""Searches among many nodes that leave turns of the event loop to others.

A search is a generator: it yields where it may be suspended, and returns what it found. Work is counted in pods and nodes instead
of time, so that an attempt is suspended at the same place when it is played from a recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

import numpy as np

from kubesched.snapshot.columns import Indices
from kubesched.snapshot.node_table import NodeTable

T = TypeVar("T")

Search = Generator[None, None, T]

PORTION: Final = 1_500
"""Pods and nodes that are looked at in one turn of the loop, together: some 4 ms."""
ALONE: Final = 150
"""What a node counts that is tried alone."""
MANY_NODES: Final = 20_000
"""With more nodes, steps over all of them get a turn of their own, though they are array operations."""


class Pace:
    """Tells a search when it has done enough for one turn."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def spend(self, work: int) -> None:
        self._done += work

    def is_spent(self) -> bool:
        """Whether to yield before going on, after which counting begins anew."""
        if 2 * self._done < PORTION:  # what comes next is about a portion
            return False
        self._done = 0
        return True


def portions(table: NodeTable, rows: Indices) -> Iterator[tuple[int, int, int]]:
    """Start, end and work of parts of the rows, each of which is enough for one turn."""
    work = np.cumsum(table.pod_count.array[rows] + 1)
    cuts = np.flatnonzero(np.diff(work // PORTION)) + 1
    ends = [*cuts.tolist(), len(rows)]
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        if end > start:
            before = int(work[start - 1]) if start else 0
            yield start, end, int(work[end - 1]) - before


def finished(search: Search[T]) -> T:
    """What a search finds, in one go."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: T = end.value
            return found


async def carried_on(search: Search[T]) -> T:
    """What a suspended search finds, a portion in each turn of the loop."""
    while True:
        await asyncio.sleep(0)
        try:
            next(search)
        except StopIteration as end:
            found: T = end.value
            return found
