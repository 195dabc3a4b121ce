"""Real sockets, with and without TLS: hostile clients, half-close, uploads that are refused,
shutting down.

The limits of the scheduler's own port are tested in
`tests/unit/app/server/test_listener_limits.py`.
"""

import asyncio
import contextlib
import socket
import ssl
import time

import pytest

from kubesched.app.server import self_signed
from kubesched.base.clock import SystemClock
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import Listener, running
from kubesched.base.http_server.messages import Response
from kubesched.base.http_server.sockets import open_socket

PATIENCE_S = 20.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    def __init__(self):
        self.gate = None
        self.entered = asyncio.Event()
        self.stream_closed = asyncio.Event()
        self.finished_with = []

    def begin(self, request):
        return None if request.path != "/forbidden" else Response(403, b"no")

    async def respond(self, request):
        if self.gate is not None:
            self.entered.set()
            await self.gate.wait()
        if request.path == "/endless":
            return Response(stream=self._endless())
        return Response(200, b"%d" % len(request.body))

    async def _endless(self):
        try:
            while True:
                yield b"x" * 100_000
        finally:
            self.stream_closed.set()

    def refuse(self, refusal):
        return Response(refusal.status, refusal.message.encode())

    def finished(self, request, status):
        self.finished_with.append(status)


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "serving.pem"
    pair = self_signed.make(time.time())
    path.write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.fixture
def client_tls():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture
async def app():
    return App()


@contextlib.asynccontextmanager
async def serving(app, tls=None, **limits):
    context = None if tls is None else lambda: tls
    listener = Listener(
        open_socket("127.0.0.1", 0), context, app, clock=SystemClock(), limits=Limits(**limits)
    )
    async with running(listener, close_s=0.1):
        yield listener


@contextlib.asynccontextmanager
async def client(listener, tls=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=tls)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.transport.abort()


async def ended(reader):
    """What is left to read until the server ends the connection."""
    parts = []
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while part := await reader.read(65536):
            parts.append(part)
    return b"".join(parts)


async def is_served(listener, tls=None):
    async with client(listener, tls) as (reader, writer):
        writer.write(GET)
        return (await reader.readuntil(b"\r\n")).split()[1] == b"200"


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="plain HTTP on the TLS port"),
        pytest.param(b"\x00" * 500, id="zeros"),
        pytest.param(b"\x16\x03\x01\xff\xff" + b"\xff" * 500, id="a record that lies"),
        pytest.param(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", id="a broken ClientHello"),
        pytest.param(b"", id="nothing, and leaves"),
    ],
)
async def test_tls_garbage_costs_its_sender_the_connection(app, server_tls, client_tls, garbage):
    async with serving(app, server_tls) as listener:
        for _ in range(20):
            async with client(listener) as (reader, writer):
                writer.write(garbage)
                if garbage:
                    await ended(reader)
        assert await is_served(listener, client_tls)
        await listener.wait_until_empty()


async def test_aborted_handshakes_leave_nothing_behind(app, server_tls, client_tls):
    async with serving(app, server_tls) as listener:
        hello = client_hello(client_tls)
        for cut in range(1, len(hello), len(hello) // 20):
            sock = socket.create_connection(("127.0.0.1", listener.port))
            sock.sendall(hello[:cut])
            # A reset instead of an orderly end.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            await asyncio.sleep(0)
            sock.close()
        assert await is_served(listener, client_tls)
        async with asyncio.timeout(PATIENCE_S):
            while listener.connection_count:  # noqa: ASYNC110 - the sockets are the kernel's
                await asyncio.sleep(0.01)


def client_hello(context):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def test_many_slow_clients_do_not_keep_others_from_being_served(app):
    limits = {"max_connections": 20, "max_waiting": 20, "handshakes_per_s": -1.0}
    async with serving(app, **limits) as listener, contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            _, writer = await stack.enter_async_context(client(listener))
            writer.write(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(5):
            assert await is_served(listener)
        assert listener.connection_count <= 20


async def test_half_close_is_answered_before_the_connection_ends(app):
    app.gate = asyncio.Event()
    async with serving(app) as listener, client(listener) as (reader, writer):
        writer.write(GET + GET)
        writer.write_eof()
        await app.entered.wait()
        app.gate.set()
        assert (await ended(reader)).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        pytest.param("/", 1_000_000, 413, id="too large"),
        pytest.param("/forbidden", 60_000, 403, id="forbidden"),
    ],
)
async def test_a_client_sees_why_its_upload_was_refused(
    app, server_tls, client_tls, is_tls, path, length, status
):
    """It sends everything before it reads, so the response must survive the unread rest."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()

    def upload(port):
        sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        with client_tls.wrap_socket(sock) if is_tls else sock as sock:
            sock.sendall(head)
            for _ in range(10):
                time.sleep(0.01)
                sock.sendall(b"x" * (length // 10))
            return sock.recv(65536)

    limits = {"max_drained_bytes": 2_000_000}
    async with serving(app, server_tls if is_tls else None, **limits) as listener:
        answer = await asyncio.to_thread(upload, listener.port)
    assert int(answer.split()[1]) == status
    assert b"Connection: close" in answer


async def test_a_stalled_reader_is_cut_and_its_stream_closed(app, server_tls, client_tls):
    async with (
        serving(app, server_tls, send_s=0.2) as listener,
        client(listener, client_tls) as (_reader, writer),
    ):
        writer.transport.pause_reading()
        writer.write(GET.replace(b"/ ", b"/endless "))
        async with asyncio.timeout(PATIENCE_S):
            await app.stream_closed.wait()
        await listener.wait_until_empty()


async def test_shutting_down_ends_a_response_that_takes_too_long(app):
    app.gate = asyncio.Event()
    async with serving(app) as listener, client(listener) as (reader, writer):
        writer.write(GET)
        await app.entered.wait()
        await listener.close(0.05)
        assert await ended(reader) == b""
        assert app.finished_with == [0]
        assert listener.connection_count == 0


async def test_a_body_arrives_whole_in_any_number_of_chunks(app, server_tls, client_tls):
    async with (
        serving(app, server_tls) as listener,
        client(listener, client_tls) as (reader, writer),
    ):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for size in (1, 10, 1000, 50_000):
            writer.write(b"%x\r\n%b\r\n" % (size, b"x" * size))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        answer = await reader.readuntil(b"51011")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
