"""Balance of a node's usage: 100 if all resources are used to the same fraction, else less.

The floating-point operations and their order are upstream's: an equivalent formula may round
differently.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.plugins.node_resources import int64

Floats = npt.NDArray[np.float64]


def balances(fractions: Floats, offered: Mask) -> Ints:
    """The balance of each node, from what is used of each resource, both (resources, nodes).

    A node is judged by the resources that it offers.
    """
    if offered.all():
        return _balance_of(fractions)
    result = np.empty(offered.shape[1], dtype=np.int64)
    # Nodes with the same resources are judged together.
    patterns, numbers = np.unique(offered, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        nodes = numbers.reshape(-1) == number
        result[nodes] = _balance_of(fractions[pattern][:, nodes])
    return result


def _balance_of(fractions: Floats) -> Ints:
    """The balance of nodes that all have the same resources."""
    count = len(fractions)
    if count < 2:
        return np.full(fractions.shape[1], MAX_NODE_SCORE, dtype=np.int64)
    if count == 2:
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
    else:
        distance = fractions - _sum_in_order(fractions) / count
        deviation = np.sqrt(_sum_in_order(distance * distance) / count)
    evenness: Floats = (1 - deviation) * float(MAX_NODE_SCORE)
    evenness[evenness < int64.MIN] = int64.MIN  # as on x86-64
    return evenness.astype(np.int64)


def _sum_in_order(rows: Floats) -> Floats:
    """Adds row by row: NumPy's own sum may use another order."""
    total: Floats = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total
