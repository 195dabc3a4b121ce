"""Which requests are under way: those of a caller are counted while the transport has them, however
they end.
"""

import asyncio
import random

import pytest

from kubesched.base.clock import SystemClock
from kubesched.base.errors import ConnectFailed
from kubesched.client.exchange import BufferedResponse
from kubesched.client.retry import Caller, RetryPolicy
from kubesched.client.transport import Request


class Held:
    """A transport whose answers come when a test says so."""

    def __init__(self):
        self.answers = []
        self.started = []
        self.given_up = []

    async def request(self, request):
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def start(self, request, done):
        number = len(self.started)
        self.started.append(done)
        return lambda: self.given_up.append(number)

    async def aclose(self):
        pass


@pytest.fixture
def transport():
    return Held()


@pytest.fixture
def caller(transport):
    clock = SystemClock()
    return Caller(
        transport, limiter=None, policy=RetryPolicy(), clock=clock, random=random.Random(1)
    )


def post():
    return Request(method="POST", target="/x")


async def test_requests_are_counted_until_they_are_answered(caller, transport):
    tasks = [asyncio.ensure_future(caller.send_once(post())) for _ in range(3)]
    await asyncio.sleep(0)
    answered, failed, called_off = tasks
    assert caller.under_way == 3
    transport.answers[0].set_result(BufferedResponse(200, [], b"answer"))
    assert (await answered).body == b"answer"
    assert caller.under_way == 2
    transport.answers[1].set_exception(ConnectFailed("refused"))
    with pytest.raises(ConnectFailed):
        await failed
    called_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await called_off
    assert caller.under_way == 0


async def test_started_requests_are_counted_until_they_are_answered_or_given_up(caller, transport):
    left = []
    _, _, give_up = [caller.start(post(), left.append) for _ in range(3)]
    assert caller.under_way == 3
    transport.started[0](BufferedResponse(201, [], b""))
    assert (caller.under_way, left) == (2, [None])
    transport.started[1](ConnectFailed("refused"))
    assert caller.under_way == 1
    give_up()
    assert (caller.under_way, transport.given_up) == (0, [2])
    with pytest.raises(ConnectFailed):
        await left[1]()


async def test_what_is_left_of_a_started_request_is_given_to_finish(caller, transport):
    left, finished = [], []

    async def finish(rest):
        finished.append(rest)
        with pytest.raises(ConnectFailed):
            await rest()
        return "made up for"

    caller.start(post(), left.append, finish)
    transport.started[0](ConnectFailed("refused"))
    assert await left[0]() == "made up for"
    assert len(finished) == 1
