"""Credentials that change while we run: token files, certificates and authorities are picked up,
broken ones are not.

Certificates are judged by real TLS handshakes with a server on loopback.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from pathlib import Path

import pytest

from kubesched.base.errors import CredentialsError
from kubesched.client.credentials import (
    LOOK_INTERVAL_S,
    REREAD_INTERVAL_S,
    ClientCredentials,
    FixedIdentity,
    Proof,
    SingleFlight,
    TokenFile,
)
from kubesched.client.tls_context import Pem, RotatingTls, TlsSettings, build_context


@pytest.fixture
def token_path(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("one")
    return path


async def token_of(identity: TokenFile) -> str:
    return (await identity.current()).authorization.removeprefix("Bearer ")


# Token files


async def test_a_new_token_is_used_after_the_next_look(token_path, clock, rewrite):
    identity = TokenFile(str(token_path), origin="test", clock=clock)
    rewrite(token_path, "two")
    assert await token_of(identity) == "one"
    clock.advance(LOOK_INTERVAL_S)
    assert await token_of(identity) == "two"


async def test_the_same_proof_is_returned_while_nothing_changes(token_path, clock):
    identity = TokenFile(str(token_path), origin="test", clock=clock)
    before = await identity.current()
    clock.advance(REREAD_INTERVAL_S)
    assert await identity.current() is before


async def test_a_rewrite_that_stat_cannot_see_is_found_within_a_minute(token_path, clock):
    identity = TokenFile(str(token_path), origin="test", clock=clock)
    status = token_path.stat()
    token_path.write_text("two")
    os.utime(token_path, ns=(status.st_atime_ns, status.st_mtime_ns))
    clock.advance(LOOK_INTERVAL_S)
    assert await token_of(identity) == "one"
    clock.advance(REREAD_INTERVAL_S)
    assert await token_of(identity) == "two"


async def test_a_projected_volume_is_followed_through_its_links(tmp_path, clock):
    """Kubelet writes a new folder and moves one link to it."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    (tmp_path / "data").symlink_to("first")
    (tmp_path / "token").symlink_to("data/token")
    identity = TokenFile(str(tmp_path / "token"), origin="test", clock=clock)
    assert await token_of(identity) == "first"
    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").replace(tmp_path / "data")
    clock.advance(LOOK_INTERVAL_S)
    assert await token_of(identity) == "second"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="the file is gone"),
        pytest.param("", id="the file is empty"),
        pytest.param("two\nlines", id="it has two lines"),
        pytest.param(b"\xff\xfe", id="it is not text"),
    ],
)
async def test_an_unusable_token_file_leaves_the_old_token_in_use(
    token_path, clock, rewrite, told, content
):
    identity = TokenFile(str(token_path), origin="test", clock=clock)
    if content is None:
        token_path.unlink()
    else:
        rewrite(token_path, content)
    clock.advance(LOOK_INTERVAL_S)
    assert await token_of(identity) == "one"
    assert "the last one stays in use" in told()
    token_path.write_text("recovered")
    clock.advance(REREAD_INTERVAL_S)
    assert await token_of(identity) == "recovered"


async def test_after_a_refusal_the_file_is_read_at_once(token_path, clock, rewrite):
    identity = TokenFile(str(token_path), origin="test", clock=clock)
    assert not await identity.renew()
    rewrite(token_path, "two")
    assert await identity.renew()
    assert await token_of(identity) == "two"


async def test_only_one_request_looks_while_the_others_go_on(
    token_path, clock, rewrite, monkeypatch
):
    identity = TokenFile(str(token_path), origin="test", clock=clock)
    rewrite(token_path, "two")
    clock.advance(LOOK_INTERVAL_S)
    read, may_read = TokenFile._read, threading.Event()

    def read_later(token_file):
        may_read.wait()
        return read(token_file)

    monkeypatch.setattr(TokenFile, "_read", read_later)
    looking = asyncio.create_task(identity.current())
    await asyncio.sleep(0)  # the first request is now waiting for its thread
    try:
        assert await token_of(identity) == "one"
    finally:
        may_read.set()
    assert (await looking).authorization == "Bearer two"


# The object the transport asks


async def test_headers_stay_the_same_object_until_the_token_changes(token_path, clock, rewrite):
    credentials = ClientCredentials(
        clock=clock, identity=TokenFile(str(token_path), origin="test", clock=clock)
    )
    first = await credentials.headers()
    assert await credentials.headers() is first
    rewrite(token_path, "two")
    clock.advance(LOOK_INTERVAL_S)
    second = await credentials.headers()
    assert second == {"Authorization": "Bearer two"}
    assert credentials.generation == 0, "a new token does not need new connections"


