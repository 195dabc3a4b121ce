"""How fast the client binds and watches over TLS on one core, beside aiohttp doing the same.

    python benchmarks/client.py [--bindings 30000] [--events 100000] [--repeat 3]

The peer is a separate process that does as little as possible, so that the client is what is
measured: it answers every POST with kube-apiserver's answer to a binding, and a watch with
ready-made 2-KB pod events, one HTTP chunk each. Both processes are pinned to a core of their own
where the machine allows. `CPU µs` is the client's own processor time per binding or event, which
depends less on neighbours than the rate does; the best of the repetitions is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import ipaddress
import json
import multiprocessing
import os
import random
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import httptools
import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.watch import WatchEvent
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient, user_agent
from kubesched.client.transport import AnonymousCredentials, ConnectionConfig

CONCURRENCY = 64
TOKEN = "x" * 700  # about what a service account token is

STATUS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
BINDING_ANSWER = (
    b"HTTP/1.1 201 Created\r\nAudit-Id: 6a6b3d0c-8b2f-4a6c-9a55-2f1c1e0c1d11\r\n"
    b"Cache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
    b"X-Kubernetes-Pf-Flowschema-Uid: 1f9a8a3e-52fb-4a7e-9b0a-0a5d3f6a1b11\r\n"
    b"X-Kubernetes-Pf-Prioritylevel-Uid: 7c9a8a3e-52fb-4a7e-9b0a-0a5d3f6a1b22\r\n"
    b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n%s"
) % (len(STATUS), STATUS)


# The peer.


def pod_event(number: int) -> bytes:
    """A watch event of about 2 KB: a pod as a ReplicaSet makes it."""
    name = f"web-5d5f7c8b9c-{number:06d}"
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "generateName": "web-5d5f7c8b9c-",
            "namespace": "default",
            "uid": f"3f0c9a52-7d38-4c43-a5a1-{number:012d}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d5f7c8b9c", "tier": "frontend"},
            "annotations": {"example.test/note": "n" * 300},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-5d5f7c8b9c",
                    "uid": "b5b2f9f4-0d3c-4b7e-8a39-5f0f6f6a7a10",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "volumes": [
                {
                    "name": "kube-api-access-x2x8p",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt"}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example.test/team/web:1.27.3",
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": "MODE", "value": "production"}],
                    "resources": {
                        "limits": {"cpu": "500m", "memory": "512Mi"},
                        "requests": {"cpu": "250m", "memory": "256Mi"},
                    },
                    "volumeMounts": [
                        {
                            "name": "kube-api-access-x2x8p",
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        }
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }
    return msgspec.json.encode({"type": "ADDED", "object": pod}) + b"\n"


class PeerProtocol(asyncio.Protocol):
    """Answers POSTs with a fixed answer and GETs with a stream of events."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self.parser = httptools.HttpRequestParser(self)
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.task: asyncio.Task[None] | None = None
        self.url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"POST":
            self.transport.write(BINDING_ANSWER)
        else:
            count = int(self.url.rpartition(b"resourceVersion=")[2].split(b"&")[0])
            self.task = asyncio.get_running_loop().create_task(self.stream(count))
        self.url = b""

    async def stream(self, count: int) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n"
        )
        chunks = self.chunks
        for number in range(count):
            await self.can_write.wait()
            self.transport.write(chunks[number % len(chunks)])
        self.transport.write(b"0\r\n\r\n")

    def pause_writing(self) -> None:
        self.can_write.clear()

    def resume_writing(self) -> None:
        self.can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.task is not None:
            self.task.cancel()


def run_peer(certificate: str, key: str, pipe: Connection) -> None:
    pin(0)

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        events = [pod_event(number) for number in range(500)]
        chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
        server = await asyncio.get_running_loop().create_server(
            lambda: PeerProtocol(chunks), "127.0.0.1", 0, ssl=context
        )
        pipe.send((server.sockets[0].getsockname()[1], sum(map(len, events)) // len(events)))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    run(main, has_uvloop())


def make_certificate(folder: Path) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "benchmark peer")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    crt, pem = folder / "peer.crt", folder / "peer.key"
    crt.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem.touch(mode=0o600)
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(crt), str(pem)


# The clients.


@dataclass(frozen=True)
class Target:
    port: int
    ca_file: str
    bindings: int
    events: int

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


class TokenCredentials(AnonymousCredentials):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context)
        self._headers = {"Authorization": f"Bearer {TOKEN}"}

    async def headers(self):
        return self._headers


def connect(target: Target) -> tuple[HttpTransport, RestClient]:
    credentials = TokenCredentials(target.context())
    config = ConnectionConfig(
        host="127.0.0.1", port=target.port, disable_compression=True, credentials=credentials
    )
    transport = HttpTransport(config, environ={})
    client = RestClient(transport, user_agent=user_agent("scheduler"), random=random.Random(1))
    return transport, client


