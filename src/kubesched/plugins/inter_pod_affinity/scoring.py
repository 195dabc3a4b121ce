"""Scores of preferred terms: a sum per topology value, looked up for every node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import InternedColumn, Levels, extremes
from kubesched.framework.nodes.domain_counter import DomainCounter
from kubesched.framework.nodes.views import NodeColumns

_SMALL: Final = 2**30
"""Scores up to this, and the distance of two of them, fit in 32 bits."""
_MANY: Final = 8192
"""With more nodes than this, each pass over them counts."""


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
        values = len(column.values)
        # A lookup costs as much as ten additions: if there are several, domains are added up first.
        lookups = 0 if contributions[0].domains.is_by_row else len(contributions) * len(nodes)
        here: Levels | None = None if lookups <= values else np.zeros(values + 1, dtype=kind)
        for domains, weight in contributions:
            if here is None:
                total = _plus(total, np.multiply(domains.of_nodes(nodes), weight, dtype=kind))
            else:
                here[:-1] += np.multiply(domains.counts[:values], weight, dtype=kind)
        if here is not None:
            total = _plus(total, here.take(nodes.part_of(column.ids)))
    assert total is not None, "without contributions there is nothing to score"
    return total


def _plus(total: Levels | None, more: Levels) -> Levels:
    return more if total is None else total + more


def normalized(scores: Levels) -> Levels:
    """Scales scores from lowest = 0 to highest = 100; all 0 if they are equal.

    # Upstream divides before it multiplies, in doubles: 29/100 of the range gives 28.
    """
    lowest, highest = extremes(scores)
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int16)
    span = float(highest - lowest)

    def scaled(raw: Levels) -> Levels:
        shares = (raw - lowest).astype(np.float64)
        shares /= span
        shares *= float(MAX_NODE_SCORE)
        return shares.astype(np.int16)

    at = (scores != 0).nonzero()[0] if len(scores) > _MANY else ()
    if not 0 < 8 * len(at) < len(scores):
        return scaled(scores)
    # Most nodes have no pods that count, and are scaled alike.
    final = np.full(len(scores), int(-lowest / span * MAX_NODE_SCORE), dtype=np.int16)
    final[at] = scaled(scores[at])
    return final