async def test_fixed_credentials_have_nothing_to_refresh(clock):
    credentials = ClientCredentials(clock=clock, identity=FixedIdentity(Proof.bearer("x")))
    assert not await credentials.refresh()


# Certificates, judged by handshakes


class Server:
    """Accepts TLS connections and remembers the common name of each client."""

    def __init__(self) -> None:
        self.port = 0
        self.clients: list[str] = []

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert") or {"subject": ((("commonName", "anonymous"),),)}
        self.clients.append(dict(part[0] for part in peer["subject"])["commonName"])
        writer.write(b"hello")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def shake_hands(self, context: ssl.SSLContext | None, name: str = "localhost") -> str:
        """Connect once and say who the server thought it was."""
        assert context is not None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname=name
        )
        try:
            assert await reader.read() == b"hello"
        finally:
            writer.close()
            await writer.wait_closed()
        return self.clients[-1]


@pytest.fixture
async def server(server_context):
    handler = Server()
    listener = await asyncio.start_server(handler.greet, "127.0.0.1", 0, ssl=server_context)
    handler.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield handler


@pytest.fixture
def files(tmp_path: Path, authority):
    """An authority, a certificate and a key in files, as a kubeconfig would name them."""
    issued = authority.issue("first")
    paths = {
        "ca": tmp_path / "ca.crt",
        "certificate": tmp_path / "me.crt",
        "key": tmp_path / "me.key",
    }
    paths["ca"].write_bytes(authority.certificate)
    paths["certificate"].write_bytes(issued.certificate)
    paths["key"].write_bytes(issued.key)
    return paths


def rotating(files) -> RotatingTls:
    return RotatingTls(
        TlsSettings(
            ca=Pem("certificate-authority", file=str(files["ca"])),
            certificate=Pem("client-certificate", file=str(files["certificate"])),
            key=Pem("client-key", file=str(files["key"])),
        )
    )


async def test_client_certificate_from_files_is_presented(server, files, clock):
    credentials = ClientCredentials(clock=clock, tls=rotating(files))
    assert await server.shake_hands(credentials.ssl_context()) == "first"


async def test_client_certificate_from_data_is_presented(server, authority):
    issued = authority.issue("inline")
    settings = TlsSettings(
        ca=Pem("certificate-authority-data", data=authority.certificate),
        certificate=Pem("client-certificate-data", data=issued.certificate),
        key=Pem("client-key-data", data=issued.key),
    )
    assert await server.shake_hands(build_context(settings)) == "inline"


async def test_certificate_file_with_inline_key_is_presented(server, authority, files):
    issued = authority.issue("mixed")
    files["certificate"].write_bytes(issued.certificate)
    settings = TlsSettings(
        ca=Pem("certificate-authority", file=str(files["ca"])),
        certificate=Pem("client-certificate", file=str(files["certificate"])),
        key=Pem("client-key-data", data=issued.key),
    )
    assert await server.shake_hands(build_context(settings)) == "mixed"


async def test_a_rotated_client_certificate_retires_the_old_connections(
    server, files, clock, authority, rewrite
):
    credentials = ClientCredentials(clock=clock, tls=rotating(files))
    issued = authority.issue("second")
    rewrite(files["certificate"], issued.certificate)
    rewrite(files["key"], issued.key)
    await credentials.headers()
    assert credentials.generation == 0, "too early to look"
    clock.advance(LOOK_INTERVAL_S)
    await credentials.headers()
    assert credentials.generation == 1
    assert await server.shake_hands(credentials.ssl_context()) == "second"
    clock.advance(LOOK_INTERVAL_S)
    await credentials.headers()
    assert credentials.generation == 1, "nothing changed since"


async def test_a_half_rotated_certificate_is_not_used(
    server, files, clock, authority, rewrite, told
):
    credentials = ClientCredentials(clock=clock, tls=rotating(files))
    issued = authority.issue("second")
    rewrite(files["certificate"], issued.certificate)
    clock.advance(LOOK_INTERVAL_S)
    await credentials.headers()
    assert credentials.generation == 0
    assert "the key does not belong to the certificate" in told()
    assert await server.shake_hands(credentials.ssl_context()) == "first"
    rewrite(files["key"], issued.key)
    clock.advance(LOOK_INTERVAL_S)
    await credentials.headers()
    assert await server.shake_hands(credentials.ssl_context()) == "second"


