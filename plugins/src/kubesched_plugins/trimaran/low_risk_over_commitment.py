"""LowRiskOverCommitment: prefers nodes where limits beyond the capacity are unlikely to be used.

The risk of a resource is a weighted sum of two parts: by how much the limits exceed the capacity,
and how likely the measured load exceeds what is requested (a beta distribution with the measured
mean and deviation). The worse one of CPU and memory decides. Pods without requests and limits are
not its concern: they get the lowest score everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
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
from kubesched.framework.api import Node, Pod, PodSpec
from kubesched_plugins.trimaran.args import TrimaranArgs
from kubesched_plugins.trimaran.beta import Beta, fitted, max_variance
from kubesched_plugins.trimaran.metrics import CPU, MEMORY, Collector, Metric, report_of
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
    scores_of,
)

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
    collector_type: ClassVar[type[Collector[NodeLoad | None]]] = Collector

    def __init__(self, args: LowRiskOverCommitmentArgs | None, handle: Handle) -> None:
        args = args or LowRiskOverCommitmentArgs()
        super().__init__(args, handle)
        self.collector = self.collector_type(
            args, self._load_of, runs=handle.spawn is not None, report=report_of(handle, self.name)
        )
        self._demands: dict[str, tuple[PodSpec, tuple[int, ...]]] = {}
        weights = args.risk_limit_weights or {}
        self._weights = [weights.get(name, DEFAULT_WEIGHT) for name in ("cpu", "memory")]

    def close(self) -> None:
        self.collector.close()

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        """The original computes here what Score needs."""
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> npt.NDArray[np.int64]:
        return scores_of(nodes, self._scorer(pod))

    def score_rule(self, state: CycleState, pod: Pod) -> Rule[int]:
        return Rule(Scope.ROW, premise=self.collector.version, at=self._scorer(pod))

    def class_fields(self, pod: Pod) -> None:
        """Scores depend on the spec alone."""

    def _scorer(self, pod: Pod) -> Callable[[int], int]:
        requests, table = requests_of(pod), self.handle.table
        limits = limits_of(pod, requests)
        if not (any(requests) or any(limits)):
            return lambda _row: 0

        def score(row: int) -> int:
            load = self.collector.of(table.nodes[row])
            return self._score(requests, limits, load, table.pods[row].values())

        return score

    def _score(
        self, requests: Demand, limits: Demand, load: NodeLoad | None, pods: Collection[PodInfo]
    ) -> int:
        if load is None:
            return 0
        specs = [info.pod.spec for info in pods]
        if specs != load.specs:
            load.specs = specs
            columns = zip(*map(self._demands_of, pods), strict=True)
            load.sums = [sum(column) for column in columns] or [0, 0, 0, 0]
            load.risks = self._risks_by_load(load)
        worst, sums = 0.0, load.sums
        for kind, capacity in enumerate(load.capacity):
            limit, weight = sums[2 + kind] + limits[kind], self._weights[kind]
            risk = (1 - weight) * load.risks[kind]
            if limit > capacity:
                request = min(sums[kind] + requests[kind], capacity)
                risk = weight * (float(limit - capacity) / float(limit - request)) + risk
            if risk > worst:
                worst = risk
        return rounded((1 - clamp(worst)) * MAX_NODE_SCORE)

    def _risks_by_load(self, load: NodeLoad) -> list[float]:
        """How likely the load exceeds what was requested: the same for every pod that may come."""
        risks = []
        for kind, distribution in enumerate(load.distributions):
            capacity, enough = load.capacity[kind], 1.0
            if distribution is not None:
                asked, allowed = min(load.sums[kind], capacity), load.sums[2 + kind]
                enough = distribution.probability_of_enough(asked, allowed, capacity)
            risks.append(1 - enough)
        return risks

    def _load_of(self, node: Node, metrics: Sequence[Metric] | None) -> NodeLoad | None:
        if metrics is None:
            return None
        capacity, window = capacity_of(node), self.args.smoothing_window_size
        cpu = resource_stats(metrics, CPU, capacity.milli_cpu, 1.0)
        memory = resource_stats(metrics, MEMORY, capacity.memory, MEGA)
        return NodeLoad(capacity, (_distribution(cpu, window), _distribution(memory, window)))

    def _demands_of(self, pod: PodInfo) -> tuple[int, ...]:
        """Requests and limits, computed once per version of the pod's spec."""
        spec = pod.pod.spec
        known = self._demands.get(pod.uid)
        if known is None or known[0] is not spec:
            if len(self._demands) >= MAX_KNOWN:
                self._demands.clear()
            requests = requests_of(pod.pod)
            known = self._demands[pod.uid] = spec, (*requests, *limits_of(pod.pod, requests))
        return known[1]


class Distribution(NamedTuple):
    """Of the load of one resource, as a part of the capacity."""

    mu: float
    sigma: float
    beta: Beta | None

    def probability_of_enough(self, request: int, limit: int, capacity: int) -> float:
        """How likely the load stays within the request; given that it is within the limit."""
        size = float(capacity)
        enough = self._at_most(clamp(request / size) if size else math.nan)
        if limit < capacity and request <= limit:
            if limit == 0:
                return 1.0
            if self.beta is not None and not self._is_certain:
                possible = enough if limit == request else self.beta.at_most(limit / size)
                if possible > 0:
                    enough = clamp(enough / possible)
        return enough

    @property
    def _is_certain(self) -> bool:
        return self.mu == 0 or self.sigma == 0

    def _at_most(self, threshold: float) -> float:
        if self._is_certain:
            return float(self.mu == 0 or self.mu <= threshold)
        return 0.0 if self.beta is None else self.beta.at_most(threshold)


def _distribution(stats: ResourceStats | None, window: int) -> Distribution | None:
    if stats is None:
        return None
    # Averaging over windows made the deviation smaller than it is.
    mu, sigma = stats.mu(), stats.sigma() * math.pow(float(window), 0.5)
    sigma = min(sigma, math.sqrt(max_variance(mu) * MAX_VARIANCE_ALLOWANCE))
    return Distribution(mu, sigma, fitted(mu, sigma))


@dataclass(slots=True)
class NodeLoad:
    """Of a node since the last fetch: CPU, then memory."""

    capacity: Demand
    distributions: tuple[Distribution | None, Distribution | None]
    specs: Sequence[PodSpec] | None = None
    """Of the pods on it, for which the following was computed."""
    sums: Sequence[int] = ()
    """Their requests and limits."""
    risks: Sequence[float] = ()
