"""What a pod costs in the playground, from the Deployment that asks for it until it is Running.

    python benchmarks/playground.py [--nodes 100 1000 5000] [--pods-per-node 4] [--stages]
        [--profile FILE]

Every size runs in a process of its own: `kubesched up` with that many nodes, then one Deployment of
plain pods. CPU is that of the whole process: API server, controllers, kubelets and scheduler.
`--stages` adds where it went (with probes that cost some 10 % themselves); `--profile` writes the
profile of one size for `python -m pstats`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubesched.app.event_loop import run
from kubesched.app.playground import Playground, PlaygroundSettings, playground
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.registry.users import ADMINISTRATOR

FEWEST_PODS = 1000  # below, starting and ending weigh more than the pods
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "bench"}
    container = {
        "name": "main",
        "image": "example.com/bench:1.0",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "ports": [{"containerPort": 80}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bench", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


class Stages:
    """CPU time by stage: time inside a probed call belongs to it, less that of probed calls it
    makes.
    """

    def __init__(self) -> None:
        self.used: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def probe(self, owner: Any, method: str, stage: str) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        @functools.wraps(original)
        def probed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            began = time.thread_time()
            try:
                return original(*args, **kwargs)
            finally:
                took = time.thread_time() - began
                self.used[stage] += took - self._inner.pop()
                self._inner[-1] += took

        setattr(owner, method, probed)

    def install(self) -> None:
        """Probe the synchronous steps a pod passes through."""
        from kubesched.client.informers.reflector import Reflector
        from kubesched.playground.client.controller import Controller
        from kubesched.playground.client.informers import Informer
        from kubesched.playground.client.local import LocalApi
        from kubesched.playground.handlers import subresources
        from kubesched.playground.handlers.watching import WatchStream
        from kubesched.playground.kubelet.pods import PodPlayer
        from kubesched.playground.server.api_server import ApiServer
        from kubesched.scheduler.scheduler import Scheduler

        self.probe(LocalApi, "create", "API create")
        for controller in Controller.__subclasses__():
            if controller is not PodPlayer:
                self.probe(controller, "sync", "controllers")
        self.probe(PodPlayer, "sync", "kubelet")
        self.probe(LocalApi, "create_composed", "events")
        self.probe(LocalApi, "write_status", "status writes")
        self.probe(LocalApi, "patch", "status writes")
        self.probe(Informer, "apply", "controllers' informers")
        self.probe(subresources, "post", "binding")
        self.probe(ApiServer, "respond", "API server, other requests")
        self.probe(WatchStream, "encode_batch", "watch fan-out")
        self.probe(Reflector, "_take", "scheduler's informers")
        self.probe(Scheduler, "_burst", "scheduling")


async def until_running(cluster: Playground, count: int) -> None:
    """Return when all pods run; counted from changes, so that waiting costs next to nothing."""
    running: set[str] = set()
    done = asyncio.Event()

    def changed(kind: str, pod: dict[str, Any], old: dict[str, Any] | None) -> None:
        if (pod.get("status") or {}).get("phase") == "Running":
            running.add(pod["metadata"]["uid"])
            if len(running) >= count:
                done.set()

    unsubscribe = cluster.cluster.api.subscribe("pods", changed)
    try:
        await done.wait()
    finally:
        unsubscribe()


async def until_ready(cluster: Playground, nodes: int) -> None:
    """Return when every node has its Lease and the scheduler has had a second to see it."""
    leases = cluster.cluster.api.registry.store.collection("leases.coordination.k8s.io")
    ready = asyncio.Event()

    def changed(kind: str, lease: dict[str, Any], old: dict[str, Any] | None) -> None:
        if leases.count >= nodes:
            ready.set()

    unsubscribe = cluster.cluster.api.subscribe("leases.coordination.k8s.io", changed)
    try:
        await ready.wait()
    finally:
        unsubscribe()
    await asyncio.sleep(1.0)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def list_cpu_s(cluster: Playground) -> float:
    """CPU of one `kubectl get pods`, without the client's."""
    request = ApiRequest(
        "GET", "/api/v1/namespaces/default/pods", "limit=0", {"accept": TABLE}, b"", ADMINISTRATOR
    )
    began = time.process_time()
    response = await cluster.cluster.server.handle(request)
    assert response.status == 200, response.body[:500]
    return time.process_time() - began


async def measure(nodes: int, pods: int, stages: Stages | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        settings = PlaygroundSettings(kubeconfig=Path(folder) / "kubeconfig", nodes=nodes)
        began = time.perf_counter()
        async with playground(settings) as cluster:
            await until_ready(cluster, nodes)
            start_s = time.perf_counter() - began
            if stages is not None:
                stages.used.clear()
            cpu, wall = time.process_time(), time.perf_counter()
            cluster.cluster.api.create("deployments.apps", deployment(pods))
            await until_running(cluster, pods)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            flaps = sum(
                1
                for node in cluster.cluster.api.list("nodes")[0]
                if (node.get("spec") or {}).get("taints")
            )
            result: dict[str, Any] = {
                "nodes": nodes,
                "pods": pods,
                "start_s": start_s,
                "wall_s": wall,
                "cpu_ms": cpu / pods * 1e3,
                "peak_mb": peak_mb(),
                "tainted": flaps,
            }
            if stages is not None:
                result["stages"] = {
                    name: used / pods * 1e3 for name, used in sorted(stages.used.items())
                }
                result["stages"]["event loop, HTTP, TLS, the rest"] = result["cpu_ms"] - sum(
                    result["stages"].values()
                )
            result["list_s"] = await list_cpu_s(cluster)
            result["list_again_s"] = await list_cpu_s(cluster)
    return result


@contextlib.contextmanager
def profiled(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    import cProfile

    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--pods-per-node", type=int, default=4)
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--profile", metavar="FILE")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        stages = Stages() if args.stages else None
        if stages is not None:
            stages.install()
        nodes = args.nodes[0]
        pods = max(FEWEST_PODS, nodes * args.pods_per_node)
        with profiled(args.profile):
            print(json.dumps(run(measure(nodes, pods, stages))))
        return
    print(f"{'NODES':>6} {'PODS':>7} {'WALL s':>8} {'CPU ms/POD':>11} {'PEAK MB':>8} {'LIST s':>7}")
    for nodes in args.nodes:
        command = [sys.executable, "-P", __file__, "--here", "--nodes", str(nodes)]
        command += ["--pods-per-node", str(args.pods_per_node)]
        command += ["--stages"] * args.stages + (
            ["--profile", args.profile] if args.profile else []
        )
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        one = json.loads(done.stdout)
        print(
            f"{one['nodes']:>6} {one['pods']:>7} {one['wall_s']:>8.1f} {one['cpu_ms']:>11.2f}"
            f" {one['peak_mb']:>8.0f} {one['list_s']:>7.2f}",
            flush=True,
        )
        if one["tainted"]:
            print(f"       {one['tainted']} nodes are tainted: the host was too slow for them")
        for stage, used_ms in one.get("stages", {}).items():
            print(f"       {used_ms:8.3f} ms  {stage}", flush=True)


if __name__ == "__main__":
    main()
