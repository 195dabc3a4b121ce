"""`kubesched run` as a process: time to the first binding, memory, idle CPU, time to take over.

    python benchmarks/run_process.py [--control-plane embedded|real] [--pods N] [start] [large]
        [takeover]

    start      1,000 nodes, 1,000 waiting pods: from `exec` to the first binding; CPU while nothing
               happens
    large      5,000 nodes, 150,000 running pods (`--pods`), 10 waiting ones: the same, and the
               resident memory afterwards
    takeover   a leader and a standby with kube-scheduler's default lease; the leader is killed:
               until the standby leads

The API server is a process of its own: this project's, or etcd and kube-apiserver from
`$KUBEBUILDER_ASSETS`. The clock of the first binding stops when the scheduler's log says so, so the
log is part of the price. On a machine that does something else besides, look at the CPU seconds:
without it, the clock shows them and what the API server needs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport, PoolSettings
from kubesched.client.rest import RestClient

LEASE_S = 15.0
IDLE_S = 30.0
SETTLE_S = 5.0
CONNECTIONS = 16
PATIENCE_S = 900.0
BOUND = '"Successfully bound pod to node"'
LEADS = '"Successfully acquired lease"'
STANDS_BY = '"Attempting to acquire leader lease..."'
"""Said when the caches are warm."""


@dataclass(slots=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    budget: float
    unit: str

    def __str__(self) -> str:
        verdict = "ok" if self.value < self.budget else "MISSED"
        return (
            f"{self.what:<64}{self.value:>9.2f} {self.unit:<3}{self.budget:>9.2f} "
            f"{self.unit:<3} {verdict}"
        )


def node(index: int) -> dict[str, Any]:
    name = f"node-{index:05d}"
    amounts = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m5.8xlarge",
                "topology.kubernetes.io/region": "eu-1",
                "topology.kubernetes.io/zone": f"eu-1{'abc'[index % 3]}",
            },
        },
        "spec": {"podCIDR": f"10.{index // 256}.{index % 256}.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {"type": kind, "status": status, "reason": "KubeletHasIt", "message": "kubelet"}
                for kind, status in (
                    ("MemoryPressure", "False"),
                    ("DiskPressure", "False"),
                    ("PIDPressure", "False"),
                    ("Ready", "True"),
                )
            ],
            "images": [
                {"names": [f"registry.example/app-{n}:v1"], "sizeBytes": 50_000_000 + n}
                for n in range(10)
            ],
        },
    }


def pod(index: int, node_name: str = "") -> dict[str, Any]:
    """A pod of a Deployment as it is in a cluster: with probes, volumes, environment and a
    history.
    """
    app = f"app-{index % 500}"
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app}-5d4f8c7b9-{index:06d}",
            "namespace": "default",
            "labels": {"app": app, "pod-template-hash": "5d4f8c7b9", "tier": "backend"},
            "annotations": {"example.com/config-hash": f"{index:064x}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-5d4f8c7b9",
                    "uid": f"00000000-0000-0000-0000-{index % 500:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example/{app}:v1",
                    "env": [{"name": f"SETTING_{n}", "value": f"value {n}"} for n in range(12)],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "256Mi"},
                        "limits": {"memory": "512Mi"},
                    },
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
                }
            ],
            "volumes": [{"name": "config", "configMap": {"name": app}}],
            "serviceAccountName": "default",
        },
    }
    if node_name:
        made["spec"]["nodeName"] = node_name
        made["status"] = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "image": f"registry.example/{app}:v1",
                    "imageID": f"registry.example/{app}@sha256:{index:064x}",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        }
    return made


def pods(running: int, waiting: int, nodes: int) -> Iterator[dict[str, Any]]:
    for index in range(running):
        yield pod(index, f"node-{index % nodes:05d}")
    for index in range(running, running + waiting):
        yield pod(index)


# The API server.


@dataclass(slots=True)
class Server:
    """A control plane with a cluster's objects in it."""

    kubeconfig: Path
    scheduler_kubeconfig: Path


@contextlib.asynccontextmanager
async def embedded(folder: Path, nodes: int, running: int, waiting: int) -> AsyncIterator[Server]:
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-P", __file__, "--serve", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        *command,
        *map(str, (nodes, running, waiting)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        if await process.stdout.readline() != b"ready\n":
            raise SystemExit("the API server did not start")
        yield Server(kubeconfig, kubeconfig)
    finally:
        process.stdin.close()
        await process.wait()


async def serve(kubeconfig: Path, nodes: int, running: int, waiting: int) -> None:
    """The child: hold the cluster until the parent closes our input."""
    from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster

    async with EmbeddedCluster(ClusterSettings(kubeconfig=kubeconfig)) as cluster:
        for index in range(nodes):
            cluster.api.create("nodes", node(index))
        for made in pods(running, waiting, nodes):
            cluster.api.create("pods", made, "default")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextlib.asynccontextmanager
async def real(folder: Path, nodes: int, running: int, waiting: int) -> AsyncIterator[Server]:
    from kubesched.testing.control_plane import control_plane, find_assets

    async with control_plane(find_assets(), folder / "plane") as plane:
        async with client_of(plane.admin_kubeconfig) as client:
            await create_all(client, "/api/v1/nodes", map(node, range(nodes)))
            path = "/api/v1/namespaces/default/pods"
            await create_all(client, path, pods(running, waiting, nodes))
        yield Server(plane.admin_kubeconfig, plane.scheduler_kubeconfig)


async def create_all(client: RestClient, path: str, objects: Iterator[dict[str, Any]]) -> None:
    async def work() -> None:
        for obj in objects:
            await client.post_raw(path, json.dumps(obj).encode())

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work())


