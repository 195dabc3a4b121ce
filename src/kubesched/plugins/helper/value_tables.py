"""Functions of node properties, evaluated once per distinct value instead of once per node.

A node's taints, features or labels are interned (`InternedColumn`): few values, many nodes. A
function of such a value becomes an array indexed by value id, and the result for all nodes is one
lookup. Values that appear later are evaluated on the next use. The parts of the pod that the
function reads are fixed when the table is built, so pods of one class share a table
(`CycleState.remember`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np

from kubesched.framework.nodes.columns import InternedColumn
from kubesched.framework.nodes.views import NodeColumns

V = TypeVar("V", bound=Hashable)


class ValueTable(Generic[V]):
    """Results of one function by value id; the last slot is for nodes without a value."""

    def __init__(
        self,
        column: InternedColumn[V],
        rule: Callable[[V], int],
        *,
        absent: int,
        dtype: type[np.generic] = np.bool_,
    ) -> None:
        self._column = column
        self._rule = rule
        self._absent = absent
        self._dtype = dtype
        self._forget()

    def _forget(self) -> None:
        self._generation = self._column.generation
        self._answers: np.ndarray[Any, Any] = np.array([self._absent], dtype=self._dtype)
        self.is_trivial = True
        """True if all values so far give the same result as no value; call `update` first."""

    def update(self) -> None:
        """Evaluate the values that have appeared since the last call."""
        if self._generation != self._column.generation:
            self._forget()
        values, known = self._column.values, len(self._answers) - 1
        if len(values) == known:
            return
        fresh = [self._rule(value) for value in values[known:]]
        self._answers = np.concatenate(
            (self._answers[:-1], np.array([*fresh, self._absent], dtype=self._dtype))
        )
        self.is_trivial = self.is_trivial and all(answer == self._absent for answer in fresh)

    def over(self, nodes: NodeColumns) -> np.ndarray[Any, Any]:
        """The function's result for every node of the view."""
        self.update()
        return self._answers.take(self._column.ids[nodes.rows])
