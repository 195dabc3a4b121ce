"""The garbage collector while a large state is loaded or worked through."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

LARGE = 20_000
"""Objects from which on a full collection is felt: with 150,000 pods it takes a second."""


@contextlib.contextmanager
def collector_paused(count: Callable[[], int] = int) -> Iterator[None]:
    """Pause the collector; afterwards, if `count` says that there are many objects, have it leave them alone for good.

    Records hold no cycles, and walking over millions of them again and again would double the time.
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
