"""How evenly a node's resources are used: 100 when all to the same fraction, less the further they are apart.

The operations and their order are upstream's: other ways to write the same formula round differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.plugins.node_resources.allocatable_columns import (
    AllocatableColumns,
    Divisor,
    Floats,
)
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

_PATCH_LIMIT: Final = 16
"""Up to this many changed rows are recomputed one by one; beyond, all at once is cheaper."""


def balances(amounts: Sequence[Ints], divisors: Sequence[Divisor]) -> Ints:
    """The balance of each node, given what would be in use and what is offered, resource by resource."""
    fractions = [
        _fractions(amount, divisor.amounts)
        for amount, divisor in zip(amounts, divisors, strict=True)
    ]
    result = _balance_of(fractions)
    if all(divisor.absent is None for divisor in divisors):
        return result
    # Nodes that lack a resource are judged by the others: each combination of resources on its own.
    length = len(fractions[0])
    absent = np.stack(
        [np.zeros(length, np.bool_) if d.absent is None else d.absent for d in divisors]
    )
    lacking = np.flatnonzero(absent.any(axis=0))
    patterns, numbers = np.unique(absent[:, lacking], axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        nodes = lacking[numbers.reshape(-1) == number]
        present = [
            f[nodes] for f, is_absent in zip(fractions, pattern, strict=True) if not is_absent
        ]
        result[nodes] = _balance_of(present) if present else MAX_NODE_SCORE
    return result


def balance(amounts: Sequence[tuple[int, int]]) -> int:
    """The same for one node, from (in use, offered) pairs of which none offers 0."""
    fractions = [min(used / offered, 1.0) for used, offered in amounts]
    if len(fractions) < 2:
        return MAX_NODE_SCORE
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    else:
        total = squares = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * float(MAX_NODE_SCORE))


def _fractions(amount: Ints, offered: Floats) -> Floats:
    fraction = amount.astype(np.float64)
    fraction /= offered
    return np.minimum(fraction, 1.0, out=fraction)


def _balance_of(fractions: Sequence[Floats]) -> Ints:
    if len(fractions) < 2:
        return np.full(len(fractions[0]), MAX_NODE_SCORE, dtype=np.int64)
    if len(fractions) == 2:
        deviation = fractions[0] - fractions[1]
        deviation *= 0.5  # as exact as dividing by 2
        np.abs(deviation, out=deviation)
    else:
        total = fractions[0].copy()
        for fraction in fractions[1:]:
            total += fraction
        mean = total / len(fractions)
        squares = np.zeros_like(mean)
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = np.sqrt(squares / len(fractions))
    np.subtract(1.0, deviation, out=deviation)
    deviation *= float(MAX_NODE_SCORE)
    return deviation.astype(np.int64)


class CurrentBalance:
    """The balance of every row as it is, without the pod: the same for all pods that compare the same resources.

    Kept current through the table's log, because each pod that is placed changes one row.
    """

    __slots__ = ("_allocatable", "_cursor", "_epoch", "_lines", "_table", "_values")

    def __init__(
        self, table: NodeTable, lines: tuple[int, ...], allocatable: AllocatableColumns
    ) -> None:
        self._table = table
        self._lines = lines
        self._allocatable = allocatable
        self._cursor = -1
        self._epoch = -1

    def belongs_to(self, table: NodeTable) -> bool:
        return self._table is table

    def over(self, nodes: NodeColumns) -> Ints:
        self._sync()
        return self._values[nodes.rows]

    def _sync(self) -> None:
        log = self._table.pod_log
        if self._cursor == log.end and self._epoch == self._table.epoch:
            return
        changed = log.since(self._cursor) if self._epoch == self._table.epoch else None
        if changed is None or len(changed) > _PATCH_LIMIT:
            self._rebuild()
        else:
            for row in changed:
                self._values[row] = balance_at(self._table, self._lines, row)
        self._cursor, self._epoch = log.end, self._table.epoch

    def _rebuild(self) -> None:
        table = self._table
        nodes = NodeColumns(table)
        self._values: Ints = np.zeros(table.capacity, dtype=np.int64)
        self._values[: table.high_water] = balances(
            [nodes.requested(line) for line in self._lines],
            [self._allocatable.over(nodes, line) for line in self._lines],
        )


def balance_at(
    table: NodeTable, lines: Sequence[int], row: int, requests: Sequence[int] = ()
) -> int:
    """The balance of one row, with `requests` (one per line) on top of what is in use."""
    more = requests or (0,) * len(lines)
    return balance(
        [
            (table.requested[line].cells[row] + request, offered)
            for line, request in zip(lines, more, strict=True)
            if (offered := table.allocatable[line].cells[row])
        ]
    )
