"""Preferred terms, both ways: a sum per topology value, looked up for every node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.snapshot.columns import InternedColumn, Ints
from kubesched.snapshot.pod_index import DomainCounter
from kubesched.snapshot.views import NodeColumns


class Contribution(NamedTuple):
    """Pods by domain, each worth `weight` to the nodes of its domain."""

    domains: DomainCounter
    weight: int


class ScoreState(NamedTuple):
    """Per topology label, the sum of contributions by value; the last slot is for nodes without the label."""

    sums: tuple[tuple[InternedColumn[str], Ints], ...]


def add_up(contributions: Iterable[Contribution]) -> ScoreState | None:
    """The sums per label; None when no pod contributes anything, be it zero."""
    by_column: dict[int, tuple[InternedColumn[str], Ints]] = {}
    for domains, weight in contributions:
        if not domains.total:
            continue
        column = domains.column
        _, sums = by_column.setdefault(
            id(column), (column, np.zeros(len(column.values) + 1, dtype=np.int64))
        )
        sums[:-1] += weight * domains.counts[: len(column.values)]
    return ScoreState(tuple(by_column.values())) if by_column else None


def raw_scores(state: ScoreState, nodes: NodeColumns) -> Ints:
    total = np.zeros(len(nodes), dtype=np.int64)
    for column, sums in state.sums:
        total += sums.take(column.ids[nodes.rows])
    return total


def normalized(scores: Ints) -> Ints:
    """From lowest = 0 to highest = 100; all 0 when there is no difference.

    # Upstream divides before it multiplies, in doubles: 29/100 of the range gives 28.
    """
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros_like(scores)
    shares = (scores - lowest).astype(np.float64)
    shares /= float(highest - lowest)
    shares *= float(MAX_NODE_SCORE)
    return shares.astype(np.int64)
