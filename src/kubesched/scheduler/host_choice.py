"""Choosing among nodes with the same score.

# Upstream: candidates sit in a binary heap and the top wins. With one worker the feasible list has a defined order,
# and the heap's construction makes the winner the first tied node met on a pre-order walk of that heap. With more
# workers upstream's list order is accidental; there we choose uniformly at random from a seeded generator.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kubesched.snapshot.columns import Indices, Ints


def heap_winner(tied: Indices) -> int:
    """The tied position of the feasible list that ends on top of upstream's heap."""
    size = int(tied[-1]) + 1  # positions are in ascending order
    return int(tied[_preorder_keys(size.bit_length())[tied].argmin()])


@lru_cache(maxsize=2)
def _preorder_keys(bits: int) -> Ints:
    """Keys that sort heap indices (0 is the root) of so many bits as a pre-order walk visits them.

    The path to a node is the binary form of index + 1 without its leading one; ancestors come before descendants.
    """
    numbers = np.arange(1, (1 << bits) + 1, dtype=np.int64)
    lengths = np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
    return (numbers << (40 - lengths)) * 64 + lengths
