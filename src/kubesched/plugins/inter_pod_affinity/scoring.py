"""Scores of preferred terms: a sum per topology value, looked up for every node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import InternedColumn, Levels
from kubesched.framework.nodes.domain_counter import DomainCounter
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.extremes import extremes

_SMALL: Final = 2**30
"""Scores up to this, and the distance of two of them, fit in 32 bits."""


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


def raw_scores(state: ScoreState, nodes: NodeColumns) -> Levels:
    """The weighted pods in each node's domains; nodes without a label count no pods for it."""
    largest = sum(abs(weight) * pods.total for _, group in state for pods, weight in group)
    kind = np.int32 if largest < _SMALL else np.int64
    total: Levels | None = None
    for column, contributions in state:
        ids, values = nodes.part_of(column.ids), len(column.values)
        by_node = len(nodes) < values
        sums: Levels = np.zeros(len(nodes) if by_node else values + 1, dtype=kind)
        for domains, weight in contributions:
            pods = domains.counts.take(ids) if by_node else domains.counts[:values]
            sums[: len(pods)] += pods if weight == 1 else np.multiply(pods, weight, dtype=kind)
        here = sums if by_node else sums.take(ids)
        total = here if total is None else total + here
    assert total is not None, "without contributions there is nothing to score"
    return total


def normalized(scores: Levels) -> Levels:
    """Scales scores from lowest = 0 to highest = 100; all 0 if they are equal.

    # Upstream divides before it multiplies, in doubles: 29/100 of the range gives 28.
    """
    lowest, highest = extremes(scores)
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int16)
    shares = (scores - lowest).astype(np.float64)
    shares /= float(highest - lowest)
    shares *= float(MAX_NODE_SCORE)
    return shares.astype(np.int16)
