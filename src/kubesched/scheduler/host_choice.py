"""Choosing among nodes with the same score.

# Upstream: candidates sit in a binary heap and the top wins. With one worker the feasible list has
# a defined order, and the heap's construction makes the winner the first best node met on a
# pre-order walk of that heap. With more workers upstream's list order is accidental; there we
# choose uniformly at random from a seeded generator.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kubesched.framework.nodes.columns import Indices, Levels


def heap_winner(totals: Levels) -> int:
    """The position in the feasible list that ends on top of upstream's heap."""
    places = _preorder(len(totals))
    return int(places[totals.take(places).argmax()])  # the first of the best


@lru_cache(maxsize=4)
def _preorder(size: int) -> Indices:
    """The positions of a heap of that size (0 is the root) in pre-order."""
    places = _whole_preorder(size.bit_length())
    return places[places < size]


@lru_cache(maxsize=2)
def _whole_preorder(bits: int) -> Indices:
    """All positions with that many bits, in pre-order.

    The path to a node is the binary form of its position + 1 without the leading one; ancestors
    precede descendants.
    """
    numbers = np.arange(1, (1 << bits) + 1, dtype=np.int64)
    lengths = np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
    return np.argsort((numbers << (40 - lengths)) * 64 + lengths)
