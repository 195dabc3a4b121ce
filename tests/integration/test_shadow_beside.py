"""`kubesched shadow` beside the real kube-scheduler (marker `real`, needs `$KUBEBUILDER_ASSETS`).

How many pods, nodes and pods per second is said by $KUBESCHED_SHADOW_{NODES,PODS,RATE}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

import aiohttp
import pytest
import yaml
from aiohttp import web

from kubesched.base.errors import AlreadyExists, TransportError
from kubesched.testing import make_node, make_pod
from kubesched.testing.control_plane import (
    ASSETS_VARIABLE,
    Process,
    control_plane,
    find_assets,
    free_ports,
)

pytestmark = [pytest.mark.real, pytest.mark.slow]

NODES, PODS, RATE = (
    int(os.environ.get(f"KUBESCHED_SHADOW_{name}", default))
    for name, default in (("NODES", "120"), ("PODS", "300"), ("RATE", "50"))
)


@pytest.fixture
async def plane(tmp_path):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs kube-scheduler: set ${ASSETS_VARIABLE} to the folder that holds it")
    async with control_plane(find_assets(), tmp_path / "plane") as made:
        yield made


class Proxy:
    """Passes requests on to the API server, notes their verbs, and may hold back watches of
    nodes.
    """

    def __init__(self, plane):
        self._plane = plane
        self.methods = set()
        self.release = asyncio.Event()
        self.release.set()
        (self.port,) = free_ports(1)

    @contextlib.asynccontextmanager
    async def serving(self, kubeconfig):
        """Yields a kubeconfig like the given one that leads through the proxy."""
        document = yaml.safe_load(kubeconfig.read_text())
        self._token = document["users"][0]["user"].get("token", "")
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False, limit=0))
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        path = kubeconfig.with_suffix(".proxied")
        path.write_text(yaml.safe_dump(document))
        try:
            yield path
        finally:
            await runner.cleanup()
            await self._session.close()

    async def _pass(self, request):
        self.methods.add(request.method)
        # A kubeconfig's token is not sent over plain HTTP by every client.
        headers = {k: v for k, v in request.headers.items() if k.lower() != "host"}
        headers["Authorization"] = f"Bearer {self._token}"
        is_node_watch = request.path == "/api/v1/nodes" and "watch" in request.query
        async with self._session.request(
            request.method,
            self._plane.url + request.raw_path,
            headers=headers,
            data=await request.read() or None,  # else aiohttp adds a Content-Type
            auto_decompress=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            for name in ("Content-Type", "Content-Encoding"):
                if name in answer.headers:
                    response.headers[name] = answer.headers[name]
            await response.prepare(request)
            with contextlib.suppress(aiohttp.ClientConnectionResetError):  # it has gone
                async for part in answer.content.iter_any():
                    if is_node_watch:
                        await self.release.wait()
                    await response.write(part)
            return response


class Beside:
    """kube-scheduler, `kubesched shadow`, and pods that come."""

    def __init__(self, plane, stack):
        self.plane, self._stack = plane, stack
        self._slots = asyncio.Semaphore(32)

    async def create(self, path, obj):
        body = json.dumps({"apiVersion": "v1", **obj}).encode()
        async with self._slots:
            while True:
                with contextlib.suppress(TransportError):  # a busy machine: perhaps it was made
                    with contextlib.suppress(AlreadyExists):
                        await self.plane.client.post_raw(path, body)
                    return

    async def nodes(self, count):
        for at in range(count):
            node = make_node(f"n{at}").capacity(cpu="16", memory="64Gi", pods=110)
            await self.create("/api/v1/nodes", {"kind": "Node", **node.json})

    async def pods(self, prefix, count, rate):
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for at in range(count):
                await asyncio.sleep(max(0.0, began + at / rate - loop.time()))
                pod = make_pod(f"{prefix}-{at}").cpu(f"{100 * (1 + at % 3)}m").memory("64Mi")
                work = self.create("/api/v1/namespaces/default/pods", {"kind": "Pod", **pod.json})
                group.create_task(work)

    async def bound(self, count):
        """Wait until that many pods have a node; returns them all."""
        async with asyncio.timeout(300):
            while True:
                listed = json.loads(
                    await self.plane.client.get_raw("/api/v1/namespaces/default/pods")
                )["items"]
                if sum(1 for pod in listed if pod["spec"].get("nodeName")) >= count:
                    return listed
                await asyncio.sleep(0.5)

    async def kube_scheduler(self, kubeconfig, percentage=0):
        (port,) = free_ports(1)
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": percentage,
        }
        path = self.plane.folder / "kube-scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        flags = [f"--config={path}", f"--secure-port={port}", f"--cert-dir={self.plane.folder}"]
        process = await Process.start(
            "kube-scheduler",
            [find_assets().kube_scheduler, *flags],
            self.plane.folder / "kube-scheduler.log",
        )
        self._stack.push_async_callback(process.stop)

    async def shadow(self, kubeconfig, *words):
        version = await asyncio.create_subprocess_exec(
            find_assets().kube_scheduler, "--version", stdout=asyncio.subprocess.PIPE
        )
        told = (await version.communicate())[0].decode()
        release = "1.36" if "1.36" in told else "1.37"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubesched", "shadow", "--kubeconfig", str(kubeconfig)),
            *("--reference-version", release, "-o", "json", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._stack.push_async_callback(_gone, process)
        async with asyncio.timeout(300):
            line = (await process.stderr.readline()).decode()
        assert line.startswith("comparing with"), line
        return process


async def _gone(process):
    if process.returncode is None:
        process.kill()
        await process.wait()


@pytest.fixture
async def beside(plane):
    async with contextlib.AsyncExitStack() as stack:
        yield Beside(plane, stack)


@pytest.mark.parametrize("percentage", [0, 100])
async def test_decisions_of_kube_scheduler_are_explained_and_nothing_is_written(
    beside, plane, percentage
):
    proxy = Proxy(plane)
    await beside.nodes(NODES)
    await beside.kube_scheduler(plane.scheduler_kubeconfig, percentage)
    async with proxy.serving(plane.scheduler_kubeconfig) as kubeconfig:
        # Where tests run side by side, a binding may take seconds.
        words = ("--percentage-of-nodes-to-score", str(percentage), "--window", "5s")
        process = await beside.shadow(kubeconfig, *words)
        await beside.pods("p", PODS, RATE)
        await beside.bound(PODS)
        await asyncio.sleep(1)  # the last binding has to arrive there, too
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    report = json.loads(out)
    bindings = report["bindings"]
    sys.stderr.write(f"{bindings}\n{err.decode()}")
    assert sum(bindings.values()) == PODS
    explained = sum(bindings[name] for name in ("same", "tie", "race", "sampling"))
    assert explained >= 0.999 * PODS, report["different"]
    assert percentage == 0 or not bindings["sampling"]
    assert process.returncode == (1 if report["different"] else 0)
    assert proxy.methods == {"GET"}


async def test_a_stale_cache_is_reported_within_a_minute(beside, plane):
    proxy = Proxy(plane)
    await beside.nodes(2)
    async with proxy.serving(plane.scheduler_kubeconfig) as behind:
        await beside.kube_scheduler(behind)
        await beside.pods("before", 4, 100)
        await beside.bound(4)
        process = await beside.shadow(plane.scheduler_kubeconfig, "--window", "500ms")
        proxy.release.clear()
        node = json.loads(await plane.client.get_raw("/api/v1/nodes/n0"))
        node["spec"]["unschedulable"] = True
        await plane.client.put_raw("/api/v1/nodes/n0", json.dumps(node).encode())
        await asyncio.sleep(1)
        await beside.pods("after", 10, 100)
        async with asyncio.timeout(300):
            line = (await process.stderr.readline()).decode()
        proxy.release.set()
        assert line.startswith("different: default/after-")
        assert "its node n0 refuses it by NodeUnschedulable" in line
        assert "stale; ours: n1" in line
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    assert process.returncode == 1
    assert json.loads(out)["different"][0]["refused_since"]
