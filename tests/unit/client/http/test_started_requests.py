"""Requests that are started and call back: the answer, what is left to `request`, and giving up.

The same requests awaited are in `test_transport_requests`; connections that break in
`test_transport_faults`.
"""

from __future__ import annotations

import asyncio

from self_checks import check_pool

from kubesched.base.errors import StreamEnded
from kubesched.client.transport import AnonymousCredentials, Request

WARM = Request(method="POST", target="/warm")


def post(target: str = "/", **options) -> Request:
    return Request(method="POST", target=target, body=b"x", **options)


class Outcome:
    """Waits for one call of `done`."""

    def __init__(self) -> None:
        self.future = asyncio.get_running_loop().create_future()

    def __call__(self, outcome) -> None:
        self.future.set_result(outcome)

    async def get(self):
        async with asyncio.timeout(10):
            return await self.future


async def by_target(peer):
    while True:
        request = await peer.read_request()
        if request.target == "/refused":
            await peer.answer(b"no", status="401 Unauthorized")
        elif request.target == "/lost":
            peer.writer.close()
            return
        elif request.target == "/silent":
            await peer.until_closed()
            return
        else:
            await peer.answer(request.target.encode(), status="201 Created", X_Name="value")


async def test_a_started_request_calls_back_with_its_answer(serve, connect):
    transport = connect(await serve(by_target))
    await transport.request(WARM)
    done = Outcome()
    assert transport.start(post("/a"), done) is not None
    assert not done.future.done(), "never from inside start"
    response = await done.get()
    assert (response.status, await response.read(), response.headers["x-name"]) == (
        201,
        b"/a",
        "value",
    )
    check_pool(transport)


async def test_without_an_idle_connection_nothing_is_started(serve, connect):
    transport = connect(await serve(by_target))
    assert transport.start(post(), Outcome()) is None, "there is no connection yet"
    await transport.request(WARM)
    assert transport.start(post("/silent"), Outcome()) is not None
    assert transport.start(post(), Outcome()) is None, "the only one is busy"


async def test_a_401_is_left_to_the_awaited_way(serve, connect):
    transport = connect(await serve(by_target))
    await transport.request(WARM)
    done = Outcome()
    transport.start(post("/refused"), done)
    assert await done.get() is None


async def test_a_connection_lost_after_sending_is_an_error_of_unknown_outcome(serve, connect):
    transport = connect(await serve(by_target))
    await transport.request(WARM)
    done = Outcome()
    transport.start(post("/lost"), done)
    error = await done.get()
    assert isinstance(error, StreamEnded)
    assert error.sent


async def test_giving_up_closes_the_connection_and_makes_no_callback(serve, connect):
    transport = connect(await serve(by_target))
    await transport.request(WARM)
    done = Outcome()
    give_up = transport.start(post("/silent"), done)
    give_up()
    response = await transport.request(post("/next"))
    assert response.status == 201
    assert not done.future.done()
    check_pool(transport)


async def test_a_former_leader_starts_nothing(serve, connect):
    transport = connect(await serve(by_target))
    await transport.request(WARM)
    assert transport.start(post(may_send=lambda: False), Outcome()) is None
    check_pool(transport)


async def test_one_failing_callback_does_not_keep_answers_from_the_others(serve, connect, caplog):
    transport = connect(await serve(by_target))
    await asyncio.gather(transport.request(post("/1")), transport.request(post("/2")))

    failed, done = Outcome(), Outcome()

    def fail(outcome):
        failed(outcome)
        raise ValueError("a bug")

    transport.start(post("/a"), fail)
    transport.start(post("/b"), done)
    assert (await done.get()).status == 201
    await failed.get()
    assert "Handling the answer to a request failed" in caplog.text


class CountingCredentials(AnonymousCredentials):
    asked = 0

    async def headers(self):
        self.asked += 1
        return await super().headers()


async def test_credentials_are_asked_again_once_a_second(serve, connect, monkeypatch):
    credentials = CountingCredentials()
    transport = connect(await serve(by_target), credentials=credentials)
    await transport.request(WARM)
    for _ in range(3):
        done = Outcome()
        assert transport.start(post(), done) is not None
        await done.get()
    assert credentials.asked == 1
    monkeypatch.setattr(transport, "_ask_credentials_at", asyncio.get_running_loop().time())
    assert transport.start(post(), Outcome()) is None, "this one asks, by the awaited way"
    done = Outcome()
    assert transport.start(post(), done) is not None, "the others go on"
    await done.get()
