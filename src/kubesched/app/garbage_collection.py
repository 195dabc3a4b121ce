"""When the garbage collector runs in a process with many objects that live long.

Nearly everything here is freed by reference counting: pods that come, are bound and go leave no cycles. And what the
collector traverses it traverses in one turn of the loop, at about a second for 100,000 nodes and as many pods. So objects
that survive the middle generation are frozen instead of growing old. A cycle among frozen objects is found by a full
collection only; there is one when the process has grown to twice its size since the last.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kubesched.logs import get_logger

log = get_logger(__name__)

YOUNG: Final = 5_000
"""Allocations before the youngest generation is collected: some milliseconds if all survive."""
MIDDLE: Final = 4
"""Collections of the youngest generation before one of the middle."""
MIN_GROWTH_BYTES: Final = 256 * 1024 * 1024
"""A process that has grown by less is not worth a full collection."""
CHECK_S: Final = 60.0


class GarbageCollection:
    """Sets the collector up for a block, and puts it back."""

    def __init__(self, resident_bytes: Callable[[], int] | None = None) -> None:
        """`resident_bytes` tells how much memory the process holds."""
        self._resident_bytes = resident_bytes or _resident_bytes

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

    @staticmethod
    def _on_collection(phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 1:
            gc.freeze()

    def _settle(self) -> None:
        self._settled_bytes = self._resident_bytes()

    async def run(self, synced: asyncio.Event) -> None:
        """Freeze the objects of the first lists once they are there, and collect all objects when that is due."""
        await synced.wait()
        gc.freeze()
        self._settle()
        while True:
            await asyncio.sleep(CHECK_S)
            self.collect_if_due()

    def collect_if_due(self) -> None:
        grown_bytes = self._resident_bytes() - self._settled_bytes
        if grown_bytes > max(MIN_GROWTH_BYTES, self._settled_bytes):
            log.info("Collecting garbage, as memory has doubled", grownBytes=grown_bytes)
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._settle()


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:  # not Linux: the peak has to do
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
