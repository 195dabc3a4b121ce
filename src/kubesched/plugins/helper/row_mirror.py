"""Columns derived from the node table row by row, kept current through its log.

Between two pods usually one row changes. A plugin caches the part of its result that is the same
for all pods here, and recomputes only the dirty rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import numpy as np

from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.node_table import NodeTable

_PATCH_LIMIT: Final = 16
"""Up to this many dirty rows are recomputed one by one, more in one batch."""


class RowMirror(ABC):
    """Follows one table. Call `sync` before reading; entries of dead rows are undefined."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._cursor = self._epoch = -1

    def sync(self) -> None:
        table = self.table
        end, is_current = table.pod_log.end, self._epoch == table.epoch
        if is_current and self._cursor == end:
            return
        changed = table.pod_log.since(self._cursor) if is_current else None
        if changed is None:
            self._rebuild()
        elif len(rows := dict.fromkeys(changed)) <= _PATCH_LIMIT:
            for row in rows:
                self._patch(row)
        elif len(rows) > table.high_water // 4:
            self._rebuild()
        else:
            self._patch_rows(np.fromiter(rows, dtype=np.intp, count=len(rows)))
        self._cursor, self._epoch = self._settled_until(end), table.epoch

    def invalidate(self) -> None:
        """Rebuild at the next `sync`."""
        self._epoch = -1

    def _settled_until(self, end: int) -> int:
        """The log cursor up to which rows need not be recomputed again."""
        return end

    @abstractmethod
    def _rebuild(self) -> None:
        """Compute every row; arrays span the table's capacity."""

    def _patch_rows(self, rows: Indices) -> None:
        """Compute some rows, which may be dead."""
        self._rebuild()

    @abstractmethod
    def _patch(self, row: int) -> None:
        """Compute one row, which may be dead."""
