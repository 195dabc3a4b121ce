"""Servers that misbehave: every fault becomes the right `TransportError`, in time, and the pool
survives it.

The claim behind `sent`: it is False only when the server cannot have acted on the request.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from self_checks import check_pool

from kubesched.base.errors import DeadlineExceeded, StreamEnded, TransportError
from kubesched.client.connection import ConnectionLimits, HttpConnection
from kubesched.client.exchange import (
    STREAM_HIGH_WATER_BYTES,
    BufferedResponse,
    Exchange,
    StreamingResponse,
)
from kubesched.client.pool import PoolSettings
from kubesched.client.transport import Request


def get(**options: object) -> Request:
    return Request(method="GET", target="/", **{"deadline_s": 5.0, "idempotent": True, **options})


def replying(data: bytes):
    """A server that reads one request, writes these bytes and closes."""

    async def script(peer):
        await peer.read_request()
        await peer.write(data)

    return script


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param(b"", "before answering", id="nothing at all"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-", "before answering", id="half a head"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "in the middle of its answer",
            id="less body than announced",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
            "in the middle of its answer",
            id="half a chunk",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "in the middle of its answer",
            id="no last chunk",
        ),
    ],
)
async def test_connection_closed_too_early_is_stream_ended(serve, connect, answer, complaint):
    transport = connect(await serve(replying(answer)))
    with pytest.raises(StreamEnded, match=complaint) as caught:
        await transport.request(get())
    assert caught.value.sent


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", id="a status that is no number"),
        pytest.param(b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", id="a status below 100"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            id="two lengths",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            id="length and chunks together",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n",
            id="a chunk size that is no number",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n",
            id="a chunk larger than memory",
        ),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            id="an unsolicited upgrade",
        ),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", id="bare line feeds"),
        pytest.param(b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n", id="a header without colon"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 300_000 + b"\r\n\r\n",
            id="one huge header",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"X-Many: y\r\n" * 2000 + b"\r\n", id="too many headers"
        ),
        pytest.param(b"HTTP/1.1 200 " + b"O" * 300_000, id="an endless status line"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000,
            id="a body beyond the limit",
        ),
    ],
)
async def test_nonsense_is_refused(serve, connect, answer):
    transport = connect(await serve(replying(answer)))
    with pytest.raises(TransportError):
        await transport.request(get(max_body_bytes=1_000_000))


async def test_bytes_after_an_answer_do_not_spoil_it_but_end_the_connection(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n")
        await peer.until_closed()

    server = await serve(script)
    transport = connect(server)
    for _ in range(2):
        assert await (await transport.request(get())).read() == b"ok"
    assert server.connections == 2


async def test_unsolicited_answer_ends_an_idle_connection(serve, connect):
    closed = asyncio.Event()

    async def script(peer):
        await peer.read_request()
        await peer.answer(b"first")
        if server.connections == 1:
            await peer.answer(b"poison")
            await peer.until_closed()
            closed.set()

    server = await serve(script)
    transport = connect(server)
    assert await (await transport.request(get())).read() == b"first"
    await closed.wait()
    assert await (await transport.request(get())).read() == b"first"


# Connections that died while idle.


async def serve_then_close(peer):
    await peer.read_request()
    await peer.answer(b"ok")
    await peer.reader.readuntil(b"\r\n\r\n")  # take the second request, answer nothing


async def test_idempotent_request_survives_a_stale_kept_alive_connection(serve, connect):
    server = await serve(serve_then_close)
    transport = connect(server)
    for _ in range(3):
        assert (await transport.request(get())).status == 200
    assert server.connections == 3


async def test_write_on_a_stale_connection_is_not_repeated(serve, connect):
    server = await serve(serve_then_close)
    transport = connect(server)
    post = Request(method="POST", target="/", body=b"")
    assert (await transport.request(post)).status == 200
    with pytest.raises(StreamEnded, match="before answering") as caught:
        await transport.request(post)
    assert caught.value.sent
    assert server.connections == 1


async def test_fresh_connection_that_dies_is_an_error_even_for_idempotent_requests(serve, connect):
    server = await serve(replying(b""))
    with pytest.raises(StreamEnded):
        await connect(server).request(get())
    assert server.connections == 1


# Time.


async def test_silent_server_runs_into_the_deadline(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.until_closed()

    transport = connect(await serve(script))
    with pytest.raises(DeadlineExceeded, match="did not finish") as caught:
        await transport.request(get(deadline_s=0.05))
    assert caught.value.sent


async def test_trickling_answer_runs_into_the_deadline(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.start_chunked()
        while True:
            await peer.chunk(b"x")
            await asyncio.sleep(0.005)

    transport = connect(await serve(script))
    with pytest.raises(DeadlineExceeded, match="did not finish"):
        await transport.request(get(deadline_s=0.1))


async def test_trickling_head_runs_into_the_first_byte_deadline(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            await peer.write(b"x")
            await asyncio.sleep(0.005)

    transport = connect(await serve(script))
    with pytest.raises(DeadlineExceeded, match="did not begin"):
        await transport.request(get(first_byte_s=0.1))


async def test_deadline_is_kept_by_a_connection_whose_timer_was_set_by_an_earlier_request(
    serve, connect
):
    async def script(peer):
        await peer.read_request()
        await peer.answer()
        await peer.read_request()
        await peer.until_closed()

    server = await serve(script)
    transport = connect(server)
    await transport.request(get(deadline_s=0.5))
    with pytest.raises(DeadlineExceeded):
        await transport.request(get(deadline_s=0.6))
    assert server.connections == 1


async def test_request_the_server_does_not_read_was_not_sent(serve, connect):
    release = asyncio.Event()

    async def script(peer):
        peer.writer.transport.pause_reading()
        await release.wait()

    limits = ConnectionLimits(write_s=0.1)
    transport = connect(await serve(script), settings=PoolSettings(limits=limits))
    body = b"x" * 50_000_000
    with pytest.raises(DeadlineExceeded, match="did not accept") as caught:
        await transport.request(Request(method="POST", target="/", body=body, deadline_s=5.0))
    assert not caught.value.sent
    release.set()


async def test_handshake_that_never_ends_runs_into_the_connect_deadline(serve, connect, tls):
    async def script(peer):
        await peer.until_closed()

    server = await serve(script)  # plain TCP: the TLS hello is not answered
    transport = connect(
        server, context=tls.client(), scheme="https", settings=PoolSettings(connect_s=0.1)
    )
    with pytest.raises(TransportError, match="in time"):
        await transport.request(get())


# Streams.


async def test_stream_hands_out_what_arrives_and_ends(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.start_chunked()
        for word in (b"one ", b"two ", b"three"):
            await peer.chunk(word)
            await asyncio.sleep(0)
        await peer.end_chunked()
        await peer.until_closed()

    transport = connect(await serve(script))
    response = await transport.request(get(stream=True))
    received = b"".join([chunk async for chunk in response.iter_chunks()])
    assert received == b"one two three"


async def test_stream_error_comes_after_what_arrived_before_it(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.start_chunked()
        await peer.chunk(b"good")

    transport = connect(await serve(script))
    response = await transport.request(get(stream=True))
    chunks = response.iter_chunks()
    assert await anext(chunks) == b"good"
    with pytest.raises(StreamEnded):
        await anext(chunks)


async def test_stream_deadline_is_the_requests(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.start_chunked()
        await peer.until_closed()

    transport = connect(await serve(script))
    response = await transport.request(get(stream=True, deadline_s=0.1))
    with pytest.raises(DeadlineExceeded):
        await response.read()


async def test_refused_stream_is_an_ordinary_answer(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.answer(b'{"code":410}', status="410 Gone")

    transport = connect(await serve(script))
    response = await transport.request(get(stream=True))
    assert (response.status, await response.read()) == (410, b'{"code":410}')


async def test_closing_a_stream_closes_its_connection(serve, connect):
    gone = asyncio.Event()

    async def script(peer):
        await peer.read_request()
        await peer.start_chunked()
        await peer.chunk(b"x")
        await peer.until_closed()
        gone.set()

    transport = connect(await serve(script))
    response = await transport.request(get(stream=True))
    response.close()
    await gone.wait()
    assert [chunk async for chunk in response.iter_chunks()] == []


async def test_slow_consumer_makes_the_server_wait(serve, connect, tls):
    written = 0
    stuck = asyncio.Event()

    async def script(peer):
        nonlocal written
        await peer.read_request()
        await peer.start_chunked()
        block = b"x" * 65536
        while True:
            drain = asyncio.ensure_future(peer.chunk(block))
            done, _ = await asyncio.wait({drain}, timeout=0.3)
            if not done:
                stuck.set()
            await drain
            written += len(block)

    transport = connect(await serve(script, tls.server()), context=tls.client())
    response = await transport.request(get(stream=True, deadline_s=30.0))
    await stuck.wait()
    # What the kernel's socket buffers and both TLS layers hold comes on top of our own bound.
    assert written < STREAM_HIGH_WATER_BYTES + 24 * 2**20
    before = written
    read = 0
    async for chunk in response.iter_chunks():
        read += len(chunk)
        if read > before + 2 * STREAM_HIGH_WATER_BYTES:
            break
    response.close()
    assert written > before


async def test_streams_are_bounded_and_do_not_starve_requests(serve, connect):
    async def script(peer):
        request = await peer.read_request()
        if request.target == "/":
            await peer.start_chunked()
            await peer.until_closed()
        await peer.answer()

    server = await serve(script)
    transport = connect(server, settings=PoolSettings(max_connections=1, max_streams=2))
    streams = [await transport.request(get(stream=True)) for _ in range(2)]
    with pytest.raises(TransportError, match="2 streams"):
        await transport.request(get(stream=True))
    assert (await transport.request(Request(method="GET", target="/other"))).status == 200
    streams[0].close()
    while True:  # the slot is free once the loop has seen the connection go
        try:
            again = await transport.request(get(stream=True))
        except TransportError:
            await asyncio.sleep(0)
        else:
            break
    again.close()


# Everything at once.


@pytest.mark.parametrize("seed", range(4))
async def test_books_of_the_pool_survive_any_mixture_of_faults(serve, connect, tls, seed):
    rng = random.Random(seed)

    async def script(peer):
        while True:
            request = await peer.read_request()
            fate = rng.random()
            if fate < 0.1:
                return  # closed without an answer
            if fate < 0.2:
                await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
                return
            if fate < 0.3:
                await peer.answer(request.body, Connection="close")
                return
            if fate < 0.35:
                await peer.until_closed()
                return
            if fate < 0.4:
                await peer.write(b"nonsense\r\n\r\n")
                return
            await peer.answer(request.body)

    transport = connect(
        await serve(script, tls.server()),
        context=tls.client(),
        settings=PoolSettings(max_connections=5, max_streams=3),
    )
    outcomes = collections.Counter()

    async def one(number: int, deadline_s: float, patience_s: float) -> None:
        body = str(number).encode()
        request = Request(
            method="POST",
            target="/",
            body=body,
            deadline_s=deadline_s,
            stream=rng.random() < 0.1,
            idempotent=rng.random() < 0.5,
        )
        try:
            async with asyncio.timeout(patience_s):
                response = await transport.request(request)
                assert await response.read() == body
                outcomes["answered"] += 1
        except (TransportError, TimeoutError) as error:
            outcomes[type(error).__name__] += 1

    patience_s = [rng.choice([0.001, 0.05, 5.0]) for _ in range(200)]
    await asyncio.gather(*(one(n, 0.3, each_s) for n, each_s in enumerate(patience_s)))
    check_pool(transport)
    assert outcomes["TimeoutError"] > 0
    assert sum(outcomes.values()) == 200
    for number in range(200, 220):  # a busy machine may have answered none of them in time
        if not outcomes["answered"]:
            await one(number, 5.0, 10.0)
    assert outcomes["answered"] > 0
    check_pool(transport)


# Any split of the bytes is the same answer.


class RecordedEnd:
    """Stands in for the socket below a connection."""

    def write(self, data):
        pass

    def close(self):
        pass

    abort = close

    def is_closing(self):
        return False


WHOLE = (
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4;ext=1\r\nWiki\r\n6\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nTrailer: t\r\n\r\n"
)


@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=20))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_split_of_the_bytes_is_the_same_answer(cuts):
    async def run():
        idle = []
        connection = HttpConnection(
            asyncio.get_running_loop(), "peer", ConnectionLimits(), idle.append, lambda _: None
        )
        connection.connection_made(RecordedEnd())
        far = asyncio.get_running_loop().time() + 60
        ended = []
        connection.send(get(), b"", far, far, lambda _, outcome: ended.append(outcome))
        edges = [0, *sorted(cuts), len(WHOLE)]
        for start, end in itertools.pairwise(edges):
            if start < end:
                connection.data_received(WHOLE[start:end])
        connection.connection_lost(None)
        [response] = ended
        assert response.status == 200
        assert await response.read() == b"Wikipedia in \r\n\r\nchunks."
        assert response.headers == {"x-a": "1, 2", "transfer-encoding": "chunked"}
        assert idle == [connection]

    asyncio.run(run())


@given(data=st.binary(max_size=200), prefix=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]))
@settings(max_examples=200, deadline=None)
def test_no_bytes_whatsoever_leave_an_exchange_without_an_end(data, prefix):
    async def run():
        connection = HttpConnection(
            asyncio.get_running_loop(), "peer", ConnectionLimits(), lambda _: None, lambda _: None
        )
        connection.connection_made(RecordedEnd())
        far = asyncio.get_running_loop().time() + 60
        ended = []
        connection.send(get(), b"", far, far, lambda _, outcome: ended.append(outcome))
        connection.data_received(prefix + data)
        connection.connection_lost(None)
        [outcome] = ended
        assert isinstance(outcome, BufferedResponse | TransportError)

    asyncio.run(run())


async def _ends(peer):
    await peer.read_request()
    await peer.start_chunked()
    await peer.chunk(b"a")
    await peer.end_chunked()
    await peer.until_closed()


async def _goes_on(peer):
    await peer.read_request()
    await peer.start_chunked()
    while True:
        await peer.chunk(b"a" * 1000)


async def _answers_once(peer):
    await peer.read_request()
    await peer.answer(b"a")


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize("script", [_ends, _goes_on, _answers_once])
async def test_a_connection_is_freed_without_the_garbage_collector(
    serve, connect, tls, script, over_tls
):
    """A watch lasts for minutes: the collector has frozen its connection before it ends."""
    server = await serve(script, tls.server() if over_tls else None)
    gc.collect()
    gc.disable()
    try:
        transport = connect(server, context=tls.client() if over_tls else None)
        response = await transport.request(get(stream=script is not _answers_once))
        if script is _goes_on:
            response.close()
        else:
            assert await response.read() == b"a"
        del response
        await transport.aclose()
        await asyncio.sleep(0)
        kinds = HttpConnection, Exchange, StreamingResponse
        assert [each for each in gc.get_objects() if isinstance(each, kinds)] == []
    finally:
        gc.enable()
