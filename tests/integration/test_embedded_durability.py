"""A server process killed without warning: every write it acknowledged is there when it comes
back.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from kubesched.base.errors import TransportError
from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.transport import HeaderBlock, Request
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster

SERVER = """
import asyncio, sys
from pathlib import Path
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster

async def main():
    settings = ClusterSettings(data_dir=Path(sys.argv[1]), kubeconfig=Path(sys.argv[2]))
    async with EmbeddedCluster(settings):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
HEADERS = HeaderBlock({"Content-Type": "application/json", "Accept": "application/json"})
MAPS = "/api/v1/namespaces/default/configmaps"
ENOUGH_WRITES = 200


async def start(data_dir: Path, kubeconfig: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(data_dir), str(kubeconfig), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
    return process


async def stop(process: asyncio.subprocess.Process, how: int) -> None:
    os.kill(process.pid, how)
    await process.communicate()


async def test_no_acknowledged_write_is_lost_by_kill_minus_nine(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    process = await start(tmp_path / "data", kubeconfig)
    acknowledged: dict[str, str] = {}
    enough = asyncio.Event()

    async def writer(number: int, transport: HttpTransport) -> None:
        for index in range(10_000):
            name = f"c-{number}-{index}"
            body = json.dumps({"metadata": {"name": name}, "data": {"n": str(index)}}).encode()
            try:
                response = await transport.request(
                    Request(method="POST", target=MAPS, headers=HEADERS, body=body)
                )
                answer = json.loads(await response.read())
            except TransportError:
                return
            assert response.status == 201, answer
            acknowledged[name] = answer["metadata"]["resourceVersion"]
            if len(acknowledged) >= ENOUGH_WRITES:
                enough.set()

    transport = HttpTransport(load_config(str(kubeconfig)).connection)
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(writer(number, transport))
        await asyncio.wait_for(enough.wait(), 60)
        await stop(process, signal.SIGKILL)
    await transport.aclose()

    process = await start(tmp_path / "data", kubeconfig)
    transport = HttpTransport(load_config(str(kubeconfig)).connection)
    try:
        response = await transport.request(Request(method="GET", target=MAPS, headers=HEADERS))
        listed = json.loads(await response.read())
    finally:
        await transport.aclose()
        await stop(process, signal.SIGTERM)
    result = {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]
    }
    lost = {name: version for name, version in acknowledged.items() if result.get(name) != version}
    assert not lost
    assert int(listed["metadata"]["resourceVersion"]) >= max(
        int(version) for version in acknowledged.values()
    )


async def test_a_kubeconfig_outlives_the_server_it_was_made_for(tmp_path):
    first = tmp_path / "first"
    process = await start(tmp_path / "data", first)
    await stop(process, signal.SIGKILL)
    second = tmp_path / "second"
    process = await start(tmp_path / "data", second)
    await stop(process, signal.SIGKILL)
    old, new = first.read_text(), second.read_text()
    assert [line for line in old.splitlines() if "server:" not in line] == [
        line for line in new.splitlines() if "server:" not in line
    ]
    assert first.stat().st_mode & 0o777 == 0o600


RELEASES = sorted((Path(__file__).parent / "data").glob("playground-*.db.gz"))
"""Databases of `kubesched up --data-dir`, one of each release: three nodes, a Deployment of three.
"""


@pytest.mark.parametrize("packed", RELEASES, ids=lambda path: path.name)
async def test_a_cluster_of_an_earlier_release_goes_on(packed, tmp_path, kubectl):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cluster.db").write_bytes(gzip.decompress(packed.read_bytes()))
    settings = ClusterSettings(data_dir=tmp_path / "data", kubeconfig=tmp_path / "kubeconfig")
    async with EmbeddedCluster(settings):
        pods = (await kubectl("get", "pods", "-l", "app=web", "-o", "json")).json["items"]
        assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
        kept = (await kubectl("get", "configmap", "kept", "-o", "json")).json
        assert kept["data"] == {"a": "b"}
        await kubectl("label", "configmap", "kept", "still=written")
        await kubectl("scale", "deployment", "web", "--replicas=4")
