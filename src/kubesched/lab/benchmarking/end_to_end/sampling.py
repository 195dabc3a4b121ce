"""Rates from binding times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def rate(moments: Sequence[float]) -> float:
    """Bindings per second between the first and the last, in any order; 0 without elapsed time."""
    seconds = max(moments, default=0.0) - min(moments, default=0.0)
    return (len(moments) - 1) / seconds if seconds > 0 else 0.0


def longest_pause(moments: Sequence[float]) -> float:
    """Longest time in seconds between two successive bindings."""
    return max((later - earlier for earlier, later in pairwise(sorted(moments))), default=0.0)
