"""Pods that are as expensive as the API server admits: CPU time of one attempt, and how it grows.

    python benchmarks/hostile_pods.py [--nodes 200] [--sizes 250,500,1000] [--kinds spread-hard,...]
        [--budget MS]

    python benchmarks/hostile_pods.py --aftermath 5 [--nodes 2000]

    python benchmarks/hostile_pods.py --beside [--nodes 200] [--sizes 1000] [--kinds ...] [--most 5]

Anyone who may create pods can create these. An attempt goes through event handler, queue,
scheduling cycle and failure handling in one process, without an API. Every pod is new, so nothing
kept for equal pods helps. The last column is the growth of the time from one size to the next, as
an exponent: 1 is linear, 2 is quadratic. With --budget the exit code is 1 if any attempt took
longer.

--aftermath N shows what stays behind: after each of N pods with 2,000 spread constraints over
labels that no pod named before, the memory of the process, and the CPU time of taking in a changed
node and another pod.

--beside runs `kubesched run` and kube-scheduler one after the other over etcd and kube-apiserver
from $KUBEBUILDER_ASSETS and compares the CPU time of the scheduler process from the creation of
each pod until it has been tried, all that comes with it included. With --most the exit code is 1 if
any pod costs kubesched more than so many times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from kubesched.api.codec import decode
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.meta import DeleteOptions
from kubesched.testing import Cluster, make_node, make_pod
from kubesched.testing.control_plane import (
    ControlPlane,
    Process,
    control_plane,
    find_assets,
    free_ports,
)

ZONES = 5
PODS_PER_NODE = 3
PODS = "/api/v1/namespaces/default/pods"
PATIENCE_S = 120.0
IDLE_CHECKS = 100
LEAST_MS = 1.0
"""Below this, what both processes do while idle shows in the ratio."""
Spec = dict[str, object]


def _selector(n: int) -> Spec:
    return {"matchLabels": {"app": f"a{n % 7}"}}


def _spread(action: str, count: int, domain: str = "example.com") -> Spec:
    """The API server wants every key once per action."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": f"{domain}/key-{n}",
                "whenUnsatisfiable": action,
                "labelSelector": _selector(n),
            }
            for n in range(count)
        ]
    }


def _pod_terms(kind: str, count: int, *, preferred: bool = False) -> Spec:
    terms = [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": _selector(n)}
        if n % 2
        else {
            "topologyKey": f"example.com/key-{n}",
            "labelSelector": {"matchLabels": {"x": f"{n}"}},
        }
        for n in range(count)
    ]
    if preferred:
        weighted = [{"weight": 1 + n % 100, "podAffinityTerm": t} for n, t in enumerate(terms)]
        return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _node_terms(count: int) -> Spec:
    terms = [
        {"matchExpressions": [{"key": f"key-{n}", "operator": "In", "values": [f"v{n}"]}]}
        for n in range(count)
    ]
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
    }


def _containers(count: int) -> Spec:
    return {
        "containers": [
            {
                "name": f"c{n}",
                "image": f"example.com/image-{n}",
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                "ports": [{"containerPort": 80, "hostPort": 1 + n, "protocol": "TCP"}],
            }
            for n in range(count)
        ]
    }


KINDS: dict[str, Callable[[int], Spec]] = {
    "spread-hard": lambda count: _spread("DoNotSchedule", count),
    "spread-soft": lambda count: _spread("ScheduleAnyway", count),
    "affinity": lambda count: _pod_terms("podAffinity", count),
    "anti-affinity": lambda count: _pod_terms("podAntiAffinity", count),
    "preferred": lambda count: _pod_terms("podAffinity", count, preferred=True),
    "node-terms": _node_terms,
    "tolerations": lambda count: {
        "tolerations": [
            {"key": f"k{n}", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
            for n in range(count)
        ]
    },
    "containers": _containers,
    "volumes": lambda count: {"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(count)]},
    "claims": lambda count: {
        "volumes": [
            {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(count)
        ]
    },
}


def hostile_pod(name: str, spec: Spec) -> Pod:
    spec = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "x"}],
        **spec,
    }
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}
    return decode(msgspec.json.encode(body), Pod)


