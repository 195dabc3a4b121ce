"""Decisions per second of the core alone: evaluate, choose, assume. No queue, no API.

    python benchmarks/decisions.py [--nodes 5000] [--pods 2000] [--workload basic] [--plugins
        core|default]
                                   [--templates K] [--repeats 3] [--only-classes]

Every node has one pod that asks for 100m CPU and 500Mi of memory; the pods to be placed ask for the
same and for what their workload says:

    basic                     nothing else
    node-affinity             two of three zones
    anti-affinity             no node with a pod of its kind; a fifth of the nodes have one
    affinity                  a zone with a pod of its kind
    preferred-affinity        rather nodes with pods of its kind
    preferred-anti-affinity   rather nodes without
    spread-hard, spread-soft  evenly over zones
    default-spread            behind a Service, of a ReplicaSet: evenly over nodes and zones by
                              default
    mixed                     nothing else, on a cluster with five kinds of pods, 0.4 of each per
                              node
    churn                     nothing else; for every 100 pods a node comes, a node goes, and a pod
                              of high priority is
                              tried that fits nowhere, preemption included

Each workload runs without and with pod classes on like clusters, in turns. Of each run the 5th
percentile of batches of 100 is taken: these machines are noisy, the fastest batches are not. The
median of the repeats is printed, in CPU time. With --templates, pods of K templates that differ in
their CPU request take turns. With --only-classes the runs without classes are left out: a cluster
of 1,000,000 nodes takes most of a minute to build, and a decision without classes 20 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import msgspec

from kubesched.api.apps_v1 import ReplicaSet
from kubesched.api.core_v1 import Pod, Service
from kubesched.config.defaults import default_profile
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerProfile, Plugin, Plugins, PluginSet
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.profile import build_frameworks
from kubesched.framework.registry import RegistryError
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.post_filter import run_post_filter
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder

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


def behind_service(name: str) -> PodBuilder:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "web",
        "controller": True,
    }
    pod = basic(name).label("app", "web")
    pod.json["metadata"]["ownerReferences"] = [owner]
    return pod


Maker = Callable[[str], PodBuilder]
Present = Iterator[tuple[PodBuilder, int]]


def one_per_node(nodes: int) -> Present:
    return ((basic(f"old-{number}"), number) for number in range(nodes))


def some_green(nodes: int) -> Present:
    yield from one_per_node(nodes)
    for number in range(0, nodes, 5):
        yield required_anti_affinity(f"green-{number}"), number


def five_kinds(nodes: int) -> Present:
    kinds = (
        basic,
        required_affinity,
        required_anti_affinity,
        preferred_affinity,
        preferred_anti_affinity,
    )
    for kind, make in enumerate(kinds):
        for number in range(2 * nodes // 5):
            yield make(f"old-{kind}-{number}"), (5 * number // 2 + kind) % nodes


@dataclass(frozen=True)
class Workload:
    """The pods to place, and those that are there already with the number of their node."""

    make: Maker
    present: Callable[[int], Present] = one_per_node
    churns: bool = False


WORKLOADS = {
    "basic": Workload(basic),
    "node-affinity": Workload(node_affinity),
    "anti-affinity": Workload(required_anti_affinity, some_green),
    "affinity": Workload(required_affinity),
    "preferred-affinity": Workload(preferred_affinity),
    "preferred-anti-affinity": Workload(preferred_anti_affinity),
    "spread-hard": Workload(spread_hard),
    "spread-soft": Workload(spread_soft),
    "default-spread": Workload(behind_service),
    "mixed": Workload(basic, five_kinds),
    "churn": Workload(basic, churns=True),
}


def framework_for(
    table: NodeTable, plugins: str, listers: MemoryListers | None = None
) -> Framework:
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
    listers = listers or MemoryListers()
    nominator = Nominator(listers.of(Pod), lambda _key: None)
    handle = Handle(table=table, random=Random(1), listers=listers, nominator=nominator)
    return build_frameworks([profile], registry, lambda _name: handle, gates)["default-scheduler"]


def _importable(name: str) -> bool:
    try:
        return in_tree_registry().get(name) is not None
    except RegistryError:
        return False


class Cluster:
    """The nodes of a run and what is on them."""

    def __init__(
        self,
        workload: Workload,
        nodes: int,
        plugins: str,
        *,
        classes: bool,
        listers: MemoryListers | None = None,
    ) -> None:
        self.table = NodeTable(nodes)
        self.cache = Cache(self.table)
        self._nodes = nodes
        self._newest = nodes
        with uncollected():
            for number in range(nodes):
                self.cache.add_node(self._node(number).build())
            for pod, number in workload.present(nodes):
                self.cache.add_pod(pod.on(f"node-{number}").build())
        self.listers = MemoryListers() if listers is None else listers
        for workload_object in web():
            self.listers.of(type(workload_object)).put(workload_object)
        self.framework = framework_for(self.table, plugins, self.listers)
        self.algorithm = SchedulingAlgorithm(
            self.table, Random(1), engine=ClassEngine(self.table) if classes else None
        )

    @staticmethod
    def _node(number: int) -> NodeBuilder:
        node = make_node(f"node-{number}").capacity(cpu="4", memory="32Gi")
        return node.zone(f"zone-{number % 3}")

    def place(self, pod: PodInfo) -> None:
        result = self.algorithm.schedule(self.framework, CycleState(), pod)
        if not isinstance(result, ScheduleResult):
            raise SystemExit(f"{pod.key}: {result}")
        self.cache.assume_pod(pod.assumed_on(result.node_name))

    def exchange_node(self) -> None:
        """A node comes, and the one that came before goes."""
        self.cache.add_node(self._node(self._newest).build())
        if self._newest > self._nodes:
            self.cache.remove_node(f"node-{self._newest - 1}")
        self._newest += 1

    def churn(self, hopeless: PodInfo) -> None:
        """Nodes are exchanged, and a pod fits nowhere, whoever were evicted."""
        self.exchange_node()
        state = CycleState()
        failed = self.algorithm.schedule(self.framework, state, hopeless)
        statuses = failed.error.diagnosis.node_to_status
        run_post_filter(self.framework, state, hopeless.pod, statuses)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Build objects that stay: the collector would walk over all of them again and again, and while
    decisions are timed.
    """
    gc.unfreeze()
    gc.collect()  # what an earlier run has left
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def web() -> Iterator[Service | ReplicaSet]:
    """What `default-spread` pods belong to."""
    meta = {"namespace": "default", "name": "web"}
    yield msgspec.convert({"metadata": meta, "spec": {"selector": {"app": "web"}}}, Service)
    selector = {"matchLabels": {"app": "web"}}
    yield msgspec.convert({"metadata": meta, "spec": {"selector": selector}}, ReplicaSet)


