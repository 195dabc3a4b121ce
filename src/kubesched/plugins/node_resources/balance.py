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
from kubesched.framework.nodes.columns import Mask
from kubesched.plugins.node_resources import int64
from kubesched.plugins.node_resources.resource_matrix import Floats

Balances = npt.NDArray[np.int16]
"""Values from 0 to 100, in the smallest type that also holds their sums."""


def balances(amounts: Floats, capacity: Floats, absent: Mask | None) -> Balances:
    """The balance of each node; matrices have the shape (resources, nodes). Overwrites `amounts`.

    If every node has all resources, a dimension for pods may precede that of the nodes.
    """
    fractions = np.divide(amounts, capacity, out=amounts)
    np.minimum(fractions, 1.0, out=fractions)
    if absent is None:
        return _balance_of(fractions)
    result = _balance_of(fractions.copy())
    # Nodes that lack a resource are scored by the others, each combination of resources separately.
    lacking = np.flatnonzero(absent.any(axis=0))
    patterns, numbers = np.unique(absent[:, lacking], axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        nodes = lacking[numbers.reshape(-1) == number]
        result[nodes] = _balance_of(fractions[np.ix_(~pattern, nodes)])
    return result


def _balance_of(fractions: Floats) -> Balances:
    """The balance of nodes that all have the same resources. Overwrites `fractions`."""
    count = len(fractions)
    if count < 2:
        return np.full(fractions.shape[1:], MAX_NODE_SCORE, dtype=np.int16)
    if count == 2:
        # Computes twice the deviation and halves the result: scaling by powers of two does not
        # change rounding.
        deviation = fractions[0]
        deviation -= fractions[1]
        np.abs(deviation, out=deviation)
        np.subtract(2.0, deviation, out=deviation)
        deviation *= MAX_NODE_SCORE / 2
    else:
        mean = _sum_in_order(fractions) / count
        deviation = fractions - mean
        deviation *= deviation
        deviation = np.sqrt(_sum_in_order(deviation) / count)
        np.subtract(1.0, deviation, out=deviation)
        deviation *= float(MAX_NODE_SCORE)
    balance: Balances = deviation.astype(np.int16)
    return balance


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
