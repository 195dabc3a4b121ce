"""Memory of a pod, and CPU to take it in: decoded, stored and counted on its node.

    python benchmarks/pod_memory.py [--nodes 5000] [--pods 150000] [--apps 500] [--no-sharing]
        [--unique]

Pods as in `run_process.py`: of Deployments, with probes, environment, annotations and a status.
With `--unique` each has a token volume and transition times of its own, as in a cluster. Lists come
in pages of 500. CPU is that of decoding and of the handlers, not of the network.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Iterator
from typing import Any

from run_process import node, pod

from kubesched.api import codec
from kubesched.api.core_v1 import Node, Pod
from kubesched.client.informers.sharing import Sharing
from kubesched.client.informers.store import Store
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.lab.benchmarking.core_cluster import CoreCluster

PAGE = 500


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def made(number: int, nodes: int, apps: int, unique: bool) -> dict[str, Any]:
    manifest = pod(number % apps + 500 * (number // apps), f"node-{number % nodes:05d}")
    meta = manifest["metadata"]
    meta |= {"uid": f"{number:08x}-0000-0000-0000-000000000000", "resourceVersion": str(number)}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if unique:
        manifest["spec"]["volumes"].append({"name": f"kube-api-access-{number}", "projected": {}})
        for condition in manifest["status"]["conditions"]:
            condition["lastTransitionTime"] = f"2026-01-01T{number % 24:02d}:{number % 60:02d}:00Z"
    return manifest


def pages(args: argparse.Namespace) -> Iterator[bytes]:
    for start in range(0, args.pods, PAGE):
        numbers = range(start, min(start + PAGE, args.pods))
        items = [made(number, args.nodes, args.apps, args.unique) for number in numbers]
        yield json.dumps({"kind": "PodList", "metadata": {}, "items": items}).encode()


async def benchmark(args: argparse.Namespace) -> None:
    cluster = CoreCluster(default_config(), DEFAULT_GATES)
    for number in range(args.nodes):
        manifest = node(number)
        manifest["metadata"] |= {"uid": str(number), "resourceVersion": str(number)}
        cluster.add(codec.convert(manifest, Node))
    store: Store[Pod] = Store()
    shared = None if args.no_sharing else Sharing()
    gc.collect()
    before, spent = resident_bytes(), 0.0
    for page in pages(args):
        began = time.process_time()
        for listed in codec.decode_list(page, Pod).items:
            if shared is not None:
                shared.share(listed)
            store.put(f"{listed.metadata.namespace}/{listed.metadata.name}", listed)
            cluster.assembly.handlers.pod_added(listed)
        spent += time.process_time() - began
    gc.collect()
    used = resident_bytes() - before
    print(
        f"{args.nodes} nodes, {args.pods} pods: {used / args.pods / 1000:.2f} kB and "
        f"{spent / args.pods * 1e6:.0f} µs per pod; {resident_bytes() / 1e6:.0f} MB in all"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--apps", type=int, default=500)
    parser.add_argument("--no-sharing", action="store_true")
    parser.add_argument("--unique", action="store_true")
    asyncio.run(benchmark(parser.parse_args()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
