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
from kubesched.plugins.node_resources.resource_matrix import Amounts, Floats, resource_amounts
from kubesched.plugins.node_resources.scored_resources import (
    EXACT_BELOW,
    ScoredRequests,
    ScoredResource,
    nonzero_cells,
    nonzero_use,
)


class Strategy(ABC):
    """A share per resource, and their weighted mean, rounded down."""

    def score_nodes(self, wanted: ScoredRequests, nodes: NodeColumns) -> Ints:
        length = len(nodes)
        if not wanted.resources:
            return np.zeros(length, dtype=np.int64)
        amounts = resource_amounts(nodes, wanted.indices)
        if not (amounts.is_exact and wanted.is_exact):
            return self.score_one_by_one(wanted.resources, nodes)
        return amounts.scored(length, lambda part: self._score_block(part, wanted))

    def _score_block(self, amounts: Amounts, wanted: ScoredRequests) -> Floats:
        """The scores before rounding down."""
        left = amounts.spare - wanted.hundredfold
        # Nothing is left if requests exceed the capacity. Amounts too large for an exact double are
        # negative here.
        np.maximum(left, 0.0, out=left)
        shares = self._shares(left, amounts.capacity)
        absent = amounts.absent
        if absent is not None:
            shares[absent] = 0.0
        return self._mean(shares, absent, wanted.weights)

    def _mean(self, shares: Floats, absent: Mask | None, weights: list[int]) -> Floats:
        total = _weighted_sum(shares, weights)
        if absent is not None:
            total /= np.maximum(np.array(weights, dtype=np.float64) @ ~absent, 1.0)
        elif (whole := sum(weights)) == 2:
            total *= 0.5  # as exact as dividing, and faster
        else:
            total /= whole
        return total

    def score_one_by_one(self, resources: Sequence[ScoredResource], nodes: NodeColumns) -> Ints:
        """The scalar formula for every node, in integers."""
        capacities = np.stack([nodes.allocatable(scored.resource) for scored in resources], axis=1)
        requested = np.stack(
            [nonzero_use(nodes, scored.resource) + scored.request for scored in resources], axis=1
        )
        weights = [scored.weight for scored in resources]
        return np.array(
            [
                self.score_sums(list(zip(weights, wanted, offered, strict=True)))
                for wanted, offered in zip(requested.tolist(), capacities.tolist(), strict=True)
            ],
            dtype=np.int64,
        )

    @abstractmethod
    def _shares(self, left: Floats, capacity: Floats) -> Floats:
        """Whole percentages as doubles, by resource and node; `left` is 100 times the remainder."""

    def row_scorer(self, wanted: ScoredRequests, table: NodeTable) -> Callable[[int], int]:
        """The score of one row, valid as long as the table's arrays; see `Rule.at` for the gain."""
        columns = [
            (weight, request, nonzero_cells(table, resource), table.allocatable[resource].cells)
            for resource, request, weight in wanted.resources
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

    def _shares(self, left: Floats, capacity: Floats) -> Floats:
        left /= capacity
        return np.trunc(left, out=left)

    def _share(self, requested: int, capacity: int) -> int:
        if 0 <= requested <= capacity < EXACT_BELOW:
            return (capacity - requested) * MAX_NODE_SCORE // capacity
        requested = int64.wrap(requested)
        return 0 if requested > capacity else _percentage(capacity - requested, capacity)


class MostAllocated(Strategy):
    """Fuller nodes score higher; overcommitted counts as full."""

    def _shares(self, left: Floats, capacity: Floats) -> Floats:
        np.subtract(capacity * float(MAX_NODE_SCORE), left, out=left)
        left /= capacity
        return np.trunc(left, out=left)

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
        self._curve_table = np.array(self._curve, dtype=np.float64)

    def _shares(self, left: Floats, capacity: Floats) -> Floats:
        utilization = super()._shares(left, capacity).astype(np.intp)
        return self._curve_table.take(utilization, mode="clip")

    def _share(self, requested: int, capacity: int) -> int:
        utilization = super()._share(requested, capacity)
        return self._curve[min(max(utilization, 0), MAX_NODE_SCORE)]

    def _mean(self, shares: Floats, absent: Mask | None, weights: list[int]) -> Floats:
        counted = np.tensordot(np.array(weights, dtype=np.float64), shares > 0, axes=1)
        # Halves round up: there are no negative scores.
        return np.floor(_weighted_sum(shares, weights) / np.maximum(counted, 1.0) + 0.5)

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


def _weighted_sum(shares: Floats, weights: list[int]) -> Floats:
    total: Floats = shares[0] * weights[0] if weights[0] != 1 else shares[0]
    for at in range(1, len(weights)):
        total += shares[at] * weights[at] if weights[at] != 1 else shares[at]
    return total


def _percentage(part: int, whole: int) -> int:
    return int64.divide(int64.wrap(int64.wrap(part) * MAX_NODE_SCORE), whole)
