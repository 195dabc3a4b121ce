"""Tunes Python's garbage collector for a process with many long-lived objects.

Nearly everything here is freed by reference counting: pods leave no cycles. A full collection runs
in one turn of the loop and takes about a second for 100,000 nodes and as many pods. So surviving
objects are frozen instead of promoted. A full collection, which also finds cycles among frozen
objects, runs only when memory has doubled since the last one and API objects do not explain it.

Traversing the survivors of a young collection again takes five to ten times as long, because they
have left the CPU caches. With many survivors, as with lists, they are frozen at once; with few,
they are frozen with the middle generation, so that short-lived cycles are still found.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Self

from kubesched.base.logs import get_logger

log = get_logger(__name__)

YOUNG: Final = 6_000
"""Allocations before the youngest generation is collected: some milliseconds if all survive. Bursts
of pods allocate thousands of short-lived objects; with 2,000 here, the collector takes 11 µs per
pod instead of 5.
"""
MIDDLE: Final = 10
"""Young collections before the middle generation is collected too: CPython's default."""
MANY_S: Final = 0.0002
"""A slower collection of the youngest generation has many survivors: some thousands."""
NEVER: Final = 2**30
MIN_GROWTH: Final = 4_000_000
"""Memory blocks: growth below this (about 300 MB) does not justify a full collection."""
BLOCKS_PER_OBJECT: Final = 80
"""Memory blocks per API object, derived data included: 73 measured with as many pods as nodes, and
a list (benchmarks/loop_turns.py).
"""
CHECK_S: Final = 60.0
"""Pause between checks of the process size."""


class GarbageCollection:
    """Configures the collector within a block, and restores it afterwards."""

    def __init__(
        self,
        known: Callable[[], int],
        blocks: Callable[[], int] = sys.getallocatedblocks,
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        """`known` counts the API objects in memory, `blocks` the process's memory blocks."""
        self._known = known
        self._blocks = blocks
        self._timer = timer
        self._began = 0.0

    def __enter__(self) -> Self:
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._started = self._blocks()
        self._settle()
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, *_error: object) -> None:
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = self._timer()
            return
        if info["generation"] > 0 or self._timer() - self._began > MANY_S:
            gc.freeze()

    def _settle(self) -> None:
        self._settled = self._blocks()

    async def run(self, synced: asyncio.Event) -> None:
        """Run full collections when due."""
        await synced.wait()
        self._settle()
        while True:
            await asyncio.sleep(CHECK_S)
            self.collect_if_due()

    def collect_if_due(self) -> None:
        blocks = self._blocks()
        explained = max(self._settled, self._started + BLOCKS_PER_OBJECT * self._known())
        if blocks > max(2 * explained, explained + MIN_GROWTH):
            log.info("Collecting garbage, as memory has doubled", blocks=blocks, expected=explained)
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._settle()
