"""Slow, silent, greedy and numerous clients: each is cut off or waits, and others are served meanwhile."""

import asyncio

import pytest

from kubesched.server.answers import Answer, text
from kubesched.server.listener import Limits

PATIENCE_S = 20.0


@pytest.fixture
def context(make_client):
    return make_client()


async def connect(running, context):
    return await asyncio.open_connection(
        "127.0.0.1", running.listener.port, ssl=context, server_hostname="localhost"
    )


async def ended(reader):
    """Wait for the server to cut the connection; returns what it said before."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def close(writer):
    writer.transport.abort()


async def test_a_client_that_never_finishes_its_headers_is_cut(serve, context):
    running = await serve(limits=Limits(headers_s=0.2, sweep_s=0.05))
    reader, writer = await connect(running, context)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")

    async def trickle():
        while True:
            writer.write(b"X-A: b\r\n")
            await asyncio.sleep(0.02)

    trickling = asyncio.ensure_future(trickle())
    try:
        assert await ended(reader) == b""
    finally:
        trickling.cancel()
        await close(writer)
    assert running.listener.connection_count == 0


async def test_a_client_that_says_nothing_after_its_handshake_is_cut(serve, context):
    running = await serve(limits=Limits(headers_s=0.2, sweep_s=0.05))
    reader, writer = await connect(running, context)
    assert await ended(reader) == b""
    await close(writer)


async def test_a_client_that_never_shakes_hands_is_cut(serve, context):
    running = await serve(limits=Limits(handshake_s=0.2))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.listener.port)
    assert await ended(reader) == b""
    await close(writer)


async def test_a_kept_connection_may_rest_for_its_time_and_no_longer(serve, context):
    running = await serve(limits=Limits(headers_s=0.1, idle_s=0.6, sweep_s=0.05))
    reader, writer = await connect(running, context)
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(2):
        writer.write(request)
        async with asyncio.timeout(PATIENCE_S):
            assert b"200 OK" in await reader.readuntil(b"ok")
        await asyncio.sleep(
            0.2
        )  # longer than a new client may take, shorter than a known one may rest
    assert await ended(reader) == b""
    await close(writer)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", id="a huge path"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", id="a huge header"
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n", id="many headers"
        ),
        pytest.param(b"\x00\x01\x02\r\n\r\n", id="no HTTP at all"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            id="two lengths",
        ),
    ],
)
async def test_what_is_not_a_decent_request_is_refused(serve, context, head):
    running = await serve()
    reader, writer = await connect(running, context)
    writer.write(head)
    assert b" 400 " in (await ended(reader)).split(b"\r\n")[0]
    await close(writer)
    status, _, _ = await running.get("/healthz", context=context)
    assert status == 200


async def test_when_all_places_are_taken_the_quietest_makes_room(serve, context):
    running = await serve(limits=Limits(max_connections=5))
    held = [await connect(running, context) for _ in range(5)]
    status, _, _ = await running.get("/healthz", context=context)
    assert status == 200
    assert running.listener.evicted_count == 1
    assert await ended(held[0][0]) == b""
    for _, writer in held:
        await close(writer)


async def test_those_being_answered_are_not_thrown_out_for_newcomers(serve, context):
    entered, may_finish = asyncio.Event(), asyncio.Event()

    async def slow(request):
        entered.set()
        await may_finish.wait()
        return text("done")

    running = await serve(
        limits=Limits(max_connections=1), pages={"/slow": slow}, open_paths=("/slow",)
    )
    answer = asyncio.ensure_future(running.get("/slow", context=context))
    await entered.wait()
    with pytest.raises(Exception, match=r"(?i)reset|closed|disconnected|eof|connect"):
        await running.get("/slow", context=context)
    may_finish.set()
    assert (await answer)[1] == b"done"


async def test_new_connections_come_at_a_bounded_rate(serve, context):
    running = await serve(limits=Limits(accepts_per_s=20.0, accept_burst=2))
    loop = asyncio.get_running_loop()
    began = loop.time()
    statuses = await asyncio.gather(*(running.get("/healthz", context=context) for _ in range(8)))
    assert [status for status, _, _ in statuses] == [200] * 8
    assert loop.time() - began >= 5 / 20.0  # the burst aside, each costs a twentieth of a second


async def test_a_client_that_does_not_read_is_cut(serve, context):
    entered = asyncio.Event()

    async def endless(request):
        entered.set()

        async def pieces():
            while True:
                yield b"x" * 65536

        return Answer(stream=pieces())

    running = await serve(
        limits=Limits(send_s=0.3), pages={"/endless": endless}, open_paths=("/endless",)
    )
    _reader, writer = await connect(running, context)
    writer.transport.pause_reading()
    writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await entered.wait()
        await running.listener.wait_until_empty()
    await close(writer)
    assert running.listener.connection_count == 0


async def test_a_flood_takes_no_more_places_than_there_are(serve, context):
    running = await serve(limits=Limits(max_connections=20, accepts_per_s=500.0))
    most = 0

    async def client():
        nonlocal most
        reader, writer = await asyncio.open_connection("127.0.0.1", running.listener.port)
        writer.write(b"\x16\x03\x01" + b"\x00" * 50)
        most = max(most, running.listener.connection_count)
        await ended(reader)
        await close(writer)

    await asyncio.gather(*(client() for _ in range(100)))
    assert most <= 20
    assert (await running.get("/healthz", context=context))[0] == 200


async def test_closing_waits_for_answers_under_way(serve, context):
    entered, may_finish = asyncio.Event(), asyncio.Event()

    async def slow(request):
        entered.set()
        await may_finish.wait()
        return text("done")

    running = await serve(pages={"/slow": slow}, open_paths=("/slow",))
    answer = asyncio.ensure_future(running.get("/slow", context=context))
    await entered.wait()
    closing = asyncio.ensure_future(running.listener.close(PATIENCE_S))
    await asyncio.sleep(0)
    may_finish.set()
    assert (await answer)[1] == b"done"
    await closing
    assert running.listener.connection_count == 0


async def test_changed_authorities_make_clients_connect_anew(serve, context):
    running = await serve()
    reader, writer = await connect(running, context)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b"ok")
    running.listener.drop_idle()
    assert await ended(reader) == b""
    await close(writer)
