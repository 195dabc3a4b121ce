"""When the garbage collector runs in a process with many objects that live long.

Nearly everything here is freed by reference counting: pods that come, are bound and go leave no cycles. And what the
collector traverses it traverses in one turn of the loop, at about a second for 100,000 nodes and as many pods. So objects
that survive the middle generation are frozen instead of growing old. A cycle among frozen objects is found by a full
collection only; there is one when memory has doubled since the last, and objects of the API do not explain it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from kubesched.logs import get_logger

log = get_logger(__name__)

YOUNG: Final = 6_000
"""Allocations before the youngest generation is collected: some milliseconds if all survive. Pods that come and are bound
in bursts allocate thousands of objects that live for a moment; with 2,000 here, the collector takes 11 µs per pod instead of 5."""
MIDDLE: Final = 1
"""Collections of the youngest generation before one of the middle, which takes 6 ms."""
MIN_GROWTH: Final = 4_000_000
"""Blocks of memory. A process that has grown by less, some 300 MB, is not worth a full collection."""
BLOCKS_PER_OBJECT: Final = 80
"""What an object of the API takes, with all that is made from it: 73 with as many pods as nodes, a list included
(benchmarks/loop_turns.py)."""
CHECK_S: Final = 60.0


class GarbageCollection:
    """Sets the collector up for a block, and puts it back."""

    def __init__(
        self, known: Callable[[], int], blocks: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        """`known` counts the objects of the API that the process keeps, `blocks` its blocks of memory."""
        self._known = known
        self._blocks = blocks

    def __enter__(self) -> Self:
        gc.collect()
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG, MIDDLE, 2**30)
        self._started = self._blocks()
        self._settle()
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    @staticmethod
    def _on_collection(phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 1:
            gc.freeze()

    def _settle(self) -> None:
        self._settled = self._blocks()

    async def run(self, synced: asyncio.Event) -> None:
        """Freeze the objects of the first lists once they are there, and collect all objects when that is due."""
        await synced.wait()
        gc.freeze()
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
