"""Soft constraints over a few rows: `weigh`, `raw_scores` and `normalized` of `scoring` in plain Python.

For three zones a dozen array operations cost more than the handful of look-ups there is to do (52 against 89 µs per
decision with spread-soft, benchmarks/decisions.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.plugins.pod_topology_spread.constraints import HOSTNAME, Counted
from kubesched.plugins.pod_topology_spread.scoring import natural_log
from kubesched.snapshot.node_table import NodeTable


class FewRows:
    """The final scores of rows, each of which stands for some feasible nodes. Holds references to columns, as rules do."""

    def __init__(self, counted: Sequence[Counted], table: NodeTable, *, requires_all: bool) -> None:
        self._counted = counted
        self._table = table
        self._requires_all = requires_all
        self._columns = [soft.domains.column for soft in counted]
        self._parts = [_Part(soft) for soft in counted]

    def scores(self, rows: Sequence[int], counts: Sequence[int]) -> list[int]:
        """For every row, which stands for so many feasible nodes."""
        node_count = self._table.node_count
        for column in self._columns:
            if column.present < node_count:
                return _final_with_lacking(
                    self._counted, rows, counts, requires_all=self._requires_all
                )
        totals = [0.0] * len(rows)
        for part in self._parts:
            counted, extra = part.counted, part.extra
            if part.is_hostname:
                weight = natural_log(sum(counts) + 2)
                pods_on = counted.counter.rows.get
                totals = [
                    t + (pods_on(row, 0) * weight + extra)
                    for t, row in zip(totals, rows, strict=True)
                ]
            else:
                value_of, pods_in = part.value_of, counted.domains.cells
                values = [value_of[row] for row in rows]
                size = len(set(values)) if counted.domains.column.shared else sum(counts)
                weight = natural_log(size + 2)
                totals = [
                    t + (pods_in[value] * weight + extra)
                    for t, value in zip(totals, values, strict=True)
                ]
        return _reversed([int(t + 0.5) for t in totals])  # nothing is negative


class _Part:
    """What one constraint needs at every decision."""

    __slots__ = ("counted", "extra", "is_hostname", "value_of")

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.is_hostname = counted.constraint.topology_key == HOSTNAME
        self.extra = float(counted.constraint.max_skew - 1)
        self.value_of = memoryview(counted.domains.column.ids)  # type: ignore[arg-type]  # arrays offer the buffer protocol


def _final_with_lacking(
    counted: Sequence[Counted],
    rows: Sequence[int],
    counts: Sequence[int],
    *,
    requires_all: bool,
) -> list[int]:
    """The same where some rows lack a label. A constraint says nothing about them, or with `requires_all` they are ignored."""
    domain_ids = [[soft.domains.column.ids.item(row) for row in rows] for soft in counted]
    taking_part: Sequence[int] = range(len(rows))
    if requires_all:
        taking_part = [at for at in taking_part if all([ids[at] >= 0 for ids in domain_ids])]
    final = [0] * len(rows)
    if not taking_part:
        return final
    totals = [0.0] * len(rows)
    for soft, ids in zip(counted, domain_ids, strict=True):
        weight = natural_log(_size(soft, ids, counts, taking_part) + 2)
        extra = float(soft.constraint.max_skew - 1)
        pods = _pods_of(soft, rows, ids)
        for at in taking_part:
            totals[at] += pods[at] * weight + extra if ids[at] >= 0 else 0.0
    scores = _reversed([math.floor(totals[at] + 0.5) for at in taking_part])
    for at, score in zip(taking_part, scores, strict=True):
        final[at] = score
    return final


def _pods_of(counted: Counted, rows: Sequence[int], ids: Sequence[int]) -> list[int]:
    """The pods that count for each row; anything for a row that lacks the label."""
    if counted.constraint.topology_key == HOSTNAME:
        count_at = counted.counter.count_at
        return [count_at(row) for row in rows]
    count_in = counted.domains.counts.item
    return [count_in(domain) for domain in ids]


def _reversed(raw: Sequence[int]) -> list[int]:
    """Turn "high is bad" into 0..100."""
    highest = max(raw)
    if not highest:
        return [MAX_NODE_SCORE] * len(raw)
    both = highest + min(raw)
    return [MAX_NODE_SCORE * (both - score) // highest for score in raw]


def _size(
    counted: Counted, ids: Sequence[int], counts: Sequence[int], taking_part: Sequence[int]
) -> int:
    """How many nodes there are for the hostname, how many values otherwise; lacking the label is a value too."""
    if counted.constraint.topology_key == HOSTNAME:
        return sum([counts[at] for at in taking_part])
    if counted.domains.column.shared:
        return len({ids[at] for at in taking_part})
    with_label = sum([counts[at] for at in taking_part if ids[at] >= 0])
    return with_label + any([ids[at] < 0 for at in taking_part])
