"""Who is urgent: the scheduler's own requests are counted while they are under way, whatever becomes of them."""

import asyncio

import pytest

from kubesched.app.connecting import UrgentTransport
from kubesched.client.transport import Request
from kubesched.errors import ConnectFailed


class Held:
    """A transport whose answers come when a test says so."""

    def __init__(self):
        self.answers = []
        self.is_closed = False

    async def request(self, request):
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def aclose(self):
        self.is_closed = True


async def begun(transport, count):
    tasks = [
        asyncio.ensure_future(transport.request(Request(method="POST", target="/x")))
        for _ in range(count)
    ]
    await asyncio.sleep(0)
    return tasks


async def test_requests_are_counted_until_they_are_answered():
    inner = Held()
    transport = UrgentTransport(inner)
    answered, failed, called_off = await begun(transport, 3)
    assert transport.under_way == 3
    inner.answers[0].set_result("answer")
    assert await answered == "answer"
    assert transport.under_way == 2
    inner.answers[1].set_exception(ConnectFailed("refused"))
    with pytest.raises(ConnectFailed):
        await failed
    called_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await called_off
    assert transport.under_way == 0
    await transport.aclose()
    assert inner.is_closed
