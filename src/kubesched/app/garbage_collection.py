"""When the garbage collector runs in a process with many objects that live long.

Nearly everything here is freed by reference counting: pods that come, are bound and go leave no cycles. And what the
collector traverses it traverses in one turn of the loop, at about a second for 100,000 nodes and as many pods. So objects
that survive the middle generation are frozen instead of growing old. A cycle among frozen objects is found by a full
collection only; there is one when so many objects were made that the process may have grown to twice its size.
"""

from __future__ import annotations

import asyncio
import gc
from types import TracebackType
from typing import Any, Final, Self

YOUNG: Final = 5_000
"""Allocations before the youngest generation is collected: some milliseconds if all survive."""
MIDDLE: Final = 4
"""Collections of the youngest generation before one of the middle."""
FULL_AFTER: Final = 2_000_000
"""Frozen objects, at least, before a full collection."""
CHECK_S: Final = 60.0


class GarbageCollection:
    """Sets the collector up for a block, and puts it back."""

    def __enter__(self) -> Self:
        gc.collect()
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG, MIDDLE, 2**30)
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

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 1:
            gc.freeze()
            self._frozen_since += YOUNG * (MIDDLE + 1)

    def _settle(self) -> None:
        self._frozen_before = gc.get_freeze_count()
        self._frozen_since = 0

    async def run(self, synced: asyncio.Event) -> None:
        """Freeze the objects of the first lists once they are there, and collect all objects when that is due."""
        await synced.wait()
        gc.freeze()
        self._settle()
        while True:
            await asyncio.sleep(CHECK_S)
            self.collect_if_due()

    def collect_if_due(self) -> None:
        if self._frozen_since > max(FULL_AFTER, self._frozen_before):
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._settle()