async def attempt_s(kind: str, count: int, nodes: int) -> float:
    """CPU seconds from a pod's arrival to the end of its first attempt, in a cluster of its own."""
    with Cluster() as world:
        for n in range(nodes):
            node = make_node(f"n{n}").label("topology.kubernetes.io/zone", f"z{n % ZONES}")
            world.add(node.label("kubernetes.io/hostname", f"n{n}").build())
        for n in range(nodes * PODS_PER_NODE):
            pod = make_pod(f"p{n}").label("app", f"a{n % 7}").on(f"n{n % nodes}")
            world.add(pod.build())
        world.settle()
        pod = hostile_pod(kind, KINDS[kind](count))
        written = len(world.client.patches)
        began = time.process_time()
        world.add(pod)
        while not world.client.bindings and len(world.client.patches) == written:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return time.process_time() - began


def _labelled(n: int, change: str = "") -> Node:
    node = make_node(f"n{n}").label("topology.kubernetes.io/zone", f"z{n % ZONES}")
    return node.label("kubernetes.io/hostname", f"n{n}").label("change", change).build()


async def aftermath(pods: int, nodes: int) -> None:
    def state() -> str:
        gc.collect()  # what nothing holds any more is not counted
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        began = time.process_time()
        for n in range(20):
            world.update(_labelled(n, str(began)))
        changed = time.process_time()
        for n in range(20):
            world.add(make_pod(f"later-{began}-{n}").label("app", "a1").on("n1").build())
        node_ms, pod_ms = (changed - began) * 50, (time.process_time() - changed) * 50
        return f"{resident >> 20:>6} MiB{node_ms:>8.2f} ms per node{pod_ms:>8.2f} ms per pod"

    with Cluster() as world:
        for n in range(nodes):
            world.add(_labelled(n))
        state()  # first calls
        print(f"{nodes} nodes; before  {state()}")
        for number in range(pods):
            spec = _spread("DoNotSchedule", 2000, f"p{number}.example.com")
            written = len(world.client.patches)
            world.add(hostile_pod(f"hostile-{number}", spec))
            while len(world.client.patches) == written:  # noqa: ASYNC110
                await asyncio.sleep(0)
            print(f"after {number + 1} hostile pods  {state()}")


