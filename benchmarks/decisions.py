"""Decisions per second of the core alone: evaluate, choose, assume. No queue, no API.

    python benchmarks/decisions.py [--nodes 5000] [--pods 2000] [--workload basic] [--plugins core|default]

Each workload runs without and with pod classes on the same cluster; the 5th percentile of batches is reported.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from random import Random

from kubesched.cache.cache import Cache
from kubesched.config.defaults import default_profile
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerProfile, Plugin, Plugins, PluginSet
from kubesched.framework.classes import ClassCache
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.profile import build_frameworks
from kubesched.framework.registry import RegistryError
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE, PodBuilder

BATCH = 100
CORE = [
    "PrioritySort",
    "SchedulingGates",
    "NodeUnschedulable",
    "NodeName",
    "NodeResourcesFit",
    "DefaultBinder",
]


def basic(name: str) -> PodBuilder:
    return make_pod(name).cpu("100m").memory("500Mi").label("app", "bench")


def node_affinity(name: str) -> PodBuilder:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}]}
    return basic(name).affinity("nodeAffinity", required={"nodeSelectorTerms": [term]})


def required_anti_affinity(name: str) -> PodBuilder:
    return basic(name).label("color", "green").pod_anti_affinity(HOSTNAME, color="green")


def required_affinity(name: str) -> PodBuilder:
    return basic(name).label("color", "blue").pod_affinity(ZONE, color="blue")


def preferred_affinity(name: str) -> PodBuilder:
    return (
        basic(name)
        .label("color", "red")
        .preferred_pod_term("podAffinity", 1, HOSTNAME, color="red")
    )


def preferred_anti_affinity(name: str) -> PodBuilder:
    return (
        basic(name)
        .label("color", "yellow")
        .preferred_pod_term("podAntiAffinity", 1, HOSTNAME, color="yellow")
    )


def spread_hard(name: str) -> PodBuilder:
    return (
        basic(name)
        .label("color", "pink")
        .spread(5, ZONE, selector={"matchLabels": {"color": "pink"}})
    )


def spread_soft(name: str) -> PodBuilder:
    return (
        basic(name)
        .label("color", "grey")
        .spread(5, ZONE, "ScheduleAnyway", {"matchLabels": {"color": "grey"}})
    )


WORKLOADS: dict[str, Callable[[str], PodBuilder]] = {
    "basic": basic,
    "node-affinity": node_affinity,
    "anti-affinity": required_anti_affinity,
    "affinity": required_affinity,
    "preferred-affinity": preferred_affinity,
    "preferred-anti-affinity": preferred_anti_affinity,
    "spread-hard": spread_hard,
    "spread-soft": spread_soft,
}


def framework_for(table: NodeTable, plugins: str):
    registry = in_tree_registry()
    gates = FeatureGates()
    profile = default_profile(KubeSchedulerProfile(scheduler_name="default-scheduler"), gates)
    if plugins == "core":
        enabled = tuple(Plugin(name) for name in CORE)
        profile = KubeSchedulerProfile(
            scheduler_name="default-scheduler",
            plugins=Plugins(multi_point=PluginSet(enabled=enabled)),
        )
    elif plugins == "available":
        enabled = tuple(p for p in profile.plugins.multi_point.enabled if _importable(p.name))
        profile = KubeSchedulerProfile(
            scheduler_name="default-scheduler",
            plugins=Plugins(multi_point=PluginSet(enabled=enabled)),
            plugin_config=profile.plugin_config,
        )
    handle = Handle(table=table)
    return build_frameworks([profile], registry, lambda _name: handle, gates)["default-scheduler"]


def _importable(name: str) -> bool:
    try:
        return in_tree_registry().get(name) is not None
    except RegistryError:
        return False


def run(workload: str, node_count: int, pod_count: int, plugins: str, *, classes: bool) -> float:
    """Microseconds per decision, 5th percentile of the batches: these machines are noisy, the fastest batches are not."""
    table = NodeTable(node_count)
    cache = Cache(table)
    for number in range(node_count):
        node = (
            make_node(f"node-{number}").capacity(cpu="4", memory="32Gi").zone(f"zone-{number % 3}")
        )
        cache.add_node(node.build())
        cache.add_pod(basic(f"old-{number}").on(f"node-{number}").build())
    framework = framework_for(table, plugins)
    algorithm = SchedulingAlgorithm(table, Random(1), classes=ClassCache() if classes else None)
    make = WORKLOADS[workload]
    pods = [PodInfo(make(f"p-{number}").build()) for number in range(pod_count)]
    batches: list[float] = []
    for start in range(0, pod_count, BATCH):
        began = time.process_time()
        for pod in pods[start : start + BATCH]:
            result = algorithm.schedule(framework, CycleState(), pod)
            if not isinstance(result, ScheduleResult):
                raise SystemExit(f"{workload}: {result}")
            cache.assume_pod(pod.assumed_on(result.node_name))
        batches.append((time.process_time() - began) / BATCH * 1e6)
    return statistics.quantiles(batches, n=20)[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--plugins", choices=["core", "default", "available"], default="default")
    args = parser.parse_args()
    print(f"{'workload':<26}{'µs':>9}{'/s':>9}{'µs classes':>13}{'/s classes':>12}")
    for workload in WORKLOADS if args.workload == "all" else [args.workload]:
        plain = run(workload, args.nodes, args.pods, args.plugins, classes=False)
        by_class = run(workload, args.nodes, args.pods, args.plugins, classes=True)
        print(
            f"{workload:<26}{plain:>9.1f}{1e6 / plain:>9.0f}{by_class:>13.1f}{1e6 / by_class:>12.0f}"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
