"""`kubesched run` as a process, against an embedded cluster or, where there is one, a real control
plane.

Tests that take `cluster` run against both: the embedded API server always, etcd and kube-apiserver
when `$KUBEBUILDER_ASSETS` names a folder with them (marker `real`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import yaml
from aiohttp import web

from kubesched.api.core_v1 import Node, Pod
from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient
from kubesched.config import features
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.handlers.exchange import ApiResponse
from kubesched.playground.server.api_server import ApiServer
from kubesched.testing.control_plane import ASSETS_VARIABLE, control_plane, find_assets

PATIENCE_S = 300.0
POLL_S = 0.05

QUICK_ELECTION = {
    "leaseDuration": "3s",
    "renewDeadline": "2s",
    "retryPeriod": "500ms",
}


async def eventually(find: Callable[[], Awaitable[object]], patience_s=PATIENCE_S):
    """The first true answer."""
    async with asyncio.timeout(patience_s):
        while True:
            if result := await find():
                return result
            await asyncio.sleep(POLL_S)


class Intercepted(ApiServer):
    """An embedded API server whose answers a test can replace or hold back."""

    @classmethod
    def install(cls, server, judge):
        """`judge(request, answer)` gives the answer, by calling `answer()` or otherwise, and maybe
        an event to wait for.
        """
        server.__class__ = cls
        server.judge = judge

    def respond(self, request):
        given = self.judge(request, lambda: super(Intercepted, self).respond(request))
        response, event = given if isinstance(given, tuple) else (given, None)
        return response if event is None or event.is_set() else self._held(response, event)

    async def _held(self, response, event):
        await event.wait()
        return response if isinstance(response, ApiResponse) else await response


@dataclass
class Cluster:
    """A cluster without controllers, and an administrator's client."""

    kubeconfig: Path
    """The scheduler's own."""
    admin: RestClient
    embedded: EmbeddedCluster | None = None
    plane: object = None
    real: bool = False

    async def create(self, path, **obj):
        return json.loads(await self.admin.post_raw(path, json.dumps(obj).encode()))

    async def add_node(self, name, *, cpu="4", labels=None, **spec):
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        await self.create(
            "/api/v1/nodes",
            apiVersion="v1",
            kind="Node",
            metadata={"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            spec=spec,
            status={"allocatable": amounts, "capacity": amounts},
        )

    async def add_pod(self, name, *, cpu="100m", namespace="default", **spec):
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        return await self.create(
            f"/api/v1/namespaces/{namespace}/pods",
            apiVersion="v1",
            kind="Pod",
            metadata={"name": name},
            spec={"containers": [container], **spec},
        )

    async def pod(self, name, namespace="default"):
        return await self.admin.get(Pod, name, namespace)

    async def bound(self, *names, patience_s=PATIENCE_S):
        """Wait until the pods are bound; where to."""

        async def find():
            pods = [await self.pod(name) for name in names]
            nodes = [pod.spec.node_name for pod in pods]
            return nodes if all(nodes) else None

        return await eventually(find, patience_s)

    async def condition(self, name, kind="PodScheduled"):
        """Wait until the pod has a condition of that kind."""

        async def find():
            pod = await self.pod(name)
            return next((c for c in pod.status.conditions or () if c.type == kind), None)

        return await eventually(find)

    async def events(self, name, reason):
        """Wait until there are events of that reason about an object of that name."""

        async def find():
            listed = json.loads(await self.admin.get_raw("/apis/events.k8s.io/v1/events"))["items"]
            return [
                event
                for event in listed
                if event["regarding"]["name"] == name and event["reason"] == reason
            ]

        return await eventually(find)

    async def lease(self, name="kube-scheduler"):
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
        return json.loads(await self.admin.get_raw(path))

    eventually = staticmethod(eventually)

    def intercept(self, judge, server=None):
        """Let `judge(request, answer)` answer in an embedded server's place."""
        Intercepted.install(server or self.embedded.server, judge)

    async def nodes(self):
        return [node.metadata.name for node in (await self.admin.list(Node)).items]


@dataclass
class Scheduler:
    """A running `kubesched run`."""

    process: asyncio.subprocess.Process
    port: int
    lines: list[str] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task | None = None

    async def read(self):
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))
            self._news.set()

    async def says(self, text, *, after=0):
        """Wait for a log line that contains the text, among those after the first so many; returns
        it.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for line in self.lines[after:]:
                        if text in line:
                            return line
                    if self._reading is not None and self._reading.done():
                        raise AssertionError(f"ended without saying {text!r}:\n" + self.log)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"did not say {text!r}:\n" + self.log) from None

    @property
    def log(self):
        return "\n".join(self.lines)

    def send(self, signum):
        self.process.send_signal(signum)

    async def ended(self):
        """Wait for the end; the exit code."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
            if self._reading is not None:
                await self._reading
        return code

    async def terminated(self):
        self.send(signal.SIGTERM)
        return await self.ended()


