"""Time of `kubesched explain` once the objects are loaded: one pod, with and without `--fix`.

    python benchmarks/explain.py [NODES ...]        (default: 5000 100000)

The cluster has three zones, 30 pods per node (5 beyond 20,000 nodes), taints on a tenth of the
nodes, and every node is nearly full; the pods to explain fit nowhere, fit almost everywhere, or are
placed. Times are the best of three, in milliseconds, of a scheduler that has just been filled: the
first figure of a row includes caches that are built once.
"""

from __future__ import annotations

import sys
import time

from kubesched.api.core_v1 import Pod
from kubesched.insight.explain.selection import telling_nodes
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.testing import make_node, make_pod

PODS_PER_NODE = 30
FEWER_PODS = 5
"""Per node of clusters with more than 20,000 nodes, which would not fit into memory otherwise."""


def cluster(node_count: int) -> ClusterState:
    state = ClusterState("benchmark")
    pods_per_node = PODS_PER_NODE if node_count <= 20_000 else FEWER_PODS
    share = 15_000 // pods_per_node
    for i in range(node_count):
        node = make_node(f"node-{i}").capacity(cpu="16", memory="64Gi").zone("abc"[i % 3])
        if i % 10 == 0:
            node.taint("dedicated", f"team-{i % 7}")
        state.put(node.build())
    for i in range(node_count):
        for j in range(pods_per_node):
            pod = make_pod(f"web-{i}-{j}").cpu(f"{share - i % 80}m").memory("1Gi")
            state.put(pod.label("app", f"app-{j}").on(f"node-{i}").build())
    state.put(make_pod("greedy").cpu("14").build())
    state.put(make_pod("small").cpu("100m").build())
    spread = make_pod("spread").cpu("8").label("app", "app-1")
    spread.spread(1, "topology.kubernetes.io/zone", selector={"matchLabels": {"app": "app-1"}})
    spread.pod_anti_affinity("kubernetes.io/hostname", app="app-1")
    state.put(spread.build())
    return state


def timed(explainer, pod, **options) -> list[float]:
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        explainer.explain(pod, telling_nodes(10), **options)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def main() -> None:
    for node_count in [int(word) for word in sys.argv[1:]] or [5000, 100000]:
        state = cluster(node_count)
        started = time.perf_counter()
        explainer = explainer_of(state)
        print(f"{node_count} nodes: filled in {time.perf_counter() - started:.1f} s")
        for name in ("greedy", "small", "spread", "web-7-3"):
            pod = state.get(Pod, "default", name)
            plain = timed(explainer, pod)
            verdict = explainer.explain(pod, telling_nodes(10)).verdict.value
            fix = timed(explainer, pod, fix=True)
            print(
                f"  {name:8} {verdict:8} explain {plain[0]:7.1f} first, {min(plain):7.1f} best"
                f"   --fix {fix[0]:7.1f} first, {min(fix):7.1f} best"
            )


if __name__ == "__main__":
    main()
