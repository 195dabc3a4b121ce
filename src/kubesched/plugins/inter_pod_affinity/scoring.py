"""Scores of preferred terms: a sum per topology value, looked up for every node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import InternedColumn, Ints, Levels
from kubesched.framework.nodes.domain_counter import DomainCounter
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.by_value import by_value, extremes


class Contribution(NamedTuple):
    """Pods by domain, each worth `weight` to the nodes of its domain."""

    domains: DomainCounter
    weight: int


ScoreState = Sequence[tuple[InternedColumn[str], list[Contribution]]]
"""Contributions of at least one pod, by topology label."""


def with_pods(contributions: Iterable[Contribution]) -> ScoreState | None:
    """The contributions that have pods, also those of weight zero; None if there are none."""
    by_column: dict[int, tuple[InternedColumn[str], list[Contribution]]] = {}
    for contribution in contributions:
        if contribution.domains.total:
            column = contribution.domains.column
            by_column.setdefault(id(column), (column, []))[1].append(contribution)
    return list(by_column.values()) or None


def raw_scores(state: ScoreState, nodes: NodeColumns) -> Ints:
    """The weighted pods in each node's domains; the last slot, for unlabelled nodes, is 0."""
    total: Ints | None = None
    for column, contributions in state:
        ids = nodes.part_of(column.ids)
        if len(contributions) > 1 and len(column.values) <= len(nodes):
            sums = np.zeros(len(column.values) + 1, dtype=np.int64)
            for domains, weight in contributions:
                counts = domains.counts[: len(column.values)]
                sums[:-1] += counts if weight == 1 else weight * counts
            total = _plus(total, sums.take(ids))
        else:
            for domains, weight in contributions:
                pods = domains.counts.take(ids)
                if weight != 1:
                    pods *= weight
                total = _plus(total, pods)
    assert total is not None, "without contributions there is nothing to score"
    return total


def _plus(total: Ints | None, more: Ints) -> Ints:
    if total is None:
        return more
    total += more
    return total


def normalized(scores: Ints) -> Levels:
    """Scales scores from lowest = 0 to highest = 100; all 0 if they are equal.

    # Upstream divides before it multiplies, in doubles: 29/100 of the range gives 28.
    """
    lowest, highest = extremes(scores)
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int16)

    def share(values: Ints) -> Ints:
        shares = (values - lowest).astype(np.float64)
        shares /= float(highest - lowest)
        shares *= float(MAX_NODE_SCORE)
        return shares.astype(np.int64)

    return by_value(scores, lowest, highest, share)
