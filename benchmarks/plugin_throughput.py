"""Decisions per second of CPU with a plugin beside the default profile without it.

python benchmarks/plugin_throughput.py CASE|all [TEMPLATES [NODES [PODS]]]

Both are measured in turn, on clusters in memory with the same nodes and pods; the ratio of the
medians is what counts. Objects of the plugin change as they would: every hundredth pod. Metrics
of Trimaran's plugins come once: in a cluster they are fetched every 30 seconds.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any

import msgspec

from kubesched.testing import Cluster, make_node, make_pod
from kubesched_plugins.capacity_scheduling import CapacityScheduling, ElasticQuota
from kubesched_plugins.coscheduling import POD_GROUP_LABEL, Coscheduling, PodGroup
from kubesched_plugins.golden.trimaran import (
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    TargetLoadPacking,
)
from kubesched_plugins.node_resource_topology import NodeResourceTopologyMatch
from kubesched_plugins.node_resource_topology.topology import NodeResourceTopology
from kubesched_plugins.trimaran.metrics import Metric, Snapshot

ROUNDS = 5
GROUP = 10


def config(plugin: str, args: dict[str, Any]) -> str:
    profile: dict[str, Any] = {}
    if plugin:
        profile["plugins"] = {"multiPoint": {"enabled": [{"name": plugin}]}}
        only = {"enabled": [{"name": plugin}], "disabled": [{"name": "*"}]}
        if plugin == Coscheduling.name:
            profile["plugins"]["queueSort"] = only
        if plugin == CapacityScheduling.name:
            profile["plugins"]["postFilter"] = only
        profile["pluginConfig"] = [{"name": plugin, "args": args}] if args else []
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )


def zones(node: str) -> NodeResourceTopology:
    resources = [{"name": "cpu", "available": "32"}, {"name": "memory", "available": "128Gi"}]
    manifest = {
        "metadata": {"name": node},
        "zones": [
            {"name": f"node-{number}", "type": "Node", "resources": resources}
            for number in range(2)
        ],
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    }
    return msgspec.convert(manifest, NodeResourceTopology)


def group(node: str) -> PodGroup:
    """As many groups as nodes: enough for the pods."""
    meta = {"name": node, "namespace": "default"}
    return msgspec.convert({"metadata": meta, "spec": {"minMember": GROUP}}, PodGroup)


def quota(node: str) -> ElasticQuota | None:
    """A hundred namespaces with a quota at most; all pods are in the first."""
    number = int(node.removeprefix("n"))
    if number % 50:
        return None
    meta = {"name": "quota", "namespace": f"team-{number}" if number else "default"}
    spec = {"min": {"cpu": "1000", "memory": "1Ti"}}
    return msgspec.convert({"metadata": meta, "spec": spec}, ElasticQuota)


def show_metrics(cluster: Cluster, nodes: int) -> None:
    kinds = [("CPU", "AVG"), ("CPU", "STD"), ("Memory", "AVG"), ("Memory", "STD")]
    *_, plugin = cluster.assembly.frameworks["default-scheduler"].score
    metrics = {
        f"n{at}": [Metric(*kind, (at * 7 + shift * 11) % 30) for shift, kind in enumerate(kinds)]
        for at in range(nodes)
    }
    plugin.collector.show(Snapshot(metrics, int(cluster.clock.now())))  # type: ignore[attr-defined]


WATCHER = {"watcherAddress": "http://watcher"}
CASES: dict[str, tuple[type[Any], dict[str, Any], Callable[[str], object] | None]] = {
    "capacity": (CapacityScheduling, {}, quota),
    "coscheduling": (Coscheduling, {}, group),
    "target-load": (TargetLoadPacking, WATCHER, None),
    "load-variation": (LoadVariationRiskBalancing, WATCHER, None),
    "low-risk": (LowRiskOverCommitment, WATCHER, None),
    "numa": (NodeResourceTopologyMatch, {}, zones),
    "numa-over-reserve": (NodeResourceTopologyMatch, {"cacheResyncPeriodSeconds": 5}, zones),
}


def pods(count: int, templates: int, *, grouped: bool = False) -> Iterator[Any]:
    for number in range(count):
        amounts = {"cpu": f"{10 + number % templates}m", "memory": "64Mi"}
        container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
        pod = make_pod(f"p{number}")
        if grouped:
            pod.label(POD_GROUP_LABEL, f"n{number // GROUP}")
        yield pod.spec(containers=[container]).build()


def measure(case: str, with_plugin: bool, templates: int, node_count: int, pod_count: int) -> float:
    """µs of CPU per pod."""
    plugin, args, make = CASES[case]
    nodes = [
        make_node(f"n{number}").capacity(cpu="64", memory="256Gi", pods=500).build()
        for number in range(node_count)
    ]
    made_for = [] if make is None else [make(node.metadata.name) for node in nodes]
    objects = [obj for obj in made_for if obj is not None]
    chosen = config(plugin.name if with_plugin else "", args)
    with Cluster(
        [*nodes, *objects], chosen, plugins=[plugin], remembers=False, measures_plugins=False
    ) as cluster:
        cluster.assembly.scheduler.check_invariants = lambda: None  # type: ignore[method-assign]
        if with_plugin and make is None:
            show_metrics(cluster, node_count)
        made = list(pods(pod_count, templates, grouped=plugin is Coscheduling))
        first = GROUP * -(-templates // GROUP)  # whole groups: their pods come together
        cluster.add(*made[:first])
        cluster.settle()
        gc.collect()
        gc.disable()
        started = thread_time()
        for at in range(first, pod_count, 100):
            if make is not None and (changed := make(f"n{at % node_count}")) is not None:
                cluster.update(changed)  # type: ignore[type-var]  # a record
            cluster.add(*made[at : at + 100])
            cluster.settle()
        took = thread_time() - started
        gc.enable()
        assert len(cluster.placements()) == pod_count
    return took / (pod_count - first) * 1e6


def main() -> None:
    given = [int(text) for text in sys.argv[2:]]
    for case in CASES if sys.argv[1] == "all" else [sys.argv[1]]:
        compare(case, *given, *(1, 5000, 2000)[len(given) :])


def compare(case: str, templates: int, node_count: int, pod_count: int) -> None:
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for with_plugin in (False, True):
            found = measure(case, with_plugin, templates, node_count, pod_count)
            taken[with_plugin].append(found)
    without, with_it = (statistics.median(taken[key]) for key in (False, True))
    print(
        f"{case}: {without:.0f} µs per pod without, {with_it:.0f} with: {without / with_it:.0%} "
        f"of the throughput at {node_count} nodes, {templates} template(s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
