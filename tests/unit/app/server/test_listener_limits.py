"""Slow, silent, greedy and numerous clients: each is cut off or waits, and others are served
meanwhile.
"""

import asyncio
import gc

import httptools
import pytest

from kubesched.app.server.responses import text
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import ACCEPT_PAUSE_S
from kubesched.base.http_server.messages import Refusal, Response

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
    running = await serve(limits=Limits(waiting_s=0.2, sweep_s=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.listener.port)
    assert await ended(reader) == b""
    await close(writer)


async def test_a_client_that_stops_in_the_middle_of_its_handshake_is_cut(serve, context):
    running = await serve(limits=Limits(handshake_s=0.2))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.listener.port)
    writer.write(b"\x16\x03\x01\x02\x00")
    assert await ended(reader) == b""
    await close(writer)


async def test_a_probe_gets_through_while_another_address_floods(serve, context):
    """All places are taken by clients of one address that stop in the middle; another address is
    served at once.
    """
    limits = Limits(max_connections=10, max_waiting=20, handshakes_per_s=1e6, handshake_s=600.0)
    running = await serve(limits=limits)
    port = running.listener.port
    crowd = []
    for _ in range(100):
        _reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.2", 0)
        )
        writer.write(b"\x16\x03\x01\x02\x00")
        crowd.append(writer)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(20):
            assert (await running.get("/healthz", context=context))[0] == 200
    assert running.listener.connection_count <= 10
    for writer in crowd:
        await close(writer)


@pytest.mark.parametrize(
    ("descriptors", "places"),
    [
        pytest.param(1_000_000, (256, 512), id="many descriptors change nothing"),
        pytest.param(1024, (128, 128), id="few descriptors leave room for the API server"),
        pytest.param(64, (8, 8), id="very few"),
        pytest.param(4, (1, 1), id="there is always one place"),
    ],
)
def test_places_are_fewer_where_few_descriptors_may_be_open(descriptors, places):
    limits = Limits().within(descriptors)
    assert (limits.max_connections, limits.max_waiting) == places


async def test_errors_of_accepting_do_not_spin(serve, context, monkeypatch):
    loop = asyncio.get_running_loop()
    accept, failures, pauses = loop.sock_accept, 3, []
    sleep = asyncio.sleep

    async def failing(sock):
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(24, "Too many open files")
        return await accept(sock)

    async def pause(seconds):
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(loop, "sock_accept", failing)
    monkeypatch.setattr("kubesched.base.http_server.listener.asyncio.sleep", pause)
    running = await serve(limits=Limits(sweep_s=600.0))
    assert (await running.get("/healthz", context=context))[0] == 200
    assert failures == 0
    assert pauses.count(ACCEPT_PAUSE_S) == 3


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
    ("head", "refused"),
    [
        pytest.param(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 414, id="a huge path"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431, id="a huge header"
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n", 431, id="many headers"
        ),
        pytest.param(b"\x00\x01\x02\r\n\r\n", 400, id="no HTTP at all"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            id="two lengths",
        ),
    ],
)
async def test_a_malformed_request_is_refused(serve, context, head, refused):
    running = await serve()
    reader, writer = await connect(running, context)
    writer.write(head)
    assert int((await ended(reader)).split()[1]) == refused
    await close(writer)
    status, _, _ = await running.get("/healthz", context=context)
    assert status == 200


async def test_when_all_places_are_taken_the_quietest_makes_room(serve, context):
    running = await serve(limits=Limits(max_connections=5))
    held = [await connect(running, context) for _ in range(5)]
    status, _, _ = await running.get("/healthz", context=context)
    assert status == 200
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


async def test_handshakes_come_at_a_bounded_rate(serve, context):
    running = await serve(limits=Limits(handshakes_per_s=20.0, handshake_burst=2))
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

        return Response(stream=pieces())

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
    running = await serve(limits=Limits(max_connections=20, handshakes_per_s=500.0))
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


async def test_a_client_that_sends_without_end_is_cut(serve, context):
    running = await serve(limits=Limits(max_body_bytes=4096))
    reader, writer = await connect(running, context)
    writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X-Some: header\r\n" * 600)
    assert b" 431 " in await ended(reader)
    await close(writer)
    assert (await running.get("/healthz", context=context))[0] == 200


async def test_a_client_that_is_answered_may_send_on(serve, context):
    running = await serve(limits=Limits(max_body_bytes=1024))
    reader, writer = await connect(running, context)
    for _ in range(20):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 500 + b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            assert b"200 OK" in await reader.readuntil(b"ok")
    await close(writer)


@pytest.mark.slow
async def test_nothing_of_a_bad_request_stays_behind(serve, context):
    """What a stranger sent must be gone at once, not when the collector comes around to it."""
    running = await serve()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            reader, writer = await connect(running, context)
            writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000)
            await ended(reader)
            await close(writer)
        async with asyncio.timeout(PATIENCE_S):
            await running.listener.wait_until_empty()
        kept = [
            each
            for each in gc.get_objects()
            if isinstance(each, (Refusal, httptools.HttpParserError))
        ]
    finally:
        gc.enable()
    assert kept == []
