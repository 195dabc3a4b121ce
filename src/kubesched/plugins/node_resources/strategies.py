"""The scoring strategies of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Each turns what a node would have given away, per resource, into a share of 0..100; a weighted mean of the shares is
the score. A resource that a node does not offer is left out of that node's mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kubesched.config.plugin_args import (
    LEAST_ALLOCATED,
    MAX_CUSTOM_PRIORITY_SCORE,
    MOST_ALLOCATED,
    ScoringStrategy,
    UtilizationShapePoint,
)
from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.plugins.node_resources.allocatable_columns import AllocatableColumns, Floats
from kubesched.plugins.node_resources.scored_resources import (
    ScoredResource,
    nonzero_use,
    nonzero_use_at,
)
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns


class Strategy(ABC):
    """A share per resource, and their weighted mean, rounded down."""

    def __init__(self) -> None:
        self._allocatable = AllocatableColumns()

    def score_nodes(self, resources: Sequence[ScoredResource], nodes: NodeColumns) -> Ints:
        total: Floats | None = None
        weights: float | np.ndarray[Any, Any] = 0.0
        for line, request, weight in resources:
            capacity, absent, is_exact = self._allocatable.over(nodes, line)
            used = nonzero_use(nodes, line)
            share = (
                self._shares(used, request, capacity)
                if is_exact
                else self._exact_shares(used, request, nodes.allocatable(line))
            )
            if absent is None:
                weights = weights + weight
            else:
                share[absent] = 0.0
                weights = weights + weight * ~absent
            if weight != 1:
                share *= weight
            total = share if total is None else np.add(total, share, out=total)
        if total is None:
            return np.zeros(len(nodes), dtype=np.int64)
        total /= np.maximum(weights, 1.0)
        return total.astype(np.int64)

    def score_row(self, resources: Sequence[ScoredResource], table: NodeTable, row: int) -> int:
        total = weights = 0
        for line, request, weight in resources:
            capacity = table.allocatable[line].cells[row]
            if capacity:
                requested = nonzero_use_at(table, line, row) + request
                total += weight * self._share(requested, capacity)
                weights += weight
        return total // weights if weights else 0

    @abstractmethod
    def _shares(self, used: Ints, request: int, capacity: Floats) -> Floats:
        """Whole percentages, as doubles; capacities are below `EXACT_BELOW`."""

    @abstractmethod
    def _share(self, requested: int, capacity: int) -> int:
        """The same for one node and any capacity other than 0."""

    def _exact_shares(self, used: Ints, request: int, capacity: Ints) -> Floats:
        """The same where capacities are too large for doubles: rare, so one by one."""
        pairs = zip((used + request).tolist(), capacity.tolist(), strict=True)
        return np.array([float(self._share(*pair)) if pair[1] else 0.0 for pair in pairs])


class LeastAllocated(Strategy):
    """The emptier, the better."""

    def _shares(self, used: Ints, request: int, capacity: Floats) -> Floats:
        free = used.astype(np.float64)
        np.subtract(capacity, free, out=free)
        free -= request
        np.maximum(free, 0.0, out=free)
        free *= MAX_NODE_SCORE
        free /= capacity
        return np.trunc(free, out=free)

    def _share(self, requested: int, capacity: int) -> int:
        return 0 if requested > capacity else _percentage(capacity - requested, capacity)


class MostAllocated(Strategy):
    """The fuller, the better; overcommitted counts as full."""

    def _shares(self, used: Ints, request: int, capacity: Floats) -> Floats:
        return _utilizations(used, request, capacity)

    def _share(self, requested: int, capacity: int) -> int:
        return _percentage(min(requested, capacity), capacity)


class RequestedToCapacityRatio(Strategy):
    """Whatever a piecewise linear function of the utilization says.

    # Upstream: a resource that scores 0 is left out together with its weight, and the mean is rounded to nearest.
    """

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        super().__init__()
        scale = MAX_NODE_SCORE // MAX_CUSTOM_PRIORITY_SCORE
        points = [(point.utilization, point.score * scale) for point in shape]
        self._curve = [broken_linear(points, at) for at in range(MAX_NODE_SCORE + 1)]
        self._curve_table = np.array(self._curve, dtype=np.float64)

    def score_nodes(self, resources: Sequence[ScoredResource], nodes: NodeColumns) -> Ints:
        total = np.zeros(len(nodes))
        weights = np.zeros(len(nodes))
        for line, request, weight in resources:
            capacity, absent, is_exact = self._allocatable.over(nodes, line)
            used = nonzero_use(nodes, line)
            share = (
                self._shares(used, request, capacity)
                if is_exact
                else self._exact_shares(used, request, nodes.allocatable(line))
            )
            if absent is not None:
                share[absent] = 0.0
            total += share * weight
            weights += (share > 0) * weight
        # Halves go up: scores are not negative.
        return np.floor(total / np.maximum(weights, 1.0) + 0.5).astype(np.int64)

    def score_row(self, resources: Sequence[ScoredResource], table: NodeTable, row: int) -> int:
        total = weights = 0
        for line, request, weight in resources:
            capacity = table.allocatable[line].cells[row]
            if capacity:
                share = self._share(nonzero_use_at(table, line, row) + request, capacity)
                if share > 0:
                    total += weight * share
                    weights += weight
        return int(total / weights + 0.5) if weights else 0

    def _shares(self, used: Ints, request: int, capacity: Floats) -> Floats:
        utilization = _utilizations(used, request, capacity).astype(np.intp)
        return self._curve_table.take(utilization, mode="clip")

    def _share(self, requested: int, capacity: int) -> int:
        if requested > capacity:
            return self._curve[MAX_NODE_SCORE]
        return self._curve[min(max(_percentage(requested, capacity), 0), MAX_NODE_SCORE)]


def make_strategy(strategy: ScoringStrategy) -> Strategy:
    """The strategy a (checked) configuration asks for."""
    if strategy.type == LEAST_ALLOCATED:
        return LeastAllocated()
    if strategy.type == MOST_ALLOCATED:
        return MostAllocated()
    parameters = strategy.requested_to_capacity_ratio
    assert parameters is not None, "a shape is required by validation"
    return RequestedToCapacityRatio(parameters.shape)


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """The value at `at` of the line through the points, flat beyond both ends; quotients lose their fraction."""
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            return low + _divide((high - low) * (at - left), right - left)
    return points[-1][1]


def _utilizations(used: Ints, request: int, capacity: Floats) -> Floats:
    share = used.astype(np.float64)
    share += request
    np.minimum(share, capacity, out=share)
    share *= MAX_NODE_SCORE
    share /= capacity
    return np.trunc(share, out=share)


def _percentage(part: int, whole: int) -> int:
    product = part * MAX_NODE_SCORE
    if not -(2**63) <= product < 2**63:
        # Upstream: 64-bit integers wrap around silently; it takes an amount beyond 80 PiB to get here.
        product = (product + 2**63) % 2**64 - 2**63
    return _divide(product, whole)


def _divide(numerator: int, denominator: int) -> int:
    """Go's integer division: the fraction is dropped, also below zero."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient
