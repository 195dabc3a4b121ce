"""LoadVariationRiskBalancing: prefers nodes whose load is low and steady.

The risk of a resource is half the sum of its mean load with the pod and its deviation; the worse
one of CPU and memory decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from kubesched_plugins.trimaran.metrics import CPU, MEMORY, Collector, Metric, report_of
from kubesched_plugins.trimaran.resource_stats import (
    MEGA,
    ResourceStats,
    capacity_of,
    clamp,
    requests_of,
    resource_stats,
    rounded,
    scores_of,
)

Loads = tuple[tuple[ResourceStats, float] | None, tuple[ResourceStats, float] | None]


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
    collector_type: ClassVar[type[Collector[Loads]]] = Collector

    def __init__(self, args: LoadVariationRiskBalancingArgs | None, handle: Handle) -> None:
        args = args or LoadVariationRiskBalancingArgs()
        super().__init__(args, handle)
        self.collector = self.collector_type(
            args, self._loads_of, runs=handle.spawn is not None, report=report_of(handle, self.name)
        )

    def close(self) -> None:
        self.collector.close()

    def _loads_of(self, node: Node, metrics: Sequence[Metric] | None) -> Loads:
        capacity = capacity_of(node)
        return (
            self._load_of(resource_stats(metrics, CPU, capacity.milli_cpu, 1.0)),
            self._load_of(resource_stats(metrics, MEMORY, capacity.memory, MEGA)),
        )

    def _load_of(self, stats: ResourceStats | None) -> tuple[ResourceStats, float] | None:
        """The load, and the part of the risk that its deviation makes."""
        if stats is None:
            return None
        used = clamp(stats.used_avg, stats.capacity)
        deviation = clamp(stats.used_stdev, stats.capacity)
        stats = ResourceStats(used, deviation, stats.capacity)
        sensitivity = self.args.safe_variance_sensitivity
        sigma = math.pow(stats.sigma(), math.inf if sensitivity == 0 else 1 / sensitivity)
        return stats, clamp(sigma * self.args.safe_variance_margin)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> npt.NDArray[np.int64]:
        wanted, rows = requests_of(pod), nodes.table.nodes
        wants = max(float(wanted.milli_cpu), 0.0), max(wanted.memory * MEGA, 0.0)
        return scores_of(nodes, lambda row: _score(wants, self.collector.of(rows[row])))

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE, premise=self.collector.version)

    def class_fields(self, pod: Pod) -> None:
        """Scores depend on the spec alone."""


def _score(wants: tuple[float, float], loads: Loads) -> int:
    """The worse one of the resources."""
    worst: float | None = None
    for want, load in zip(wants, loads, strict=True):
        if load is not None:
            stats, sigma = load
            score = (1.0 - (stats.mu(want) + sigma) / 2) * MAX_NODE_SCORE
            score = score if stats.capacity > 0 else 0.0
            worst = score if worst is None else min(worst, score)
    return rounded(worst or 0.0)
