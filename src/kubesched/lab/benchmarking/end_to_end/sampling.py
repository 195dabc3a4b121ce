"""From the moments at which pods were bound to pods per second."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def rate(moments: Sequence[float]) -> float:
    """Bindings per second between the first and the last, in any order; 0 where there is no time between them."""
    seconds = max(moments, default=0.0) - min(moments, default=0.0)
    return (len(moments) - 1) / seconds if seconds > 0 else 0.0


def longest_pause(moments: Sequence[float]) -> float:
    """The longest time in seconds during which nothing was bound, between the first binding and the last."""
    return max((later - earlier for earlier, later in pairwise(sorted(moments))), default=0.0)
