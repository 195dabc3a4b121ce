"""LoadVariationRiskBalancing: prefers nodes whose load is low and steady.

The risk of a resource is half the sum of its mean load with the pod and its deviation; the worse
one of CPU and memory decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from kubesched.framework import (
    MAX_NODE_SCORE,
    CycleState,
    Handle,
    NodeColumns,
    Rule,
    Scope,
    ScorePlugin,
)
from kubesched.framework.api import Node, Pod
from kubesched_plugins.trimaran.args import TrimaranArgs
from kubesched_plugins.trimaran.metrics import CPU, MEMORY, Collector
from kubesched_plugins.trimaran.resource_stats import (
    MEGA,
    Demand,
    ResourceStats,
    capacity_of,
    clamp,
    requests_of,
    resource_stats,
    rounded,
)


@dataclass(frozen=True, kw_only=True)
class LoadVariationRiskBalancingArgs(TrimaranArgs):
    """`LoadVariationRiskBalancingArgs` of `kubescheduler.config.k8s.io/v1`."""

    safe_variance_margin: float = 1.0
    safe_variance_sensitivity: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.safe_variance_margin < 0:
            self._set("safe_variance_margin", 1.0)
        if self.safe_variance_sensitivity < 0:
            self._set("safe_variance_sensitivity", 1.0)


class LoadVariationRiskBalancing(ScorePlugin):
    """Scores nodes by mean and deviation of their load."""

    name = "LoadVariationRiskBalancing"
    args_type = LoadVariationRiskBalancingArgs
    args: LoadVariationRiskBalancingArgs
    collector_type: ClassVar[type[Collector]] = Collector

    def __init__(self, args: LoadVariationRiskBalancingArgs | None, handle: Handle) -> None:
        args = args or LoadVariationRiskBalancingArgs()
        super().__init__(args, handle)
        self.collector = self.collector_type(args, runs=handle.spawn is not None)

    def close(self) -> None:
        self.collector.close()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> npt.NDArray[np.int64]:
        request = requests_of(pod)
        scores = [
            self._score_of(request, nodes.node_at(at)) for at in range(len(nodes.row_indices()))
        ]
        return np.array(scores, dtype=np.int64)

    def _score_of(self, request: Demand, node: Node) -> int:
        metrics = self.collector.metrics_of(node)
        if metrics is None:
            return 0
        capacity = capacity_of(node)
        stats = (
            resource_stats(metrics, CPU, capacity.milli_cpu, request.milli_cpu, 1.0),
            resource_stats(metrics, MEMORY, capacity.memory, request.memory, MEGA),
        )
        return rounded(min((self._score(one) for one in stats if one is not None), default=0.0))

    def score_rule(self, state: CycleState, pod: Pod) -> Rule[int]:
        return Rule(Scope.NODE, premise=self.collector.version)

    def _score(self, stats: ResourceStats) -> float:
        if stats.capacity <= 0:
            return 0.0
        mu, sigma = stats._replace(
            request=max(stats.request, 0.0),
            used_avg=clamp(stats.used_avg, stats.capacity),
            used_stdev=clamp(stats.used_stdev, stats.capacity),
        ).mu_sigma()
        sensitivity = self.args.safe_variance_sensitivity
        sigma = math.pow(sigma, math.inf if sensitivity == 0 else 1 / sensitivity)
        risk = (mu + clamp(sigma * self.args.safe_variance_margin)) / 2
        return (1.0 - risk) * MAX_NODE_SCORE
