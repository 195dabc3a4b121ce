"""From the moments at which pods were bound to pods per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def rate(moments: Sequence[float]) -> float:
    """Bindings per second between the first and the last; 0 for fewer than two. Moments need not be in order."""
    if len(moments) < 2:
        return 0.0
    seconds = max(moments) - min(moments)
    return (len(moments) - 1) / seconds if seconds > 0 else math.inf


def longest_pause(moments: Sequence[float]) -> float:
    """The longest time in seconds during which nothing was bound, between the first binding and the last."""
    return max((later - earlier for earlier, later in pairwise(sorted(moments))), default=0.0)
