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
from typing import ClassVar, Final

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
from kubesched.framework.api import Node, Pod, PodSpec
from kubesched_plugins.trimaran.args import TrimaranArgs
from kubesched_plugins.trimaran.beta import Beta, fitted, max_variance
from kubesched_plugins.trimaran.metrics import CPU, MEMORY, Collector
from kubesched_plugins.trimaran.resource_stats import (
    MEGA,
    Demand,
    ResourceStats,
    capacity_of,
    clamp,
    limits_of,
    requests_of,
    resource_stats,
    rounded,
)

STATE_KEY: Final = "LowRiskOverCommitment.PodResources"
MAX_VARIANCE_ALLOWANCE: Final = 0.99
DEFAULT_WEIGHT: Final = 0.5
MAX_KNOWN: Final = 500_000
"""Pods whose sums are kept: more than a cluster has."""


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
    collector_type: ClassVar[type[Collector]] = Collector

    def __init__(self, args: LowRiskOverCommitmentArgs | None, handle: Handle) -> None:
        args = args or LowRiskOverCommitmentArgs()
        super().__init__(args, handle)
        self.collector = self.collector_type(args, runs=handle.spawn is not None)
        self._demands: dict[str, tuple[PodSpec, Demand, Demand]] = {}
        weights = args.risk_limit_weights or {}
        self._cpu_weight = weights.get("cpu", DEFAULT_WEIGHT)
        self._memory_weight = weights.get("memory", DEFAULT_WEIGHT)

    def close(self) -> None:
        self.collector.close()

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        state.write(STATE_KEY, (requests_of(pod), limits_of(pod)))
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> npt.NDArray[np.int64]:
        requests, limits = state.get(STATE_KEY) or (requests_of(pod), limits_of(pod))
        count = len(nodes.row_indices())
        if not (any(requests) or any(limits)):
            return np.zeros(count, dtype=np.int64)
        scores = [
            self._score(requests, limits, nodes.node_at(at), nodes.pods_at(at))
            for at in range(count)
        ]
        return np.array(scores, dtype=np.int64)

    def _score(self, requests: Demand, limits: Demand, node: Node, pods: Sequence[PodInfo]) -> int:
        metrics = self.collector.metrics_of(node)
        if metrics is None:
            return 0
        capacity = capacity_of(node)
        cpu_requested = memory_requested = cpu_limited = memory_limited = 0
        for other in pods:
            asked, allowed = self._demands_of(other)
            cpu_requested += asked.milli_cpu
            memory_requested += asked.memory
            cpu_limited += allowed.milli_cpu
            memory_limited += allowed.memory
        requested = Demand(cpu_requested, memory_requested)
        limited = Demand(cpu_limited, memory_limited)
        request = requested.plus(requests).at_most(capacity)
        limit = limited.plus(limits)
        before = requested.at_most(capacity)
        cpu = _risk(
            resource_stats(metrics, CPU, capacity.milli_cpu, 0, 1.0),
            Amounts(request[0], limit[0], before[0], limited[0], capacity[0]),
            self._cpu_weight,
            self.args.smoothing_window_size,
        )
        memory = _risk(
            resource_stats(metrics, MEMORY, capacity.memory, 0, MEGA),
            Amounts(request[1], limit[1], before[1], limited[1], capacity[1]),
            self._memory_weight,
            self.args.smoothing_window_size,
        )
        return rounded((1 - max(cpu, memory)) * MAX_NODE_SCORE)

    def _demands_of(self, pod: PodInfo) -> tuple[Demand, Demand]:
        """Requests and limits, computed once per version of the pod's spec."""
        spec = pod.pod.spec
        known = self._demands.get(pod.uid)
        if known is None or known[0] is not spec:
            if len(self._demands) >= MAX_KNOWN:
                self._demands.clear()
            known = self._demands[pod.uid] = (spec, requests_of(pod.pod), limits_of(pod.pod))
        return known[1], known[2]

    def score_rule(self, state: CycleState, pod: Pod) -> Rule[int]:
        return Rule(Scope.ROW, premise=self.collector.version)


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of one resource on a node: with the pod, and before it came."""

    request: int
    limit: int
    request_before: int
    limit_before: int
    capacity: int


def _risk(stats: ResourceStats | None, amounts: Amounts, weight: float, window: int) -> float:
    by_limit = by_load = 0.0
    if amounts.limit > amounts.capacity:
        over = float(amounts.limit - amounts.capacity)
        by_limit = over / float(amounts.limit - amounts.request)
    if stats is not None:
        by_load = 1 - _probability_of_enough(stats, amounts, window)
    return clamp(weight * by_limit + (1 - weight) * by_load)


def _probability_of_enough(stats: ResourceStats, amounts: Amounts, window: int) -> float:
    """How likely the load stays within what is requested; given that it is within the limits."""
    mu, sigma = stats.mu_sigma()
    # Averaging over windows made the deviation smaller than it is.
    sigma *= math.pow(float(window), 0.5)
    sigma = min(sigma, math.sqrt(max_variance(mu) * MAX_VARIANCE_ALLOWANCE))
    capacity = float(amounts.capacity)
    threshold = clamp(amounts.request_before / capacity) if capacity else math.nan
    enough, distribution = _probability(mu, sigma, threshold)
    if amounts.limit_before < amounts.capacity and amounts.request_before <= amounts.limit_before:
        within = amounts.limit_before / capacity
        if within == 0:
            return 1.0
        if distribution is not None:
            possible = distribution.at_most(within)
            if possible > 0:
                enough = clamp(enough / possible)
    return enough


def _probability(mu: float, sigma: float, threshold: float) -> tuple[float, Beta | None]:
    if mu == 0 or (sigma == 0 and mu <= threshold):
        return 1.0, None
    if sigma == 0 and mu > threshold:
        return 0.0, None
    distribution = fitted(mu, sigma)
    if distribution is None:
        return 0.0, None
    return distribution.at_most(threshold), distribution