async def test_a_refusal_makes_us_look_at_the_certificates_at_once(
    files, clock, authority, rewrite
):
    credentials = ClientCredentials(clock=clock, tls=rotating(files))
    assert not await credentials.refresh()
    issued = authority.issue("second")
    rewrite(files["certificate"], issued.certificate)
    rewrite(files["key"], issued.key)
    assert await credentials.refresh()
    assert credentials.generation == 1


async def test_a_rotated_authority_is_trusted_from_then_on(
    server, files, clock, authority, other_authority, rewrite
):
    rewrite(files["ca"], other_authority.certificate)
    credentials = ClientCredentials(clock=clock, tls=rotating(files))
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.shake_hands(credentials.ssl_context())
    rewrite(files["ca"], authority.certificate)
    clock.advance(LOOK_INTERVAL_S)
    await credentials.headers()
    assert credentials.generation == 1
    assert await server.shake_hands(credentials.ssl_context()) == "first"


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
async def test_a_broken_authority_file_leaves_the_old_one_trusted(
    server, files, clock, rewrite, told, content
):
    credentials = ClientCredentials(clock=clock, tls=rotating(files))
    rewrite(files["ca"], content)
    clock.advance(LOOK_INTERVAL_S)
    await credentials.headers()
    assert credentials.generation == 0
    assert "the last ones stay in use" in told()
    assert await server.shake_hands(credentials.ssl_context()) == "first"


async def test_the_wrong_authority_is_refused(server, other_authority):
    settings = TlsSettings(ca=Pem("ca", data=other_authority.certificate))
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.shake_hands(build_context(settings))


async def test_the_system_does_not_trust_a_private_authority(server):
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.shake_hands(build_context(TlsSettings()))


async def test_a_name_the_certificate_does_not_carry_is_refused(server, authority):
    settings = TlsSettings(ca=Pem("ca", data=authority.certificate))
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.shake_hands(build_context(settings), "elsewhere.test")


async def test_an_authority_bundle_may_carry_comments(server, authority, other_authority):
    bundle = "# Größe, 認証局\n".encode() + other_authority.certificate + authority.certificate
    settings = TlsSettings(ca=Pem("ca", data=bundle))
    assert await server.shake_hands(build_context(settings)) == "anonymous"


async def test_a_server_certificate_can_be_its_own_authority(server, server_context, tmp_path):
    """Go trusts whatever stands in the bundle, self-signed or not."""
    settings = TlsSettings(ca=Pem("ca", file=str(tmp_path / "server.pem")))
    assert await server.shake_hands(build_context(settings)) == "anonymous"


async def test_verification_is_off_only_when_asked_for(server):
    assert (
        await server.shake_hands(build_context(TlsSettings(insecure=True)), "any.test")
        == "anonymous"
    )


def test_an_authority_with_verification_off_is_refused(authority):
    with pytest.raises(CredentialsError, match="contradict each other"):
        build_context(TlsSettings(ca=Pem("ca", data=authority.certificate), insecure=True))


def test_inline_keys_are_written_only_where_no_other_user_can_read(
    authority, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    original = ssl.SSLContext.load_cert_chain

    def spy(self, certfile, keyfile=None, password=None):
        seen.append((Path(certfile).parent, os.stat(certfile).st_mode & 0o777))
        original(self, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    issued = authority.issue("me")
    build_context(
        TlsSettings(certificate=Pem("c", data=issued.certificate), key=Pem("k", data=issued.key))
    )
    assert seen == [(tmp_path, 0o600)]
    assert list(tmp_path.iterdir()) == []


# Sharing one call


async def test_callers_share_one_flight():
    flight: SingleFlight[int] = SingleFlight()
    gate = asyncio.Event()
    calls = 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        await gate.wait()
        return calls

    waiting = [asyncio.create_task(flight.run(call)) for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert await flight.run(call) == 2


async def test_a_failure_reaches_everybody_who_waited():
    flight: SingleFlight[int] = SingleFlight()
    gate = asyncio.Event()

    async def call() -> int:
        await gate.wait()
        raise CredentialsError("no")

    waiting = [asyncio.create_task(flight.run(call)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["no"] * 3


async def test_if_the_first_gives_up_the_next_takes_over():
    flight: SingleFlight[str] = SingleFlight()
    gate = asyncio.Event()

    async def call() -> str:
        await gate.wait()
        return "done"

    first = asyncio.create_task(flight.run(call))
    await asyncio.sleep(0)
    second = asyncio.create_task(flight.run(call))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    assert await second == "done"
