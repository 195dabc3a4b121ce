"""Loops, certificates and scripted servers for everything that speaks HTTP.

Every async test in this folder runs on plain asyncio and, where it is installed, on uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib.util
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubesched.client.metrics import HostMetrics
from kubesched.client.pool import HttpTransport, PoolSettings
from kubesched.client.tls_context import Pem, TlsSettings, build_context
from kubesched.client.transport import AnonymousCredentials, ConnectionConfig, Credentials


def pytest_asyncio_loop_factories(config, item):
    factories = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    return factories


# Certificates.


@dataclass(frozen=True)
class Authority:
    """A certificate authority that writes what it issues into a folder."""

    name: str
    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def issue(self, name: str, *, is_server: bool) -> tuple[Path, Path]:
        """A certificate and its key; a server's is for localhost and 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(name, self.certificate.subject, key)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if is_server:
            names = [
                x509.DNSName("localhost"),
                x509.DNSName("api.example.test"),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        crt, pem = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        crt.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return crt, pem


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _make_authority(name: str, folder: Path) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(name, folder, key, certificate)
    authority.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return authority


@dataclass(frozen=True)
class Tls:
    """Contexts of a server and of clients that may or may not be welcome there."""

    authority: Authority
    stranger: Authority

    def server(self, *, asks_for_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.authority.issue("server", is_server=True))
        if asks_for_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority.path)
        return context

    def client(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        context = _trusting(self.authority)
        if with_certificate:
            context.load_cert_chain(*self.authority.issue("client", is_server=False))
        return context

    def mistrusting_client(self) -> ssl.SSLContext:
        return _trusting(self.stranger)


def _trusting(authority: Authority) -> ssl.SSLContext:
    return build_context(TlsSettings(ca=Pem("certificate-authority", file=str(authority.path))))


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    return Tls(_make_authority("ca", folder), _make_authority("stranger", folder))


# Servers that follow a script.


@dataclass
class SeenRequest:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    lines: list[str] = field(default_factory=list)


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read_request(self) -> SeenRequest:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return SeenRequest(method, target, headers, body, lines)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"{}", status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def start_chunked(self) -> None:
        await self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def end_chunked(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def until_closed(self) -> None:
        """Returns when the client has gone away."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """Runs one script per connection and remembers what went wrong in it."""

    def __init__(self, script: Script, context: ssl.SSLContext | None) -> None:
        self.script = script
        self.context = context
        self.port = 0
        self.connections = 0
        self.errors: list[BaseException] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._on_connection, "127.0.0.1", 0, ssl=self.context, limit=2**20
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self.script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass  # the client left; scripts that loop over requests end this way
        except asyncio.CancelledError:
            pass  # the test is over
        except Exception as error:
            if "the handler is closed" not in str(error):  # uvloop's words for a client that left
                self.errors.append(error)
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        assert not self.errors, self.errors


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[ScriptedServer]]]:
    servers: list[ScriptedServer] = []

    async def start(script: Script, context: ssl.SSLContext | None = None) -> ScriptedServer:
        server = ScriptedServer(script, context)
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., HttpTransport]]:
    """Makes transports to a scripted server and closes them after the test."""
    transports: list[HttpTransport] = []

    def make(
        server: ScriptedServer,
        *,
        context: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        settings: PoolSettings | None = None,
        metrics: HostMetrics | None = None,
        **config: object,
    ) -> HttpTransport:
        defaults = {
            "host": "127.0.0.1",
            "port": server.port,
            "scheme": "https" if server.context is not None else "http",
            "credentials": credentials or AnonymousCredentials(context),
        }
        transport = HttpTransport(
            ConnectionConfig(**{**defaults, **config}),
            settings=settings,
            environ={},
            metrics=metrics,
        )
        transports.append(transport)
        return transport

    yield make
    for transport in transports:
        await transport.aclose()
