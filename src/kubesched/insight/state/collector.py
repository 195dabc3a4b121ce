"""Controls the garbage collector while a large state is loaded or processed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

LARGE = 20_000
"""Objects above which a full collection is noticeable: it takes a second with 150,000 pods."""


@contextlib.contextmanager
def collector_paused(count: Callable[[], int] = int) -> Iterator[None]:
    """Pause the collector; afterwards freeze the objects if `count` reports many.

    Records hold no cycles, and repeatedly traversing millions of them would double the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if count() > LARGE:
            gc.freeze()
        if enabled:
            gc.enable()
