"""How long `kubesched capacity` and `kubesched plan` take once the objects are loaded.

    python benchmarks/planning.py [NODES]        (default: 5000)

The cluster has three zones and 30 pods per node for the plans, none for the count of replicas,
which asks for 100,000. `plan` of one pod is asked five times; loading the objects into the
scheduler is timed apart, since `plan` and `capacity` both begin with it. Seconds are of processor
time and of the clock: on a busy machine they differ.
"""

from __future__ import annotations

import sys
from time import perf_counter, process_time

from kubesched.insight.planning.capacity import count_capacity
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.plan import Changes, plan_in
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.testing import make_node, make_pod

REPLICAS = 100_000
ZONE = "topology.kubernetes.io/zone"


def cluster(node_count: int, pods_per_node: int) -> ClusterState:
    state = ClusterState("benchmark")
    for i in range(node_count):
        node = make_node(f"node-{i}").capacity(cpu="32", memory="128Gi", pods=110)
        state.put(node.zone("abc"[i % 3]).build())
        for j in range(pods_per_node):
            pod = make_pod(f"old-{i}-{j}").cpu("500m").memory("1Gi").label("app", f"app-{j}")
            state.put(pod.on(f"node-{i}").build())
    return state


def deployment(**spec: object) -> Manifest:
    labels = {"app": "web"}
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "web", "image": "web", "resources": {"requests": requests}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    return Manifest("web.yaml", 1, obj)


def spread() -> Manifest:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return deployment(topologySpreadConstraints=[constraint])


def timed(what: str, work) -> None:
    cpu, clock = process_time(), perf_counter()
    result = work()
    print(
        f"{what:44} {process_time() - cpu:7.3f} s cpu {perf_counter() - clock:7.3f} s clock  "
        f"{result}"
    )


def main() -> None:
    node_count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    print(f"{node_count} nodes")
    empty = cluster(node_count, 0)
    pod = deployment().obj["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "web"}}
    for name, manifest in (
        ("Pod", Manifest("web.yaml", 1, pod)),
        ("Deployment", deployment()),
        ("spread over zones", spread()),
    ):
        timed(
            f"capacity of {REPLICAS} replicas, {name}",
            lambda manifest=manifest: count_capacity(empty, [manifest], limit=REPLICAS).replicas,
        )
    full = cluster(node_count, 30)
    timed("load 30 pods per node", lambda: PlannedCluster(full).problems)
    plans(full)


def plans(state: ClusterState) -> None:
    """Plans over one loaded cluster each; what is timed is everything after loading."""
    for number in range(5):
        with PlannedCluster(state) as world:
            cpu, clock = process_time(), perf_counter()
            plan = plan_in(world, state, Changes(manifests=[deployment()]))
        print(
            f"plan of one pod, after loading, {number + 1:12} {process_time() - cpu:7.3f} s cpu "
            f"{perf_counter() - clock:7.3f} s clock  {plan.placed[0].node}"
        )


if __name__ == "__main__":
    main()
