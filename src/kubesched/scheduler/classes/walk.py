"""The walk over the nodes in upstream's order, up to the wanted number of feasible nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kubesched.framework.nodes.columns import Indices, Mask


class Walk(NamedTuple):
    """Start of the walk, and number of feasible nodes wanted."""

    order: Indices
    """Rows in upstream's node list order."""
    start: int
    wanted: int

    def first(self, passing: Mask) -> tuple[Indices, int]:
        """The first passing rows, as many as wanted, and the number of rows examined.

        # Upstream: one surplus feasible node is what ends the search, so it counts as not examined.
        """
        count, examined, lacking = len(self.order), 0, self.wanted
        parts: list[Indices] = []
        size = self.wanted + self.wanted // 8 + 64
        while examined < count:
            begin = (self.start + examined) % count
            rows = self.order[begin : begin + min(size, count - examined)]
            places = passing[rows].nonzero()[0]
            if len(places) > lacking:
                parts.append(rows[places[:lacking]])
                examined += int(places[lacking])
                break
            parts.append(rows if len(places) == len(rows) else rows[places])
            lacking -= len(places)
            examined += len(rows)
            size *= 2
        return parts[0] if len(parts) == 1 else np.concatenate(parts), examined
