"""Balance of a node's usage: 100 if all resources are used to the same fraction, else less.

The floating-point operations and their order are upstream's: an equivalent formula may round
differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def balance_change(demands: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """One node's balance without and with the pod, from each (used, request, capacity)."""
    before: list[float] = []
    after: list[float] = []
    for used, request, capacity in demands:
        if capacity:
            requested = used + request
            if requested > int64.MAX:
                requested = int64.wrap(requested)
            before.append(min(used / capacity, 1.0))
            after.append(min(requested / capacity, 1.0))
    return balance(before), balance(after)


def balance(fractions: Sequence[float]) -> int:
    """The balance of one node."""
    count = len(fractions)
    if count < 2:
        return MAX_NODE_SCORE
    if count == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    else:
        total = squares = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / count
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / count)
    evenness = (1 - deviation) * float(MAX_NODE_SCORE)
    return int(evenness) if deviation <= 1 else int64.truncate(evenness)
