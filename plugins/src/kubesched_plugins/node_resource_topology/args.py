"""`NodeResourceTopologyMatchArgs` of `kubescheduler.config.k8s.io/v1`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
BALANCED_ALLOCATION: Final = "BalancedAllocation"
LEAST_NUMA_NODES: Final = "LeastNUMANodes"
ALL: Final = "All"
AUTODETECT: Final = "Autodetect"
ONLY_EXCLUSIVE: Final = "OnlyExclusiveResources"
_STRATEGIES: Final = (LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION, LEAST_NUMA_NODES)


def _check(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field}: {value!r} is not one of {', '.join(allowed)}")


@dataclass(frozen=True)
class ResourceSpec:
    """Weight of a resource in the score."""

    name: str = ""
    weight: int = 1


@dataclass(frozen=True)
class ScoringStrategy:
    """How nodes are scored; resources that are not listed weigh 1."""

    type: str = ""
    resources: list[ResourceSpec] | None = None


@dataclass(frozen=True)
class Cache:
    """Details of the over-reserving cache."""

    foreign_pods_detect: str = ALL
    resync_method: str = AUTODETECT
    informer_mode: str = "Dedicated"
    resync_scope: str | None = None

    def __post_init__(self) -> None:
        _check("cache.foreignPodsDetect", self.foreign_pods_detect, (ALL, "None", ONLY_EXCLUSIVE))
        _check("cache.resyncMethod", self.resync_method, (AUTODETECT, ALL, ONLY_EXCLUSIVE))
        _check("cache.informerMode", self.informer_mode, ("Dedicated", "Shared"))
        _check("cache.resyncScope", self.resync_scope or ALL, (ALL, "OnlyResources"))


@dataclass(frozen=True, kw_only=True)
class NodeResourceTopologyMatchArgs:
    """Which score, and which cache."""

    api_version: str = ""
    kind: str = ""
    scoring_strategy: ScoringStrategy = ScoringStrategy(LEAST_ALLOCATED)
    cache_resync_period_seconds: int | None = None
    discard_reserved_nodes: bool = False
    cache: Cache = Cache()
    preemption_mode: str = "Disabled"

    def __post_init__(self) -> None:
        strategy = self.scoring_strategy
        if strategy.type not in _STRATEGIES:
            raise ValueError(f"scoringStrategy.type: invalid ScoringStrategyType {strategy.type!r}")
        if self.preemption_mode not in ("Disabled", "Enabled"):
            raise ValueError(f"preemptionMode: invalid PreemptionMode {self.preemption_mode!r}")
        resources = strategy.resources or [ResourceSpec("cpu"), ResourceSpec("memory")]
        weighed = [ResourceSpec(each.name, each.weight or 1) for each in resources]
        object.__setattr__(self, "scoring_strategy", replace(strategy, resources=weighed))
