"""The server on its socket: who is let in, what is too much, and watchers that stop reading."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import ssl

import pytest

from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.transport import HeaderBlock, Request
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.server import web

JSON = HeaderBlock({"Content-Type": "application/json", "Accept": "application/json"})
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def transport(bare_cluster, tmp_path):
    made = HttpTransport(load_config(str(tmp_path / "kubeconfig")).connection)
    yield made
    await made.aclose()


def trusting(cluster: EmbeddedCluster) -> ssl.SSLContext:
    assert cluster._certificates is not None
    return ssl.create_default_context(cadata=cluster._certificates.ca_certificate.decode())


async def speak(
    cluster: EmbeddedCluster, request: bytes, context: ssl.SSLContext | None = None
) -> tuple[int, dict]:
    """One raw request and its answer."""
    host, port = cluster.url.removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context or trusting(cluster)
    )
    try:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        status = int(head.split()[1])
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        return status, json.loads(await asyncio.wait_for(reader.readexactly(length), 10))
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_the_server_listens_on_loopback_only(bare_cluster):
    assert bare_cluster.url.startswith("https://127.0.0.1:")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((), id="anonymous"),
        pytest.param(("Authorization: Bearer guess",), id="a guessed token"),
        pytest.param(("Authorization: Basic YWRtaW46YWRtaW4=",), id="a password"),
    ],
)
async def test_strangers_are_turned_away(bare_cluster, headers):
    status, answer = await speak(bare_cluster, get("/api/v1/pods", *headers))
    assert (status, answer["reason"]) == (401, "Unauthorized")


async def test_the_token_opens_the_door(bare_cluster):
    status, answer = await speak(
        bare_cluster, get("/api/v1/pods", f"Authorization: Bearer {bare_cluster.token}")
    )
    assert (status, answer["kind"]) == (200, "PodList")


async def test_a_certificate_of_our_own_authority_opens_the_door(bare_cluster, tmp_path):
    certificates = bare_cluster._certificates
    (tmp_path / "admin.pem").write_bytes(certificates.client_certificate + certificates.client_key)
    context = trusting(bare_cluster)
    context.load_cert_chain(tmp_path / "admin.pem")
    status, answer = await speak(bare_cluster, get("/api/v1/pods"), context)
    assert (status, answer["kind"]) == (200, "PodList")


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(bare_cluster):
    request = (
        f"POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bare_cluster.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {100 << 20}\r\n\r\n"
    ).encode()
    status, answer = await speak(bare_cluster, request)
    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


async def create(transport: HttpTransport, name: str, size: int = 0) -> None:
    body = json.dumps({"metadata": {"name": name}, "data": {"x": "x" * size}}).encode()
    response = await transport.request(Request(method="POST", target=MAPS, headers=JSON, body=body))
    assert response.status == 201


async def test_one_write_reaches_two_hundred_watchers(bare_cluster, tmp_path):
    from kubesched.client.pool import PoolSettings

    settings = PoolSettings(max_streams=220)
    transport = HttpTransport(
        load_config(str(tmp_path / "kubeconfig")).connection, settings=settings
    )
    try:
        target = f"{MAPS}?watch=true"
        watches = await asyncio.gather(
            *(
                transport.request(Request(method="GET", target=target, headers=JSON, stream=True))
                for _ in range(200)
            )
        )
        await create(transport, "hello")

        async def first(response) -> dict:
            async for chunk in response.iter_chunks():
                for line in chunk.splitlines():
                    event = json.loads(line)
                    if event["object"]["metadata"]["name"] != "kube-root-ca.crt":
                        return event
            raise AssertionError("the watch ended")

        events = await asyncio.wait_for(asyncio.gather(*(first(watch) for watch in watches)), 60)
        assert {event["object"]["metadata"]["name"] for event in events} == {"hello"}
        for watch in watches:
            watch.close()
    finally:
        await transport.aclose()


async def test_a_watcher_that_stops_reading_is_cut_off_without_hurting_others(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(web, "LIMITS", dataclasses.replace(web.LIMITS, send_s=0.2))
    kubeconfig = tmp_path / "kubeconfig"
    async with EmbeddedCluster(ClusterSettings(kubeconfig=kubeconfig, history_limit=64)) as cluster:
        host, port = cluster.url.removeprefix("https://").split(":")
        transport = HttpTransport(load_config(str(kubeconfig)).connection)
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=trusting(cluster), limit=1024
        )
        subscribers = cluster.api.registry.store.collection("configmaps").subscribers
        try:
            request = get(f"{MAPS}?watch=true", f"Authorization: Bearer {cluster.token}")
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n")
            good = await transport.request(
                Request(method="GET", target=f"{MAPS}?watch=true", headers=JSON, stream=True)
            )
            before = len(subscribers)
            seen = 0
            chunks = good.iter_chunks()
            for index in range(400):
                await create(transport, f"c{index}", size=100_000)
                while seen <= index:
                    seen += (await asyncio.wait_for(anext(chunks), 30)).count(b'"ADDED"')
                if len(subscribers) < before:
                    break
            assert len(subscribers) == before - 1, "the one that does not read is gone"
            assert seen >= 1
            good.close()
        finally:
            writer.transport.abort()
            await transport.aclose()
