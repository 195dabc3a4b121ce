"""A real control plane behind a network that delays, cuts, swallows and corrupts what it
carries.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest
from audited_bindings import bindings

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("cluster", ["audited"], indirect=True),
]
ALONE = {"leaderElection": {"leaderElect": False}}
PODS = 60
"""Pods created during each fault."""


class Proxy:
    """Forwards connections, and does to their bytes what `fault` says at the moment."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._random = random.Random(34)
        self._writers: set[asyncio.StreamWriter] = set()
        self._closed = asyncio.Event()
        self.fault = ""
        self.struck = 0

    async def accept(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = {writer, far_writer}
        self._writers |= ends
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward(reader, far_writer))
            group.create_task(self._forward(far_reader, writer))
        self._writers -= ends

    async def _forward(self, reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                data = await self._suffer(data, writer)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _suffer(self, data: bytes, writer) -> bytes:
        drawn = self._random.random()
        if self.fault == "delay":
            self.struck += 1
            await asyncio.sleep(drawn * 0.1)
        elif self.fault == "cut" and drawn < 0.1:
            self.struck += 1
            writer.transport.abort()
        elif self.fault == "swallow" and drawn < 0.02:
            # The connection stays open, and nothing comes any more: only time limits notice.
            self.struck += 1
            await self._closed.wait()
        elif self.fault == "corrupt" and drawn < 0.1:
            self.struck += 1
            at = self._random.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 1 << self._random.randrange(8)]) + data[at + 1 :]
        return data

    def close(self):
        self._closed.set()
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def proxied(cluster):
    """A proxy before the API server, and a kubeconfig of the scheduler that leads through it."""
    real = urlsplit(cluster.plane.url).port
    proxy = Proxy(real)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    kubeconfig = cluster.kubeconfig.with_name("proxied.kubeconfig")
    port = server.sockets[0].getsockname()[1]
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(f":{real}", f":{port}"))
    try:
        yield proxy, kubeconfig
    finally:
        server.close()
        proxy.close()
        await server.wait_closed()


async def test_every_pod_is_bound_once_whatever_the_network_does(cluster, run, tmp_path):
    for number in range(4):
        await cluster.add_node(f"n{number}", cpu="32")
    names: list[str] = []
    async with proxied(cluster) as (proxy, kubeconfig):
        scheduler = await run(config=ALONE, kubeconfig=kubeconfig)
        await scheduler.says('"Handlers synced"')
        for fault in ("delay", "cut", "swallow", "corrupt"):
            proxy.fault, proxy.struck = fault, 0
            made = [f"{fault}{number}" for number in range(PODS)]
            for name in made:
                await cluster.add_pod(name, cpu="10m")
            names += made

            async def has_struck():
                return proxy.struck

            await cluster.eventually(has_struck)
            proxy.fault = ""
            # A watch that was swallowed is replaced after two bookmarks did not come.
            await cluster.bound(*made, patience_s=240)
        assert scheduler.process.returncode is None, scheduler.log
    assert bindings(tmp_path) == dict.fromkeys(names, 1)


async def test_nodes_that_go_while_their_pods_are_bound(cluster, run, tmp_path):
    """Bindings to nodes that are gone succeed in Kubernetes; what counts is what is counted
    after.
    """
    await cluster.add_node("stays", cpu="2")
    scheduler = await run(config=ALONE)
    await scheduler.says('"Handlers synced"')
    names = []
    for turn in range(10):
        await cluster.add_node(f"goes{turn}", cpu="2")
        for number in range(8):
            names.append(f"p{turn}-{number}")
            await cluster.add_pod(names[-1], cpu="100m")
        await cluster.admin._write("DELETE", f"/api/v1/nodes/goes{turn}", b"")
    await cluster.add_node("last", cpu="32")
    nodes = await cluster.bound(*names)
    assert bindings(tmp_path) == dict.fromkeys(names, 1)
    # The room that is left is known to the millicpu.
    left = 2000 - 100 * nodes.count("stays")
    there = {"kubernetes.io/hostname": "stays"}
    await cluster.add_pod("too-large", cpu=f"{left + 1}m", nodeSelector=there)
    assert "Insufficient cpu" in (await cluster.condition("too-large")).message
    if left:
        await cluster.add_pod("exact", cpu=f"{left}m", nodeSelector=there)
        assert await cluster.bound("exact") == ["stays"]
    assert scheduler.process.returncode is None
