"""Speed of the embedded API server, over TLS on loopback, and memory of a large cluster.

    python benchmarks/embedded.py [creates] [bindings] [fanout] [memory]      (all of them by
                                                                              default)

The server runs in a process of its own; the load comes from this one, through the project's own
transport.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport, PoolSettings
from kubesched.client.transport import HeaderBlock, Request

CONNECTIONS = 16
PODS = 10_000
WATCHERS = 200
FANOUT_WRITES = 50
JSON_HEADERS = HeaderBlock({"Content-Type": "application/json", "Accept": "application/json"})


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "pod-template-hash": "5d4f8c7b9"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}},
                    "ports": [{"containerPort": 80}],
                }
            ]
        },
    }


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{len(name) % 3}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load:
    """Sends many requests, `CONNECTIONS` at a time."""

    def __init__(self, transport: HttpTransport, server_pid: int) -> None:
        self.transport = transport
        self.server_pid = server_pid

    async def post(self, path: str, body: dict[str, Any]) -> None:
        request = Request(
            method="POST", target=path, headers=JSON_HEADERS, body=json.dumps(body).encode()
        )
        response = await self.transport.request(request)
        if response.status != 201:
            raise SystemExit(f"POST {path}: {response.status} {await response.read()!r}")

    async def timed(self, jobs: list[tuple[str, dict[str, Any]]]) -> str:
        """Requests per second over all jobs, and what one cost the server."""
        requests = [
            Request(
                method="POST", target=path, headers=JSON_HEADERS, body=json.dumps(body).encode()
            )
            for path, body in jobs
        ]
        pending = iter(requests)

        async def worker() -> None:
            for request in pending:
                response = await self.transport.request(request)
                if response.status != 201:
                    raise SystemExit(
                        f"{request.target}: {response.status} {await response.read()!r}"
                    )

        start, start_cpu = time.perf_counter(), cpu_s(self.server_pid)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(worker())
        took, used = time.perf_counter() - start, cpu_s(self.server_pid) - start_cpu
        return f"{len(jobs) / took:8.0f}/s, {used / len(jobs) * 1e6:.0f} µs of server CPU each"


async def creates(load: Load) -> None:
    jobs = [("/api/v1/namespaces/default/pods", pod(f"create-{index}")) for index in range(PODS)]
    print(f"creates:  {await load.timed(jobs)}", flush=True)


async def bindings(load: Load) -> None:
    await load.post("/api/v1/nodes", node("bench-node"))
    await load.timed(
        [("/api/v1/namespaces/default/pods", pod(f"bind-{index}")) for index in range(PODS)]
    )
    jobs = []
    for index in range(PODS):
        name = f"bind-{index}"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": "default"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "bench-node"},
        }
        jobs.append((f"/api/v1/namespaces/default/pods/{name}/binding", body))
    print(f"bindings: {await load.timed(jobs)}", flush=True)


async def fanout(load: Load) -> None:
    counts = [0] * WATCHERS
    ready = asyncio.Barrier(WATCHERS + 1)
    finished = asyncio.Barrier(WATCHERS + 1)

    async def watcher(index: int) -> None:
        target = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0"
        request = Request(
            method="GET", target=target, headers=JSON_HEADERS, stream=True, deadline_s=300
        )
        response = await load.transport.request(request)
        await ready.wait()
        async for chunk in response.iter_chunks():
            counts[index] += chunk.count(b'"fanout-')
            if counts[index] >= FANOUT_WRITES:
                break
        response.close()
        await finished.wait()

    async with asyncio.TaskGroup() as group:
        for index in range(WATCHERS):
            group.create_task(watcher(index))
        await ready.wait()
        start = time.perf_counter()
        for index in range(FANOUT_WRITES):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"fanout-{index}"},
            }
            await load.post("/api/v1/namespaces/default/configmaps", body)
        await finished.wait()
    took = time.perf_counter() - start
    delivered = WATCHERS * FANOUT_WRITES
    print(
        f"fan-out:  {delivered / took:8.0f} events/s to {WATCHERS} watchers, "
        f"{sum(counts)}/{delivered} delivered",
        flush=True,
    )


def memory() -> None:
    """5,000 nodes and 50,000 pods, created and bound in this process."""
    from kubesched.base.clock import SystemClock
    from kubesched.playground.client.local import LocalApi

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    api = LocalApi.in_memory(clock=SystemClock(), rng=random.Random(1))
    for index in range(5_000):
        api.create("nodes", node(f"node-{index}"))
    start = time.perf_counter()
    for index in range(50_000):
        api.create("pods", pod(f"pod-{index}"), "default")
        api.bind("default", f"pod-{index}", f"node-{index % 5_000}")
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"memory:   {peak / 1024:8.0f} MB with 5,000 nodes and 50,000 bound pods "
        f"({before / 1024:.0f} MB before)"
    )
    print(f"in process: {50_000 / took:6.0f} create+bind/s", flush=True)


async def serve(kubeconfig: str) -> None:
    from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster

    async with EmbeddedCluster(ClusterSettings(kubeconfig=Path(kubeconfig))):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def drive(
    kubeconfig: str, server_pid: int, scenarios: list[Callable[[Load], Coroutine[Any, Any, None]]]
) -> None:
    config = load_config(kubeconfig)
    settings = PoolSettings(max_connections=CONNECTIONS, max_streams=WATCHERS + 8)
    transport = HttpTransport(config.connection, settings=settings)
    try:
        for scenario in scenarios:
            await scenario(Load(transport, server_pid))
    finally:
        await transport.aclose()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        run(serve(sys.argv[2]))
        return
    wanted = sys.argv[1:] or ["creates", "bindings", "fanout", "memory"]
    over_http = [
        each
        for name, each in (("creates", creates), ("bindings", bindings), ("fanout", fanout))
        if name in wanted
    ]
    if over_http:
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = os.path.join(folder, "kubeconfig")
            command = [sys.executable, "-P", __file__, "serve", kubeconfig]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert server.stdout is not None
            assert server.stdin is not None
            server.stdout.readline()
            try:
                run(drive(kubeconfig, server.pid, over_http))
            finally:
                server.stdin.close()
                server.wait()
    if "memory" in wanted:
        memory()


if __name__ == "__main__":
    main()
