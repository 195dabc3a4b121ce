"""`kubesched page` as a process, over a dump and over a live cluster that something else
schedules.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys

import aiohttp
import pytest
from page_columns import unpack

from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster

PATIENCE_S = 300.0
NODE = {
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}
POD = {
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]},
}


@pytest.fixture
async def page(tmp_path):
    """Starts the command; gives a client that has opened the printed link."""
    started, clients = [], []

    async def start(*arguments):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "kubesched", "page", *arguments),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        )
        started.append(process)
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
        url, token = re.fullmatch(
            r"page at (http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", line
        ).groups()
        client = aiohttp.ClientSession(url, cookie_jar=aiohttp.CookieJar(unsafe=True))
        clients.append(client)
        async with client.get(f"/?token={token}") as response:
            assert response.status == 200
        return client, process

    yield start
    for client in clients:
        await client.close()
    for process in started:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0


async def columns(client):
    async with client.get("/api/nodes") as response:
        assert response.status == 200
        return unpack(await response.read())


async def test_a_dump_is_served(page, tmp_path):
    dump = tmp_path / "dump.json"
    objects = [
        {"apiVersion": "v1", "kind": "Node", **NODE},
        {"apiVersion": "v1", "kind": "Pod", **POD},
    ]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    client, process = await page("--from", str(dump))
    _, found = await columns(client)
    assert found["allocatable cpu"].tolist() == [4000]
    async with asyncio.timeout(PATIENCE_S):
        lines = [await process.stdout.readline() for _ in range(2)]
    assert any(b"for another browser" in line for line in lines)


async def test_a_live_cluster_is_watched_and_never_scheduled(page, tmp_path):
    settings = ClusterSettings(kubeconfig=tmp_path / "kubeconfig")
    async with EmbeddedCluster(settings) as cluster:
        cluster.api.create("nodes", NODE)
        cluster.api.create("pods", POD, "default")
        client, _process = await page("--kubeconfig", str(settings.kubeconfig))
        header, found = await columns(client)
        assert found["requested cpu"].tolist() == [0]
        async with client.get("/api/queue") as response:
            assert [row["pod"] for row in (await response.json())["pods"]] == ["default/a"]
        async with client.get("/api/explain?pod=default/a") as response:
            header_, _ = unpack(await response.read())
            assert header_["explanation"]["verdict"] == "Fits"
        async with client.get(f"/api/events?since={header['id']}") as stream:
            cluster.api.bind("default", "a", "n1")
            async with asyncio.timeout(PATIENCE_S):
                async for line in stream.content:
                    if line.startswith(b"data: ") and "nodes" in json.loads(line[6:]):
                        break
        _, found = await columns(client)
        assert found["requested cpu"].tolist() == [1000]
        assert cluster.api.get("pods", "default", "a")["spec"]["nodeName"] == "n1"
