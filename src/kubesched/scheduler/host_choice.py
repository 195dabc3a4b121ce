"""Choosing among nodes with the same score.

# Upstream: candidates sit in a binary heap and the top wins. With one worker the feasible list has a defined order,
# and the heap's construction makes the winner the first tied node met on a pre-order walk of that heap. With more
# workers upstream's list order is accidental; there we choose uniformly at random from a seeded generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kubesched.snapshot.columns import Indices, Mask
from kubesched.snapshot.node_table import NodeTable


def heap_winner(tied: Indices) -> int:
    """The tied position of the feasible list that ends on top of upstream's heap."""
    return int(tied[np.argmin(_preorder_keys(tied))])


def places_in_walk(table: NodeTable, rows: Indices, feasible: Mask, start: int) -> Indices:
    """Positions of rows in the list of feasible rows, if the walk over all nodes starts at `start`."""
    order = table.order_rows
    if start:
        order = np.concatenate((order[start:], order[:start]))
    ranks = np.cumsum(feasible[order]) - 1
    places: Indices = ranks[
        (table.position[rows].astype(np.intp) - start) % table.node_count
    ].astype(np.intp)
    return places


def _preorder_keys(heap_indices: Indices) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Keys that sort heap indices (0 is the root) as a pre-order walk visits them.

    The path to a node is the binary form of index + 1 without its leading one; ancestors come before descendants.
    """
    numbers = heap_indices.astype(np.int64) + 1
    lengths = np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
    return (numbers << (40 - lengths)) * 64 + lengths
