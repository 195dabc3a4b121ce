"""The nodes that passed every filter, as a view."""

from __future__ import annotations

import numpy as np

from kubesched.scheduler.host_choice import Indices
from kubesched.snapshot.columns import Mask
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns


class FeasibleColumns(NodeColumns):
    """A view of the passing rows that works out which they are only when somebody asks."""

    __slots__ = ("_ok",)

    def __init__(self, table: NodeTable, ok: Mask, count: int) -> None:
        self.table = table
        self._ok = ok
        self._length = count
        self._rows = slice(0, table.high_water) if count == table.high_water else None

    def _find_rows(self) -> Indices:
        return np.flatnonzero(self._ok)