def run(
    name: str, nodes: int, pods: int, plugins: str, *, classes: bool, templates: int = 1
) -> float:
    """Microseconds per decision, 5th percentile of the batches."""
    workload = WORKLOADS[name]
    cluster = Cluster(workload, nodes, plugins, classes=classes)
    waiting = [
        PodInfo(workload.make(f"p-{number}").cpu(f"{100 + number % templates}m").build())
        for number in range(pods)
    ]
    batches: list[float] = []
    for start in range(0, pods, BATCH):
        hopeless = PodInfo(basic(f"hopeless-{start}").cpu("100").priority(100).build())
        began = time.process_time()
        if workload.churns:
            cluster.churn(hopeless)
        for pod in waiting[start : start + BATCH]:
            cluster.place(pod)
        batches.append((time.process_time() - began) / BATCH * 1e6)
    # With few batches the quantile is extrapolated.
    return max(statistics.quantiles(batches, n=20)[0], min(batches))


def _columns(microseconds: float) -> tuple[float, float]:
    """With the decisions per second."""
    return microseconds, 1e6 / microseconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--plugins", choices=["core", "default", "available"], default="default")
    parser.add_argument("--templates", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only-classes", action="store_true")
    args = parser.parse_args()
    print(f"{'workload':<26}{'µs':>9}{'/s':>9}{'µs classes':>13}{'/s classes':>12}")
    for name in WORKLOADS if args.workload == "all" else [args.workload]:
        times: dict[bool, list[float]] = {True: []} if args.only_classes else {False: [], True: []}
        for _ in range(args.repeats):
            for classes, measured in times.items():
                measured.append(
                    run(
                        name,
                        args.nodes,
                        args.pods,
                        args.plugins,
                        classes=classes,
                        templates=args.templates,
                    )
                )
        columns = [_columns(statistics.median(measured)) for measured in times.values()]
        without = (
            f"{'-':>9}{'-':>9}" if args.only_classes else "{:>9.1f}{:>9.0f}".format(*columns[0])
        )
        print(f"{name:<26}{without}" + "{:>13.1f}{:>12.0f}".format(*columns[-1]))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
