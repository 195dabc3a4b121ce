"""LowRiskOverCommitment: prefers nodes where limits beyond the capacity are unlikely to be used.

The risk of a resource is a weighted sum of two parts: by how much the limits exceed the capacity,
and how likely the measured load exceeds what is requested (a beta distribution with the measured
mean and deviation). The worse one of CPU and memory decides. Pods without requests and limits are
not its concern: they get the lowest score everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kubesched.framework import (
    MAX_NODE_SCORE,
    CycleState,
    Handle,
    NodeColumns,
    PodInfo,
    PreScorePlugin,
    Rule,
    Scope,
    ScorePlugin,
    Status,
)
from kubesched.framework.api import Node, Pod
from kubesched_plugins.trimaran.args import TrimaranArgs
from kubesched_plugins.trimaran.beta import Beta, fitted, max_variance
from kubesched_plugins.trimaran.metrics import CPU, MEMORY, Collector, Metric, report_of
from kubesched_plugins.trimaran.resource_stats import (
    MEGA,
    Demand,
    ResourceStats,
    capacity_of,
    clamp,
    demands_of,
    resource_stats,
    rounded,
    scores_of,
)

MAX_VARIANCE_ALLOWANCE: Final = 0.99
DEFAULT_WEIGHT: Final = 0.5

Sums = tuple[int, int, int, int]
"""Requested CPU and memory, then the limits."""
NO_SUMS: Final[Sums] = (0, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class LowRiskOverCommitmentArgs(TrimaranArgs):
    """`LowRiskOverCommitmentArgs` of `kubescheduler.config.k8s.io/v1`."""

    smoothing_window_size: int = 5
    risk_limit_weights: dict[str, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothing_window_size <= 0:
            self._set("smoothing_window_size", 5)
        given = self.risk_limit_weights or {"cpu": DEFAULT_WEIGHT, "memory": DEFAULT_WEIGHT}
        weights = {name: w if 0 <= w <= 1 else DEFAULT_WEIGHT for name, w in given.items()}
        self._set("risk_limit_weights", weights)


class LowRiskOverCommitment(PreScorePlugin, ScorePlugin):
    """Scores nodes by the risk that overcommitment is felt."""

    name = "LowRiskOverCommitment"
    args_type = LowRiskOverCommitmentArgs
    args: LowRiskOverCommitmentArgs
    collector_type: ClassVar[type[Collector[NodeLoad | None]]] = Collector

    def __init__(self, args: LowRiskOverCommitmentArgs | None, handle: Handle) -> None:
        args = args or LowRiskOverCommitmentArgs()
        super().__init__(args, handle)
        self.collector = self.collector_type(
            args, self._load_of, runs=handle.spawn is not None, report=report_of(handle, self.name)
        )
        self._sums: dict[int, tuple[list[PodInfo], Sums]] = {}
        """By row, with the pods that they are of."""
        weights = args.risk_limit_weights or {}
        self._weights = [weights.get(name, DEFAULT_WEIGHT) for name in ("cpu", "memory")]

    def close(self) -> None:
        self.collector.close()

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        """The original computes here what Score needs."""
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> npt.NDArray[np.int64]:
        demands, rows = state.remember(self.name, lambda: demands_of(pod)), nodes.table.nodes
        if not any(demands):
            return np.zeros(len(nodes), dtype=np.int64)

        def score(row: int) -> int:
            load = self.collector.of(rows[row])
            return 0 if load is None else self._score(demands, load, self._sums_at(row))

        return scores_of(nodes, score)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.ROW, premise=self.collector.version)

    def class_fields(self, pod: Pod) -> None:
        """Scores depend on the spec alone."""

    def _score(self, demands: Sums, load: NodeLoad, sums: Sums) -> int:
        if sums != load.sums:
            load.sums, load.risks = sums, load.risks_with(sums)
        worst = 0.0
        for kind, capacity in enumerate(load.capacity):
            limit, weight = sums[2 + kind] + demands[2 + kind], self._weights[kind]
            risk = (1 - weight) * load.risks[kind]
            if limit > capacity:
                request = min(sums[kind] + demands[kind], capacity)
                risk = weight * (float(limit - capacity) / float(limit - request)) + risk
            if risk > worst:
                worst = risk
        return rounded((1 - clamp(worst)) * MAX_NODE_SCORE)

    def _sums_at(self, row: int) -> Sums:
        """Requests and limits of the pods on a node.

        Pods that came are added; if one is gone or changed, which makes it another PodInfo, all are
        added up anew.
        """
        pods = list(self.handle.table.pods[row].values())
        known, sums = self._sums.get(row, ([], NO_SUMS))
        if pods != known:
            start = len(known)
            if pods[:start] != known:
                start, sums = 0, NO_SUMS
            for info in pods[start:]:
                own = demands_of(info.pod)
                sums = sums[0] + own[0], sums[1] + own[1], sums[2] + own[2], sums[3] + own[3]
            self._sums[row] = pods, sums
        return sums

    def _load_of(self, node: Node, metrics: Sequence[Metric] | None) -> NodeLoad | None:
        if metrics is None:
            return None
        capacity, window = capacity_of(node), self.args.smoothing_window_size
        cpu = resource_stats(metrics, CPU, capacity.milli_cpu, 1.0)
        memory = resource_stats(metrics, MEMORY, capacity.memory, MEGA)
        return NodeLoad(capacity, (_distribution(cpu, window), _distribution(memory, window)))


class Distribution(NamedTuple):
    """Of the load of one resource, as a part of the capacity."""

    mu: float
    is_certain: bool
    beta: Beta | None

    def probability_of_enough(self, request: int, limit: int, capacity: int) -> float:
        """How likely the load stays within the request; given that it is within the limit."""
        size, is_limited = float(capacity), request <= limit < capacity
        if is_limited and limit == 0:
            return 1.0
        wanted = clamp(request / size) if size else math.nan
        if self.is_certain:
            return float(self.mu == 0 or self.mu <= wanted)
        if self.beta is None:
            return 0.0
        if is_limited and limit == request:
            return float(self.beta.can_be_at_most(wanted))
        enough = self.beta.at_most(wanted)
        possible = self.beta.at_most(limit / size) if is_limited else 1.0
        return clamp(enough / possible) if possible > 0 else enough


def _distribution(stats: ResourceStats | None, window: int) -> Distribution | None:
    if stats is None:
        return None
    # Averaging over windows made the deviation smaller than it is.
    mu, sigma = stats.mu(), stats.sigma() * math.pow(float(window), 0.5)
    sigma = min(sigma, math.sqrt(max_variance(mu) * MAX_VARIANCE_ALLOWANCE))
    return Distribution(mu, mu == 0 or sigma == 0, fitted(mu, sigma))


@dataclass(slots=True)
class NodeLoad:
    """Of a node since the last fetch: CPU, then memory."""

    capacity: Demand
    distributions: tuple[Distribution | None, Distribution | None]
    sums: Sums | None = None
    """Those for which the risks were computed."""
    risks: Sequence[float] = ()

    def risks_with(self, sums: Sums) -> list[float]:
        """How likely the load exceeds what was requested: the same for every pod that may come."""
        risks = []
        for kind, distribution in enumerate(self.distributions):
            capacity, enough = self.capacity[kind], 1.0
            if distribution is not None:
                asked, allowed = min(sums[kind], capacity), sums[2 + kind]
                enough = distribution.probability_of_enough(asked, allowed, capacity)
            risks.append(1 - enough)
        return risks
