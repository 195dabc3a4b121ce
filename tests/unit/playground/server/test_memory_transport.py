"""The transport without a socket: the client's own seam, answers and streams included."""

from __future__ import annotations

import asyncio
import json

import pytest

from kubesched.base.errors import DeadlineExceeded, StreamEnded
from kubesched.client.transport import Request, Transport
from kubesched.playground.server.memory_transport import MemoryTransport

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def transport(http):
    made = MemoryTransport(http.server)
    yield made
    await made.aclose()


def post(name: str) -> Request:
    body = json.dumps({"metadata": {"name": name}}).encode()
    return Request(
        method="POST", target=MAPS, headers={"content-type": "application/json"}, body=body
    )


async def test_it_is_a_transport(transport):
    typed: Transport = transport
    response = await typed.request(post("a"))
    assert (response.status, response.headers["content-type"]) == (201, "application/json")
    assert json.loads(await response.read())["metadata"]["name"] == "a"


async def test_paths_are_decoded_and_refusals_are_answers(transport):
    response = await transport.request(Request(method="GET", target=f"{MAPS}/a%2Fb"))
    assert response.status == 404


async def test_a_stream_is_read_as_it_comes(transport):
    watch = await transport.request(Request(method="GET", target=f"{MAPS}?watch=1", stream=True))
    await transport.request(post("a"))
    async for chunk in watch.iter_chunks():
        assert json.loads(chunk)["object"]["metadata"]["name"] == "a"
        break
    watch.close()


async def test_a_closed_stream_leaves_nothing_behind(transport, http):
    watch = await transport.request(Request(method="GET", target=f"{MAPS}?watch=1", stream=True))
    reading = asyncio.ensure_future(watch.read())
    await asyncio.sleep(0)
    watch.close()
    await asyncio.wait((reading,), timeout=5)
    assert reading.done()
    assert not http.server.registry.store.collection("configmaps").subscribers


async def test_a_stream_ends_at_its_deadline(transport):
    watch = await transport.request(
        Request(method="GET", target=f"{MAPS}?watch=1", stream=True, deadline_s=0.01)
    )
    with pytest.raises(DeadlineExceeded):
        async for _ in watch.iter_chunks():
            pass


async def test_a_deadline_ends_the_task_that_reads_and_not_the_one_that_began(transport):
    watch = await transport.request(
        Request(method="GET", target=f"{MAPS}?watch=1", stream=True, deadline_s=0.2)
    )
    await transport.request(post("a"))
    chunks = watch.iter_chunks()
    await anext(chunks)
    reader = asyncio.ensure_future(anext(chunks))
    await asyncio.wait((reader,), timeout=5)
    assert isinstance(reader.exception(), DeadlineExceeded)


async def test_a_closed_transport_takes_no_requests(http):
    transport = MemoryTransport(http.server)
    await transport.aclose()
    with pytest.raises(StreamEnded):
        await transport.request(post("a"))


async def test_an_answer_longer_than_allowed_is_refused(transport):
    response = await transport.request(Request(method="GET", target=MAPS))
    with pytest.raises(StreamEnded, match="longer than 5 bytes"):
        await response.read(5)
