"""Speed of `kubesched.base.http_server` over TLS on one core, beside aiohttp's server.

    python -P benchmarks/http_server.py [--seconds 3] [--repeat 3] [--connections 32]

The server runs in a process of its own; the client does as little as possible, and both are pinned
to a core where the machine allows. `CPU µs` is the server's own processor time per request, which
depends less on neighbours than the rate does; the best of the repetitions is shown. Both servers
run on uvloop and send the same bodies:

    small GET       30 bytes of JSON on a kept connection, answered without awaiting anything
    POST 2 KB       a body that is received whole, answered with 80 bytes
    metrics page    400 kB of text in eight chunks, as /metrics of a busy scheduler
    handshake       a new connection for each small GET
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from kubesched.app.server import self_signed
from kubesched.base.clock import SystemClock
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import Listener
from kubesched.base.http_server.messages import Refusal, Request, Response
from kubesched.base.http_server.sockets import open_socket

SMALL = b'{"kind":"Status","code":200}\r\n'
CREATED = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
LINE = b'scheduler_plugin_execution_duration_seconds_bucket{plugin="NodeAffinity",le="0.1"} 1\n'
PIECE = LINE * (50_000 // len(LINE))
PIECES = 8
BODY = b"x" * 2048


# The servers.


class Ours:
    def begin(self, request: Request) -> Response | None:
        return None

    def respond(self, request: Request) -> Response:
        if request.method == "POST":
            assert len(request.body) == len(BODY)
            return Response(201, CREATED, "application/json")
        if request.path == "/metrics":
            return Response(stream=pieces())
        return Response(200, SMALL, "application/json")

    def refuse(self, refusal: Refusal) -> Response:
        return Response(refusal.status, refusal.message.encode())

    def finished(self, request: Request, status: int) -> None:
        pass


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(PIECES):
        yield PIECE
        await asyncio.sleep(0)


async def serve_ours(sock: socket.socket, tls: ssl.SSLContext) -> None:
    limits = Limits(handshakes_per_s=-1.0, accepts_per_s=-1.0)
    await Listener(sock, lambda: tls, Ours(), clock=SystemClock(), limits=limits).serve()


async def serve_aiohttp(sock: socket.socket, tls: ssl.SSLContext) -> None:
    from aiohttp import web

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            assert len(await request.read()) == len(BODY)
            return web.Response(status=201, body=CREATED, content_type="application/json")
        if request.path == "/metrics":
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            async for piece in pieces():
                await response.write(piece)
            await response.write_eof()
            return response
        return web.Response(body=SMALL, content_type="application/json")

    server = web.Server(handle, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, sock=sock, ssl=tls)
    await listening.serve_forever()


SERVERS = {"kubesched": serve_ours, "aiohttp": serve_aiohttp}


def server_process(name: str, certificate: Path, pipe: Pipe) -> None:
    pin(0)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def main() -> None:
        sock = open_socket("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), report)
        pipe.send(sock.getsockname()[1])
        await SERVERS[name](sock, tls)

    def report() -> None:
        pipe.recv()
        used = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send(used.ru_utime + used.ru_stime)

    uvloop.run(main())


def pin(core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


# The client.

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
POST = (
    b"POST /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
PAGE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Client(asyncio.Protocol):
    """Sends one request after the other on a connection and counts the answers."""

    def __init__(
        self, request: bytes, is_over: Callable[[bytes], bool], counter: list[int]
    ) -> None:
        self._request, self._is_over, self._counter = request, is_over, counter
        self._received = b""

    def connection_made(self, transport) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received = (
            self._received[-8:] + data if self._is_over is page_is_over else self._received + data
        )
        if self._is_over(self._received):
            self._received = b""
            self._counter[0] += 1
            self._transport.write(self._request)


def page_is_over(received: bytes) -> bool:
    return received.endswith(LAST_CHUNK)


def answer_is_over(ending: bytes) -> Callable[[bytes], bool]:
    return lambda received: received.endswith(ending)


async def keep_asking(
    port: int, tls: ssl.SSLContext, seconds: float, connections: int, request: bytes, is_over
) -> int:
    loop, counter = asyncio.get_running_loop(), [0]
    made = [
        await loop.create_connection(
            lambda: Client(request, is_over, counter),
            "127.0.0.1",
            port,
            ssl=tls,
            server_hostname="localhost",
        )
        for _ in range(connections)
    ]
    counter[0] = 0
    await asyncio.sleep(seconds)
    count = counter[0]
    for transport, _ in made:
        transport.abort()
    return count


async def keep_connecting(port: int, tls: ssl.SSLContext, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    ends_at, count = loop.time() + seconds, 0

    async def worker() -> None:
        nonlocal count
        while loop.time() < ends_at:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=tls, server_hostname="localhost"
            )
            writer.write(GET)
            await reader.readuntil(SMALL)
            writer.transport.abort()
            count += 1

    await asyncio.gather(*(worker() for _ in range(4)))
    return count


def workloads(connections: int):
    small, created = answer_is_over(SMALL), answer_is_over(CREATED)
    return {
        "small GET": lambda p, t, s: keep_asking(p, t, s, connections, GET, small),
        "POST 2 KB": lambda p, t, s: keep_asking(p, t, s, connections, POST, created),
        "metrics page": lambda p, t, s: keep_asking(p, t, s, 4, PAGE, page_is_over),
        "handshake": keep_connecting,
    }


def measure(name: str, workload, certificate: Path, seconds: float) -> tuple[float, float]:
    """Requests per second, and the server's processor time per request in microseconds."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=server_process, args=(name, certificate, theirs), daemon=True
    )
    process.start()
    try:
        port = ours.recv()
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        uvloop.run(workload(port, tls, 0.3))
        ours.send(None)
        before, started = ours.recv(), time.perf_counter()
        count = uvloop.run(workload(port, tls, seconds))
        elapsed = time.perf_counter() - started
        ours.send(None)
        return count / elapsed, (ours.recv() - before) / count * 1e6
    finally:
        process.kill()
        process.join()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--connections", type=int, default=32)
    given = arguments.parse_args()
    multiprocessing.set_start_method("spawn")
    pin(1)
    with tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder) / "serving.pem"
        pair = self_signed.make(time.time())
        certificate.write_bytes(pair.certificate + pair.key)
        print(f"{'':14} {'server':12} {'requests/s':>12} {'CPU µs':>10}")
        for kind, workload in workloads(given.connections).items():
            for name in SERVERS:
                runs = [
                    measure(name, workload, certificate, given.seconds) for _ in range(given.repeat)
                ]
                rate, cpu = max(rate for rate, _ in runs), min(cpu for _, cpu in runs)
                print(f"{kind:14} {name:12} {rate:12,.0f} {cpu:10.1f}", flush=True)


if __name__ == "__main__":
    main()
