"""When the garbage collector runs in a process with many objects that live long.

Nearly everything here is freed by reference counting: pods that come, are bound and go leave no
cycles. And what the collector traverses it traverses in one turn of the loop, at about a second for
100,000 nodes and as many pods. So objects that survive are frozen instead of growing old. A cycle
among frozen objects is found by a full collection only; there is one when memory has doubled since
the last, and objects of the API do not explain it.

The collector's own trigger does not bound the young generations: it counts allocations minus
deallocations, those of old objects included. Where a list is taken in and trimmed, more is freed
than made, the count stays at zero, and the first collection after it had millions of objects to
traverse, 0.2 s for 100,000 nodes or pods. So the youngest generation is also collected every 30 ms.
Traversing its survivors once more takes five to ten times as long, as they have left the
processor's caches by then. Where there are many, as with lists, they are frozen at once; where
there are few, the middle generation is collected and frozen after a while, so that a cycle that was
alive for a moment is still found.
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
"""Allocations before the youngest generation is collected: some milliseconds if all survive. Pods
that come and are bound in bursts allocate thousands of objects that live for a moment; with 2,000
here, the collector takes 11 µs per pod instead of 5.
"""
YOUNG_S: Final = 0.03
"""Pause between collections of the youngest generation. While lists are decoded, some 10,000
objects come into being.
"""
MANY_S: Final = 0.0002
"""A collection of the youngest generation that takes longer has many survivors: some thousands."""
MIDDLE_S: Final = 0.001
"""How long collections with few survivors take, together, before one of the middle generation."""
NEVER: Final = 2**30
MIN_GROWTH: Final = 4_000_000
"""Blocks of memory. A process that has grown by less, some 300 MB, is not worth a full collection.
"""
BLOCKS_PER_OBJECT: Final = 80
"""What an object of the API takes, with all that is made from it: 73 with as many pods as nodes, a
list included (benchmarks/loop_turns.py).
"""
PAUSES_PER_CHECK: Final = round(60.0 / YOUNG_S)
"""How often the size of the process is looked at: every minute."""


class GarbageCollection:
    """Sets the collector up for a block, and puts it back."""

    def __init__(
        self,
        known: Callable[[], int],
        blocks: Callable[[], int] = sys.getallocatedblocks,
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        """`known` counts the objects of the API that the process keeps, `blocks` its blocks of memory."""
        self._known = known
        self._blocks = blocks
        self._timer = timer
        self._began = 0.0
        self._young_s = 0.0
        """What collections of the youngest generation have taken since the middle one was empty."""

    def __enter__(self) -> Self:
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG, NEVER, NEVER)
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
        took = self._timer() - self._began
        if info["generation"] == 0 and took <= MANY_S:
            self._young_s += took
            return
        self._young_s = 0.0
        gc.freeze()

    def _settle(self) -> None:
        self._settled = self._blocks()

    async def run(self, synced: asyncio.Event) -> None:
        """Keep the young generations small, and collect all objects when that is due."""
        is_settled, pauses = False, 0
        while True:
            await asyncio.sleep(YOUNG_S)
            self.collect_young()
            if not is_settled and synced.is_set():
                is_settled = True
                self._settle()
            pauses += 1
            if is_settled and pauses % PAUSES_PER_CHECK == 0:
                self.collect_if_due()

    def collect_young(self) -> None:
        """Collect what was made since the last time; what has survived for longer is frozen."""
        gc.collect(1 if self._young_s > MIDDLE_S else 0)

    def collect_if_due(self) -> None:
        blocks = self._blocks()
        explained = max(self._settled, self._started + BLOCKS_PER_OBJECT * self._known())
        if blocks > max(2 * explained, explained + MIN_GROWTH):
            log.info("Collecting garbage, as memory has doubled", blocks=blocks, expected=explained)
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._settle()