async def beside(kinds: list[str], size: int, nodes: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds of each scheduler's process by kind."""
    assets = find_assets()
    with tempfile.TemporaryDirectory() as folder:
        async with control_plane(assets, Path(folder)) as plane:
            await _fill(plane, nodes)
            common = [f"--kubeconfig={plane.scheduler_kubeconfig}", "--leader-elect=false"]
            commands = {
                "kube-scheduler": [assets.kube_scheduler, *common],
                "kubesched": [sys.executable, "-m", "kubesched", "run", *common],
            }
            return {
                name: await _measure(plane, name, command, kinds, size)
                for name, command in commands.items()
            }


async def _fill(plane: ControlPlane, nodes: int) -> None:
    room = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    for n in range(nodes):
        labels = {"topology.kubernetes.io/zone": f"z{n % ZONES}", "kubernetes.io/hostname": f"n{n}"}
        node = {
            "metadata": {"name": f"n{n}", "labels": labels},
            "status": {"allocatable": room, "capacity": room},
        }
        await plane.client.post_raw("/api/v1/nodes", _json("v1", "Node", node))
    for n in range(nodes * PODS_PER_NODE):
        spec = {"nodeName": f"n{n % nodes}", "containers": [{"name": "c", "image": "x"}]}
        pod = {"metadata": {"name": f"p{n}", "labels": {"app": f"a{n % 7}"}}, "spec": spec}
        await plane.client.post_raw(PODS, _json("v1", "Pod", pod))


def _json(version: str, kind: str, obj: dict[str, object]) -> bytes:
    return msgspec.json.encode({"apiVersion": version, "kind": kind, **obj})


async def _measure(
    plane: ControlPlane, name: str, command: list[str | Path], kinds: list[str], size: int
) -> dict[str, float]:
    [port] = free_ports(1)
    serving = ["--bind-address=127.0.0.1", f"--secure-port={port}"]
    files = [
        f"--tls-{flag}={plane.folder / f'server.{end}'}"
        for flag, end in (("cert-file", "crt"), ("private-key-file", "key"))
    ]
    process = await Process.start(name, [*command, *serving, *files], plane.folder / f"{name}.log")
    try:
        for warm_up in range(3):
            await _attempt_beside(plane, process, f"warm-up-{warm_up}-{name}", {})
        return {
            kind: 1000 * await _attempt_beside(plane, process, f"{kind}-{name}", KINDS[kind](size))
            for kind in kinds
        }
    finally:
        await process.stop()


async def _attempt_beside(plane: ControlPlane, process: Process, name: str, spec: Spec) -> float:
    """CPU seconds from a pod's creation until it has been tried and the process is idle again."""
    before = await _idle_cpu_s(process)
    wanted = {"containers": [{"name": "c", "image": "x"}], **spec}
    await plane.client.post_raw(
        PODS, _json("v1", "Pod", {"metadata": {"name": name}, "spec": wanted})
    )
    deadline = time.monotonic() + PATIENCE_S
    while True:
        process.check()
        pod = decode(await plane.client.get_raw(f"{PODS}/{name}"), Pod)
        if pod.spec.node_name or pod.status.conditions:
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{process.name} has not tried pod {name} in {PATIENCE_S} s")
        await asyncio.sleep(0.05)
    # Gone before it is tried again.
    took = await _idle_cpu_s(process) - before
    at_once = DeleteOptions(grace_period_seconds=0)  # there is no kubelet to wait for
    await plane.client.delete(Pod, name, "default", at_once)
    return took


async def _idle_cpu_s(process: Process) -> float:
    """CPU seconds of the process so far, once it takes less than a tenth of a second per second."""
    used = _cpu_s(process.pid)
    for _ in range(IDLE_CHECKS):
        await asyncio.sleep(0.3)
        before, used = used, _cpu_s(process.pid)
        if used - before < 0.03:
            break
    return used


def _cpu_s(pid: int) -> float:
    """By thread, which the kernel counts in nanoseconds; the sum of the process comes in ticks of
    10 ms.
    """
    used_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            used_ns += int((thread / "schedstat").read_text().split()[0])
    return used_ns / 1e9


def _compare(kinds: list[str], size: int, nodes: int, most: float) -> int:
    taken = asyncio.run(beside(kinds, size, nodes))
    print(f"{nodes} nodes, {nodes * PODS_PER_NODE} pods; CPU milliseconds per pod of size {size}")
    print(f"{'kind':<15}" + "".join(f"{name:>16}" for name in taken) + "     times")
    worst = 0.0
    for kind in kinds:
        theirs, ours = taken["kube-scheduler"][kind], taken["kubesched"][kind]
        times = ours / max(theirs, LEAST_MS)
        worst = max(worst, times)
        print(f"{kind:<15}{theirs:>16.1f}{ours:>16.1f}{times:>10.1f}")
    return 1 if worst > most else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--sizes", default="250,500,1000")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--budget", type=float, default=math.inf, help="milliseconds per attempt")
    parser.add_argument("--aftermath", type=int, default=0, metavar="N")
    parser.add_argument("--beside", action="store_true", help="beside kube-scheduler")
    parser.add_argument("--most", type=float, default=math.inf, help="times kube-scheduler's")
    args = parser.parse_args()
    if args.aftermath:
        asyncio.run(aftermath(args.aftermath, args.nodes))
        return 0
    sizes = [int(size) for size in args.sizes.split(",")]
    if args.beside:
        return _compare(args.kinds.split(","), sizes[-1], args.nodes, args.most)
    print(f"{args.nodes} nodes, {args.nodes * PODS_PER_NODE} pods; CPU milliseconds of one attempt")
    print(f"{'kind':<15}" + "".join(f"{size:>10}" for size in sizes) + "    growth")
    worst = 0.0
    for kind in args.kinds.split(","):
        asyncio.run(attempt_s(kind, 1, 10))  # imports and first calls are not the pod's fault
        took = [asyncio.run(attempt_s(kind, size, args.nodes)) * 1000 for size in sizes]
        worst = max(worst, *took)
        growth = math.log(took[-1] / took[-2]) / math.log(sizes[-1] / sizes[-2])
        print(f"{kind:<15}" + "".join(f"{ms:>10.1f}" for ms in took) + f"{growth:>10.1f}")
    return 1 if worst > args.budget else 0


if __name__ == "__main__":
    sys.exit(main())
