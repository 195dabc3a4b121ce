"""Strategies of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Each maps the requested amount of a resource on a node, pod included, to 0..100; the weighted mean
over the resources is the score. A resource that a node does not have is left out of that node's
mean. Mirrors upstream's
`noderesources/{least_allocated,most_allocated,requested_to_capacity_ratio}.go`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from kubesched.config.plugin_args import (
    LEAST_ALLOCATED,
    MAX_CUSTOM_PRIORITY_SCORE,
    MOST_ALLOCATED,
    ScoringStrategy,
    UtilizationShapePoint,
)
from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.node_resources import int64
from kubesched.plugins.node_resources.scored_resources import (
    ScoredResource,
    nonzero_cells,
    nonzero_use,
)

_NO_OVERFLOW: Final = int64.MAX // MAX_NODE_SCORE
"""Capacities up to this can be multiplied by the highest score."""


class Strategy(ABC):
    """A share per resource, and their weighted mean, rounded down."""

    def score_nodes(self, resources: Sequence[ScoredResource], nodes: NodeColumns) -> Ints:
        total = np.zeros(len(nodes), dtype=np.int64)
        weights: Any = 0  # one for all nodes, or one each
        for resource, request, weight in resources:
            capacity = nodes.allocatable(resource)
            # Like Go's integers, those of a column wrap around.
            requested = nonzero_use(nodes, resource) + request
            offers: Mask | bool = True
            if int64.least(capacity) <= 0:
                offers = capacity != 0
                capacity = np.where(offers, capacity, 1)
            shares = self._shares(requested, capacity)
            counted = self._is_counted(shares, offers) * weight
            total += shares * counted
            weights = weights + counted
        is_same = isinstance(weights, int)
        return self._means(total, max(weights, 1) if is_same else np.maximum(weights, 1))

    def _is_counted(self, shares: Ints, offers: Mask | bool) -> Mask | bool:
        """Nodes in whose mean a resource takes part, or True for all."""
        return offers

    def _means(self, totals: Ints, weights: Ints | int) -> Ints:
        return int64.quotients(totals, weights)

    @abstractmethod
    def _shares(self, requested: Ints, capacity: Ints) -> Ints:
        """`_share` for columns."""

    def row_scorer(
        self, resources: Sequence[ScoredResource], table: NodeTable
    ) -> Callable[[int], int]:
        """The score of one row, valid as long as the table's arrays; see `RowRule` for the gain."""
        columns = [
            (weight, request, nonzero_cells(table, resource), table.allocatable[resource].cells)
            for resource, request, weight in resources
        ]

        def score(row: int) -> int:
            return self.score_sums(
                [
                    (weight, used[row] + request, offered[row])
                    for weight, request, used, offered in columns
                ]
            )

        return score

    def score_sums(self, demands: list[tuple[int, int, int]]) -> int:
        """The score of one node, from (weight, requested, capacity) of each resource."""
        total = weights = 0
        for weight, requested, capacity in demands:
            if capacity:
                total += weight * self._share(requested, capacity)
                weights += weight
        return int64.divide(total, weights) if weights else 0

    @abstractmethod
    def _share(self, requested: int, capacity: int) -> int:
        """The share of one resource on a node that offers it."""


class LeastAllocated(Strategy):
    """Emptier nodes score higher."""

    def _shares(self, requested: Ints, capacity: Ints) -> Ints:
        left = int64.quotients((capacity - requested) * MAX_NODE_SCORE, capacity)
        left[requested > capacity] = 0
        return left

    def _share(self, requested: int, capacity: int) -> int:
        if 0 <= requested <= capacity < _NO_OVERFLOW:
            return (capacity - requested) * MAX_NODE_SCORE // capacity
        requested = int64.wrap(requested)
        return 0 if requested > capacity else _percentage(capacity - requested, capacity)


class MostAllocated(Strategy):
    """Fuller nodes score higher; overcommitted counts as full."""

    def _shares(self, requested: Ints, capacity: Ints) -> Ints:
        return int64.quotients(np.minimum(requested, capacity) * MAX_NODE_SCORE, capacity)

    def _share(self, requested: int, capacity: int) -> int:
        return _percentage(min(int64.wrap(requested), capacity), capacity)


class RequestedToCapacityRatio(MostAllocated):
    """Applies a piecewise linear function to the share of MostAllocated.

    # Upstream: a resource that scores 0 is left out together with its weight, and the mean is
    # rounded to nearest.
    """

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        scale = MAX_NODE_SCORE // MAX_CUSTOM_PRIORITY_SCORE
        points = [(point.utilization, point.score * scale) for point in shape]
        self._curve = [broken_linear(points, at) for at in range(MAX_NODE_SCORE + 1)]

    def _shares(self, requested: Ints, capacity: Ints) -> Ints:
        return np.array(self._curve).take(super()._shares(requested, capacity), mode="clip")

    def _share(self, requested: int, capacity: int) -> int:
        utilization = super()._share(requested, capacity)
        return self._curve[min(max(utilization, 0), MAX_NODE_SCORE)]

    def _is_counted(self, shares: Ints, offers: Mask | bool) -> Mask | bool:
        return offers & (shares > 0)

    def _means(self, totals: Ints, weights: Ints | int) -> Ints:
        # Halves round up: there are no negative scores.
        return (totals / weights + 0.5).astype(np.int64)

    def score_sums(self, demands: list[tuple[int, int, int]]) -> int:
        total = weights = 0
        for weight, requested, capacity in demands:
            share = self._share(requested, capacity) if capacity else 0
            if share > 0:
                total += weight * share
                weights += weight
        return int(total / weights + 0.5) if weights else 0


def make_strategy(strategy: ScoringStrategy) -> Strategy:
    """Builds the strategy of a validated configuration."""
    if strategy.type == LEAST_ALLOCATED:
        return LeastAllocated()
    if strategy.type == MOST_ALLOCATED:
        return MostAllocated()
    parameters = strategy.requested_to_capacity_ratio
    assert parameters is not None, "a shape is required by validation"
    return RequestedToCapacityRatio(parameters.shape)


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """Piecewise linear interpolation, constant beyond both ends; quotients are truncated."""
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            return low + int64.divide((high - low) * (at - left), right - left)
    return points[-1][1]


def _percentage(part: int, whole: int) -> int:
    return int64.divide(int64.wrap(int64.wrap(part) * MAX_NODE_SCORE), whole)