async def in_parallel(count: int, bind: Callable[[int], Awaitable[None]]) -> Measurement:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await bind(number)

    await asyncio.gather(*(bind(number) for number in range(CONCURRENCY)))  # connections are made
    with Measurement(count) as measured:
        await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return measured


async def bind_with_kubesched(target: Target) -> Measurement:
    transport, client = connect(target)

    async def bind(number: int) -> None:
        await client.bind("default", f"web-{number}", UID, f"node-{number % 5000}")

    try:
        return await in_parallel(target.bindings, bind)
    finally:
        await transport.aclose()


async def bind_with_aiohttp(target: Target) -> Measurement:
    import aiohttp

    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    base = f"https://127.0.0.1:{target.port}/api/v1/namespaces/default/pods"

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONCURRENCY, ssl=target.context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        auto_decompress=False,
    ) as session:

        async def bind(number: int) -> None:
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": f"web-{number}", "namespace": "default", "uid": UID},
                "target": {"kind": "Node", "name": f"node-{number % 5000}"},
            }
            data = msgspec.json.encode(body)
            async with session.post(f"{base}/web-{number}/binding", data=data) as answer:
                await answer.read()
                assert answer.status == 201

        return await in_parallel(target.bindings, bind)


async def watch_with_kubesched(target: Target) -> Measurement:
    transport, client = connect(target)
    count = 0
    try:
        async with client.watch(Pod, resource_version=str(target.events)) as watch:
            with Measurement(target.events) as measured:
                while batch := await watch.next_batch():
                    count += len(batch)
        assert count == target.events
        return measured
    finally:
        await transport.aclose()


async def watch_with_aiohttp(target: Target, decode: Callable[[bytes], object]) -> Measurement:
    import aiohttp

    url = f"https://127.0.0.1:{target.port}/api/v1/pods?watch=true&resourceVersion={target.events}"
    count = 0
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=target.context()), read_bufsize=2**20
        ) as session,
        session.get(url) as answer,
    ):
        with Measurement(target.events) as measured:
            async for line in answer.content:
                decode(line)
                count += 1
    assert count == target.events
    return measured


async def watch_with_aiohttp_typed(target: Target) -> Measurement:
    return await watch_with_aiohttp(target, msgspec.json.Decoder(WatchEvent[Pod]).decode)


async def watch_with_aiohttp_json(target: Target) -> Measurement:
    return await watch_with_aiohttp(target, json.loads)


UID = "3f0c9a52-7d38-4c43-a5a1-000000000001"


# Measuring.


class Measurement:
    """Wall and processor time for a number of operations."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> Measurement:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.per_second = self.count / (time.perf_counter() - self._wall)
        self.cpu_us = (time.process_time() - self._cpu) / self.count * 1e6


def has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401  # only to see whether it is there
    except ImportError:
        return False
    return True


def run(main: Callable[[], Awaitable[object]], on_uvloop: bool) -> object:
    factory = asyncio.new_event_loop
    if on_uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())


def pin(core: int) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[core % len(cores)]})


CLIENTS = [
    ("binding POST", "kubesched", bind_with_kubesched),
    ("binding POST", "aiohttp", bind_with_aiohttp),
    ("watch event", "kubesched, typed", watch_with_kubesched),
    ("watch event", "aiohttp + msgspec, typed", watch_with_aiohttp_typed),
    ("watch event", "aiohttp + json", watch_with_aiohttp_json),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bindings", type=int, default=30_000)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="run only clients whose name contains this")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        certificate, key = make_certificate(Path(folder))
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        peer = multiprocessing.get_context("spawn").Process(
            target=run_peer, args=(certificate, key, theirs), daemon=True
        )
        peer.start()
        port, event_bytes = ours.recv()
        pin(1)
        target = Target(port, certificate, options.bindings, options.events)
        print(
            f"TLS, {CONCURRENCY} connections, events of {event_bytes} bytes, best of "
            f"{options.repeat}\n"
        )
        print(f"{'operation':<14}{'client':<28}{'loop':<10}{'per second':>12}{'CPU µs':>10}")
        for operation, client, measure in CLIENTS:
            if options.only not in client:
                continue
            for loop in ("uvloop", "asyncio") if has_uvloop() else ("asyncio",):
                best = [
                    run(lambda measure=measure: measure(target), loop == "uvloop")
                    for _ in range(options.repeat)
                ]
                rate = max(measured.per_second for measured in best)
                cpu = min(measured.cpu_us for measured in best)
                print(f"{operation:<14}{client:<28}{loop:<10}{rate:>12,.0f}{cpu:>10.1f}")
        ours.send("stop")
        peer.join(timeout=5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