@contextlib.asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[RestClient]:
    settings = PoolSettings(max_connections=CONNECTIONS)
    transport = HttpTransport(load_config(str(kubeconfig)).connection, settings=settings)
    try:
        yield RestClient(transport, user_agent="benchmark", random=Random(1), deadline_s=60.0)
    finally:
        await transport.aclose()


CONTROL_PLANES = {"embedded": embedded, "real": real}


# The scheduler.


@dataclass(slots=True)
class Scheduler:
    """A running `kubesched run`, and when it said what."""

    process: asyncio.subprocess.Process
    started: float
    said: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    """CPU seconds by the time it said so."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            for text in (BOUND, LEADS, STANDS_BY):
                if text in line.decode() and text not in self.said:
                    self.said[text] = time.monotonic()
                    self.used[text] = self.cpu_s()
                    self.news.set()

    async def says(self, text: str) -> float:
        """When it said so."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.said:
                self.news.clear()
                await self.news.wait()
        return self.said[text]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, name: str) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(
            int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith(name)
        )

    async def idle_percent(self) -> float:
        before, began = self.cpu_s(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        return 100 * (self.cpu_s() - before) / (time.monotonic() - began)


@contextlib.asynccontextmanager
async def scheduler(folder: Path, server: Server) -> AsyncIterator[Scheduler]:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(server.scheduler_kubeconfig),
            "qps": 1000,
            "burst": 1000,
        },
    }
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubesched", "run", f"--config={path}", "--secure-port=0", "-v=2"),
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    made = Scheduler(process, started)
    reading = asyncio.ensure_future(made.read())
    try:
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


# The scenarios.


async def start(folder: Path, plane: str, _pods: int) -> AsyncIterator[Figure]:
    async with (
        CONTROL_PLANES[plane](folder, 1_000, 0, 1_000) as server,
        scheduler(folder, server) as running,
    ):
        first = await running.says(BOUND) - running.started
        yield Figure("first binding, 1,000 nodes and 1,000 waiting pods", first, 1.5, "s")
        yield Figure("  CPU of the scheduler by then", running.used[BOUND], 1.5, "s")
        await asyncio.sleep(SETTLE_S)
        yield Figure("CPU when idle, 1,000 nodes", await running.idle_percent(), 1.0, "%")


async def large(folder: Path, plane: str, pods: int) -> AsyncIterator[Figure]:
    what = f"5,000 nodes and {pods:,} pods"
    async with (
        CONTROL_PLANES[plane](folder, 5_000, pods, 10) as server,
        scheduler(folder, server) as running,
    ):
        first = await running.says(BOUND) - running.started
        yield Figure(f"first binding, {what}", first, 8.0, "s")
        yield Figure("  CPU of the scheduler by then", running.used[BOUND], 8.0, "s")
        await asyncio.sleep(SETTLE_S)
        yield Figure(f"resident memory, {what}", running.megabytes("VmRSS"), 600, "MB")
        yield Figure(f"highest resident memory, {what}", running.megabytes("VmHWM"), 600, "MB")
        yield Figure(f"CPU when idle, {what}", await running.idle_percent(), 1.0, "%")


async def takeover(folder: Path, plane: str, _pods: int) -> AsyncIterator[Figure]:
    async with (
        CONTROL_PLANES[plane](folder, 100, 1_000, 0) as server,
        client_of(server.kubeconfig) as client,
        scheduler(folder, server) as leader,
    ):
        await leader.says(LEADS)
        async with scheduler(folder, server) as standby:
            await standby.says(STANDS_BY)
            leader.process.kill()
            killed = time.monotonic()
            await create_all(client, "/api/v1/namespaces/default/pods", iter([pod(10**6)]))
            leads = await standby.says(LEADS) - killed
            bound = await standby.says(BOUND) - killed
            yield Figure("a standby leads after the leader was killed", leads, LEASE_S + 2, "s")
            yield Figure("a standby has bound a pod after that", bound, LEASE_S + 2, "s")


SCENARIOS = {"start": start, "large": large, "takeover": takeover}


async def measure(names: list[str], plane: str, pods: int) -> int:
    print(f"{'':<64}{'measured':>12}{'wanted below':>14}")
    missed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            async for figure in SCENARIOS[name](Path(folder), plane, pods):
                print(figure, flush=True)
                missed += figure.value >= figure.budget
    return 1 if missed else 0


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        kubeconfig, *counts = sys.argv[2:]
        asyncio.run(serve(Path(kubeconfig), *map(int, counts)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--control-plane", choices=CONTROL_PLANES, default="embedded")
    parser.add_argument("--pods", type=int, default=150_000, help="running pods of large")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    arguments = parser.parse_args()
    unknown = set(arguments.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    names = arguments.scenarios or list(SCENARIOS)
    return asyncio.run(measure(names, arguments.control_plane, arguments.pods))


if __name__ == "__main__":
    sys.exit(main())
