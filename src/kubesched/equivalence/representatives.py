"""A view with one node for each group of nodes that all plugins treat alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubesched.snapshot.columns import ABSENT, Indices, Ints, Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns


class Representatives(NodeColumns):
    """A view with one row per group, and the number of nodes each represents."""

    def __init__(
        self,
        table: NodeTable,
        rows: Indices,
        stands_for: Sequence[int],
    ) -> None:
        super().__init__(table, rows)
        self._stands_for: Ints = np.array(stands_for, dtype=np.int64)

    def number_of_nodes(self, among: Mask | None = None) -> int:
        counts = self._stands_for if among is None else self._stands_for[among]
        return int(counts.sum())

    def number_of_values(self, key: str, among: Mask | None = None) -> int:
        if self.label_column(key).shared:
            # Nodes with different values are then in different groups.
            return super().number_of_values(key, among)
        lacking = self.label_ids(key) == ABSENT
        if among is None:
            among = np.ones(len(self), dtype=np.bool_)
        return self.number_of_nodes(among & ~lacking) + int((among & lacking).any())
