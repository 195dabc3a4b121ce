"""The transport records `rest_client_*` for every request, awaited or started, answered or not."""

from __future__ import annotations

import asyncio

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import StreamEnded
from kubesched.base.metrics import MetricsRegistry
from kubesched.client.metrics import ClientMetrics, HostMetrics
from kubesched.client.transport import Request


class Requests:
    """Sends requests over a transport with metrics; a started one is awaited, too."""

    def __init__(self, transport, registry):
        self.transport, self.registry = transport, registry

    async def awaited(self, request):
        try:
            await self.transport.request(request)
        except StreamEnded:
            return

    async def started(self, request):
        done = asyncio.get_running_loop().create_future()
        assert self.transport.start(request, done.set_result) is not None
        async with asyncio.timeout(10):
            await done

    def counted(self):
        """The samples that are not zero, without the comments."""
        lines = (line for line in self.registry.text().splitlines() if "host" in line)
        return sorted(line for line in lines if line.startswith("rest") and line[-2:] != " 0")


async def by_target(peer):
    while True:
        request = await peer.read_request()
        if request.target == "/lost":
            peer.writer.close()
            return
        status = "401 Unauthorized" if request.target == "/refused" else "201 Created"
        await peer.answer(b"y" * 300, status=status)


@pytest.fixture
async def requests(serve, connect):
    async def make():
        registry = MetricsRegistry()
        metrics = HostMetrics("host:443", ClientMetrics(registry, ManualClock()))
        transport = connect(await serve(by_target), metrics=metrics)
        await transport.request(Request(method="POST", target="/warm"))
        return Requests(transport, registry)

    return make


@pytest.mark.parametrize("target", ["/", "/lost"])
async def test_started_requests_are_counted_like_awaited_ones(requests, target):
    pages = []
    for send in ("awaited", "started"):
        client = await requests()
        before = client.counted()
        await getattr(client, send)(Request(method="POST", target=target, body=b"0123456789"))
        pages.append(client.counted())
        assert pages[-1] != before
    assert pages[0] == pages[1]
    code = "<error>" if target == "/lost" else "201"
    assert any(f'code="{code}"' in line for line in pages[0])


async def test_sizes_of_bodies_are_counted_but_not_of_streams(requests):
    client = await requests()
    await client.awaited(Request(method="PUT", target="/", body=b"0123456789"))
    await client.awaited(Request(method="GET", target="/", stream=True))
    page = client.registry.text()
    assert 'rest_client_request_size_bytes_sum{host="host:443",verb="PUT"} 10' in page
    assert 'rest_client_response_size_bytes_sum{host="host:443",verb="PUT"} 300' in page
    assert 'rest_client_response_size_bytes_count{host="host:443",verb="GET"} 0' in page


async def test_a_started_request_that_has_to_be_repeated_is_counted_once(requests):
    client = await requests()
    before = client.counted()
    await client.started(Request(method="POST", target="/refused"))  # the caller awaits it again
    assert client.counted() == before