@pytest.fixture
async def run(tmp_path, cluster):
    """Start schedulers: `await run("--flag", config={...})`; they end with the test."""
    started: list[Scheduler] = []

    async def start(*flags, config=None, kubeconfig=None, port=None, environment=None, wrapper=()):
        """`wrapper` is a command that runs the command after it."""
        port = free_port() if port is None else port
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(kubeconfig or cluster.kubeconfig),
                "qps": 500,
                "burst": 500,
            },
            **(config or {}),
        }
        path = tmp_path / f"scheduler-{len(started)}.yaml"
        path.write_text(yaml.safe_dump(document))
        process = await asyncio.create_subprocess_exec(
            *wrapper,
            sys.executable,
            "-m",
            "kubesched",
            "run",
            f"--config={path}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "-v=3",
            *flags,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            limit=1 << 20,
        )
        scheduler = Scheduler(process, port)
        scheduler._reading = asyncio.ensure_future(scheduler.read())
        started.append(scheduler)
        return scheduler

    yield start
    for scheduler in started:
        if scheduler.process.returncode is None:
            scheduler.process.kill()
        await scheduler.ended()


class Extender:
    """Answers as the test says, and keeps what it was asked."""

    def __init__(self):
        self.url = ""
        self.asked = []
        self.answers = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request):
        verb, body = request.match_info["verb"], await request.json()
        self.asked.append((verb, body))
        await self.gate.wait()
        answer = self.answers[verb](body)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return web.json_response(answer)

    async def until_asked(self, count=1):
        async with asyncio.timeout(300):
            while len(self.asked) < count:  # noqa: ASYNC110  # it is another process that asks
                await asyncio.sleep(0.01)


@pytest.fixture
async def extender():
    made = Extender()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{verb}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


POD_GROUP_GATES = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.asynccontextmanager
async def embedded_cluster(folder, gates=""):
    kubeconfig = folder / "embedded.kubeconfig"
    settings = ClusterSettings(kubeconfig=kubeconfig, gates=features.parse(gates))
    async with (
        EmbeddedCluster(settings) as cluster,
        admin_client(kubeconfig) as admin,
    ):
        yield Cluster(kubeconfig, admin, embedded=cluster)


@contextlib.asynccontextmanager
async def real_cluster(folder, *, audited=False):
    """With `audited`, the API server keeps a record of bindings and of who wrote what into Leases:
    `audit.log`.
    """
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(
            f"needs etcd and kube-apiserver: set ${ASSETS_VARIABLE} to the folder that holds them"
        )
    flags = audit_flags(folder) if audited else ()
    async with control_plane(find_assets(), folder / "plane", api_server_flags=flags) as plane:
        yield Cluster(plane.scheduler_kubeconfig, plane.client, plane=plane, real=True)


def audit_flags(folder):
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Request",
                "verbs": ["create", "update", "patch", "delete"],
                "resources": [
                    {"group": "", "resources": ["pods/binding"]},
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                ],
            },
            {"level": "None"},
        ],
    }
    path = folder / "audit-policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return f"--audit-policy-file={path}", f"--audit-log-path={folder / 'audit.log'}"


@contextlib.asynccontextmanager
async def admin_client(kubeconfig):
    transport = HttpTransport(load_config(str(kubeconfig)).connection)
    try:
        yield RestClient(transport, user_agent="test", random=Random(1))
    finally:
        await transport.aclose()


@pytest.fixture(
    params=[
        pytest.param("embedded", id="embedded"),
        pytest.param("real", id="real", marks=pytest.mark.real),
    ]
)
async def cluster(request, tmp_path):
    made = {
        "embedded": lambda: embedded_cluster(tmp_path),
        "embedded with pod groups": lambda: embedded_cluster(tmp_path, POD_GROUP_GATES),
        "real": lambda: real_cluster(tmp_path),
        "audited": lambda: real_cluster(tmp_path, audited=True),
    }[request.param]()
    async with made as cluster:
        yield cluster
