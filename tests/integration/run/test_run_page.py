"""`kubesched run --page`: the page on the secure port, behind the same doors as the other debug pages."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from page_columns import unpack
from serving_requests import context, get

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: planned}
spec: {containers: [{name: a, image: b}]}
"""


def delegating(cluster):
    return (
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    )


@pytest.fixture
async def admin(cluster, tmp_path):
    if cluster.real:
        return cluster.plane.folder / "admin.crt", cluster.plane.folder / "admin.key"
    made = cluster.embedded._certificates
    files = tmp_path / "admin.crt", tmp_path / "admin.key"
    files[0].write_bytes(made.client_certificate)
    files[1].write_bytes(made.client_key)
    return files


async def test_the_page_is_served_to_those_who_may_and_follows_the_scheduler(cluster, run, admin):
    await cluster.add_node("n1")
    scheduler = await run(*delegating(cluster), "--page")
    await cluster.add_pod("a")
    await cluster.bound("a")
    assert (await get(scheduler, "/debug/page/"))[0] == 403  # anonymous
    origin = f"https://127.0.0.1:{scheduler.port}"
    connector = aiohttp.TCPConnector(ssl=context(admin), force_close=True)
    async with aiohttp.ClientSession(origin, connector=connector) as client:
        async with client.get("/debug/page/") as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        async with client.get("/debug/page/api/nodes") as response:
            header, columns = unpack(await response.read())
            assert columns["requested pods"].tolist() == [1]
        async with client.get(f"/debug/page/api/events?since={header['id']}") as stream:
            await cluster.add_pod("b")
            await cluster.bound("b")
            async with asyncio.timeout(60):
                async for line in stream.content:
                    if line.startswith(b"data: ") and "nodes" in json.loads(line[6:]):
                        break
        async with client.get("/debug/page/api/explain?pod=default/a") as response:
            header, _ = unpack(await response.read())
            assert header["explanation"]["verdict"] == "Placed"
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"yaml": POD})
        async with client.post("/debug/page/api/whatif", data=body, headers=headers) as response:
            assert response.status == 403  # no Origin
        headers["Origin"] = origin
        async with client.post("/debug/page/api/whatif", data=body, headers=headers) as response:
            answer = await response.json()
            assert [each["node"] for each in answer["plan"]["placed"]] == ["n1"]
        act = json.dumps({"action": "cordon", "node": "n1"})
        async with client.post("/debug/page/api/act", data=act, headers=headers) as response:
            assert response.status == 403


async def test_without_the_flag_there_is_no_page(cluster, run, admin):
    scheduler = await run(*delegating(cluster))
    await scheduler.says('"Successfully acquired lease"')
    assert (await get(scheduler, "/debug/page/", certificate=admin))[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_streams_that_are_not_read_keep_none_from_being_scheduled(cluster, run, admin):
    """200 browsers ask for events and stop reading; the pods after that are placed and probes answered."""
    await cluster.add_node("n1", cpu="64")
    scheduler = await run(*delegating(cluster), "--page")
    await cluster.add_pod("before")
    await cluster.bound("before")
    streams, statuses = [], []
    for _ in range(200):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", scheduler.port, ssl=context(admin), limit=1
        )
        writer.write(b"GET /debug/page/api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        statuses.append((await reader.readexactly(12))[-3:])
        streams.append(writer)
    names = [f"p{number}" for number in range(100)]
    for name in names:
        await cluster.add_pod(name, cpu="10m")
    assert await cluster.bound(*names) == ["n1"] * len(names)
    assert (await get(scheduler, "/livez"))[0] == 200
    assert sorted(set(statuses)) == [b"200", b"503"], statuses
    for writer in streams:
        writer.transport.abort()
    assert scheduler.process.returncode is None
