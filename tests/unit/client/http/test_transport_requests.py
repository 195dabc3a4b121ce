"""The HTTP transport's ordinary life: requests, answers, keep-alive, TLS, credentials.

Misbehaving servers are in `test_transport_faults`, proxies in `test_transport_proxies`.
"""

from __future__ import annotations

import asyncio
import gzip
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from self_checks import check_pool

from kubesched.base.errors import (
    ConnectFailed,
    DeadlineExceeded,
    StreamEnded,
    TransportError,
    WriteRefused,
)
from kubesched.client.pool import PoolSettings, _is_safe_target
from kubesched.client.transport import HeaderBlock, Request


async def echo(peer):
    """Answers every request with its own body until the client leaves."""
    while True:
        request = await peer.read_request()
        await peer.answer(request.body or b"empty")


async def test_request_arrives_as_written_and_answer_comes_back(serve, connect):
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer(b'{"ok":1}', status="201 Created", X_Thing="a")

    server = await serve(script)
    transport = connect(server)
    response = await transport.request(
        Request(
            method="POST",
            target="/api/v1/x?limit=5",
            headers=HeaderBlock({"Content-Type": "application/json"}),
            body=b'{"a":1}',
        )
    )
    assert (response.status, await response.read()) == (201, b'{"ok":1}')
    assert response.headers["x-thing"] == "a"
    (request,) = seen
    assert (request.method, request.target, request.body) == (
        "POST",
        "/api/v1/x?limit=5",
        b'{"a":1}',
    )
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["content-type"] == "application/json"


async def test_path_prefix_of_the_server_precedes_every_target(serve, connect):
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer()

    transport = connect(await serve(script), path_prefix="/k8s/clusters/c-1")
    await transport.request(Request(method="GET", target="/api/v1/pods"))
    assert seen[0].target == "/k8s/clusters/c-1/api/v1/pods"


async def test_sequential_requests_share_one_connection(serve, connect):
    server = await serve(echo)
    transport = connect(server)
    for number in range(20):
        response = await transport.request(
            Request(method="POST", target="/", body=str(number).encode())
        )
        assert await response.read() == str(number).encode()
    assert server.connections == 1


async def test_concurrent_requests_get_their_own_answers_within_the_pool_bound(serve, connect):
    server = await serve(echo)
    transport = connect(server, settings=PoolSettings(max_connections=4))

    async def one(number: int) -> bytes:
        response = await transport.request(
            Request(method="POST", target="/", body=str(number).encode())
        )
        return await response.read()

    answers = await asyncio.gather(*(one(number) for number in range(100)))
    assert answers == [str(number).encode() for number in range(100)]
    assert server.connections <= 4


async def test_connection_is_not_reused_after_the_server_said_close(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.answer(Connection="close")
        await peer.until_closed()

    server = await serve(script)
    transport = connect(server)
    for _ in range(3):
        assert (await transport.request(Request(method="GET", target="/"))).status == 200
    assert server.connections == 3


async def test_connection_is_not_reused_after_its_idle_time(serve, connect):
    server = await serve(echo)
    transport = connect(server, settings=PoolSettings(idle_s=-1.0))
    for _ in range(2):
        await transport.request(Request(method="GET", target="/"))
    assert server.connections == 2


async def test_interim_answers_are_skipped(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.write(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        )
        await peer.answer(b"final")

    transport = connect(await serve(script))
    response = await transport.request(Request(method="GET", target="/"))
    assert (response.status, await response.read()) == (200, b"final")
    assert "link" not in response.headers


async def test_answer_may_be_delimited_by_the_end_of_the_connection(serve, connect):
    async def script(peer):
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")

    transport = connect(await serve(script))
    response = await transport.request(Request(method="GET", target="/"))
    assert await response.read() == b"until the end"


async def test_compressed_lists_are_unpacked(serve, connect):
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer(gzip.compress(b"x" * 100_000), Content_Encoding="gzip")

    transport = connect(await serve(script))
    response = await transport.request(Request(method="GET", target="/"))
    assert await response.read() == b"x" * 100_000
    assert seen[0].headers["accept-encoding"] == "gzip"


async def test_compression_is_not_asked_for_when_disabled(serve, connect):
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer()

    transport = connect(await serve(script), disable_compression=True)
    await transport.request(Request(method="GET", target="/"))
    assert seen[0].headers["accept-encoding"] == "identity"


async def test_streams_are_asked_for_as_they_are(serve, connect):
    """Without a word about codings, proxies ask the API server for compressed watches."""
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer(gzip.compress(b"{}"), Content_Encoding="gzip")

    transport = connect(await serve(script))
    with pytest.raises(TransportError, match='content encoding "gzip" that was not asked for'):
        await transport.request(Request(method="GET", target="/", stream=True))
    assert seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(gzip.compress(b"x" * 10_000_000), "exceeds the limit", id="a bomb"),
        pytest.param(gzip.compress(b"xyz")[:-4], "truncated", id="a truncated body"),
        pytest.param(b"plain text", "not valid gzip", id="no gzip at all"),
    ],
)
async def test_bad_compressed_bodies_are_refused(serve, connect, body, complaint):
    async def script(peer):
        await peer.read_request()
        await peer.answer(body, Content_Encoding="gzip")

    transport = connect(await serve(script))
    with pytest.raises(TransportError, match=complaint):
        await transport.request(Request(method="GET", target="/", max_body_bytes=1_000_000))


# TLS.


async def test_tls_with_client_certificate(serve, connect, tls):
    server = await serve(echo, tls.server(asks_for_client=True))
    transport = connect(server, context=tls.client(with_certificate=True))
    response = await transport.request(Request(method="POST", target="/", body=b"hello"))
    assert await response.read() == b"hello"


async def test_server_name_is_used_for_verification_and_sni(serve, connect, tls):
    names = []
    context = tls.server()
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    server = await serve(echo, context)
    transport = connect(server, context=tls.client(), server_name="api.example.test")
    assert (await transport.request(Request(method="GET", target="/"))).status == 200
    assert names == ["api.example.test"]


async def test_certificate_for_another_name_is_refused(serve, connect, tls):
    server = await serve(echo, tls.server())
    transport = connect(server, context=tls.client(), server_name="elsewhere.example.test")
    with pytest.raises(ConnectFailed, match=r"cannot be trusted.*elsewhere"):
        await transport.request(Request(method="GET", target="/"))


async def test_certificate_of_an_unknown_authority_is_refused(serve, connect, tls):
    server = await serve(echo, tls.server())
    transport = connect(server, context=tls.mistrusting_client())
    with pytest.raises(ConnectFailed, match="cannot be trusted"):
        await transport.request(Request(method="GET", target="/"))


async def test_missing_client_certificate_is_a_transport_error(serve, connect, tls):
    server = await serve(echo, tls.server(asks_for_client=True))
    transport = connect(server, context=tls.client())
    with pytest.raises(TransportError, match=r"(?i)certificate|went away"):
        await transport.request(Request(method="GET", target="/"))


async def test_plain_text_server_behind_https_is_a_clear_error(serve, connect, tls):
    async def script(peer):
        await peer.reader.read(10)
        await peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await serve(script)
    transport = connect(server, context=tls.client(), scheme="https")
    with pytest.raises(ConnectFailed, match="TLS with"):
        await transport.request(Request(method="GET", target="/"))


# Credentials.


class RotatingCredentials:
    """Token 1, then 2, ... each `refresh`; optionally a new TLS generation with it."""

    def __init__(self, *, context=None, most=2):
        self.generation = 0
        self.refreshes = 0
        self._context = context
        self._most = most
        self._headers = {"Authorization": "Bearer token-1"}

    async def headers(self):
        return self._headers

    def ssl_context(self):
        return self._context

    async def refresh(self):
        self.refreshes += 1
        if self.refreshes >= self._most:
            return False
        self._headers = {"Authorization": f"Bearer token-{self.refreshes + 1}"}
        return True


def guarded(*accepted: str):
    async def script(peer):
        while True:
            request = await peer.read_request()
            if request.headers.get("authorization") in accepted:
                await peer.answer(b"welcome")
            else:
                await peer.answer(b"no", status="401 Unauthorized")

    return script


async def test_request_refused_with_401_is_sent_again_with_fresh_credentials(serve, connect):
    credentials = RotatingCredentials()
    transport = connect(await serve(guarded("Bearer token-2")), credentials=credentials)
    response = await transport.request(Request(method="POST", target="/", body=b"x"))
    assert (response.status, credentials.refreshes) == (200, 1)


async def test_second_401_is_the_answer(serve, connect):
    credentials = RotatingCredentials(most=5)
    transport = connect(await serve(guarded("none")), credentials=credentials)
    response = await transport.request(Request(method="GET", target="/"))
    assert (response.status, credentials.refreshes) == (401, 1)


async def test_401_is_the_answer_when_there_is_nothing_newer(serve, connect):
    credentials = RotatingCredentials(most=0)
    server = await serve(guarded("none"))
    transport = connect(server, credentials=credentials)
    response = await transport.request(Request(method="GET", target="/"))
    assert response.status == 401


async def test_repeated_header_values_become_one_line_each(serve, connect):
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer()

    class Impersonating(RotatingCredentials):
        async def headers(self):
            return {"Impersonate-User": "jane", "Impersonate-Group": ("dev", "ops")}

    transport = connect(await serve(script), credentials=Impersonating())
    await transport.request(Request(method="GET", target="/"))
    assert [line for line in seen[0].lines if line.startswith("Impersonate")] == [
        "Impersonate-User: jane",
        "Impersonate-Group: dev",
        "Impersonate-Group: ops",
    ]


async def test_new_generation_of_credentials_retires_kept_connections(serve, connect, tls):
    server = await serve(echo, tls.server())
    credentials = RotatingCredentials(context=tls.client())
    transport = connect(server, credentials=credentials)
    await transport.request(Request(method="GET", target="/"))
    credentials.generation += 1
    await transport.request(Request(method="GET", target="/"))
    await transport.request(Request(method="GET", target="/"))
    assert server.connections == 2


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(
            {"Authorization": "Bearer s3cret\r\nX-Evil: 1"}, id="a value with line breaks"
        ),
        pytest.param({"Bad Name": "s3cret"}, id="a name with a space"),
    ],
)
async def test_headers_that_would_break_out_are_refused_without_their_value(
    serve, connect, headers
):
    transport = connect(await serve(echo))
    with pytest.raises(ValueError, match="header") as caught:
        await transport.request(Request(method="GET", target="/", headers=headers))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("target", ["", "pods", "/a b", "/a\r\nX: y", "/ü", "/\x00"])
async def test_targets_that_would_break_out_are_refused(serve, connect, target):
    transport = connect(await serve(echo))
    with pytest.raises(ValueError, match="request target"):
        await transport.request(Request(method="GET", target=target))


def test_secrets_stay_out_of_representations():
    request = Request(
        method="POST", target="/", headers={"Authorization": "Bearer s3cret"}, body=b"s3cret"
    )
    assert "s3cret" not in repr(request)


# The end.


async def test_closed_transport_refuses_and_fails_what_is_under_way(serve, connect):
    reached = asyncio.Event()

    async def script(peer):
        await peer.read_request()
        reached.set()
        await peer.until_closed()

    transport = connect(await serve(script), settings=PoolSettings(max_connections=1))
    first = asyncio.create_task(transport.request(Request(method="GET", target="/")))
    await reached.wait()
    second = asyncio.create_task(transport.request(Request(method="GET", target="/")))
    await asyncio.sleep(0)
    await transport.aclose()
    with pytest.raises(StreamEnded, match="was closed"):
        await first
    with pytest.raises(ConnectFailed, match="is closed"):
        await second
    with pytest.raises(ConnectFailed, match="is closed"):
        await transport.request(Request(method="GET", target="/"))


async def test_cancelled_request_leaves_a_usable_pool(serve, connect):
    hang = True
    reached = asyncio.Event()

    async def script(peer):
        while True:
            await peer.read_request()
            reached.set()
            if hang:
                await peer.until_closed()
                return
            await peer.answer()

    transport = connect(await serve(script), settings=PoolSettings(max_connections=1))
    task = asyncio.create_task(transport.request(Request(method="GET", target="/")))
    await reached.wait()
    waiting = asyncio.create_task(
        transport.request(Request(method="GET", target="/", deadline_s=0.05))
    )
    with pytest.raises(DeadlineExceeded) as caught:
        await waiting
    assert not caught.value.sent
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hang = False
    response = await transport.request(Request(method="GET", target="/"))
    assert response.status == 200


async def test_permission_to_send_is_asked_for_after_waiting_for_a_connection(serve, connect):
    """A lease can be lost while a binding waits for its turn: then it must not go out."""
    seen, reached, may_answer, is_leader = [], asyncio.Event(), asyncio.Event(), True

    async def script(peer):
        while True:
            seen.append((await peer.read_request()).target)
            reached.set()
            await may_answer.wait()
            await peer.answer()

    transport = connect(await serve(script), settings=PoolSettings(max_connections=1))
    first = asyncio.create_task(transport.request(Request(method="POST", target="/first")))
    second = asyncio.create_task(
        transport.request(Request(method="POST", target="/second", may_send=lambda: is_leader))
    )
    await reached.wait()
    is_leader = False
    may_answer.set()
    assert (await first).status == 200
    with pytest.raises(WriteRefused, match="does not hold the leader lease"):
        await second
    check_pool(transport)
    third = Request(method="POST", target="/third", may_send=lambda: True)
    assert (await transport.request(third)).status == 200
    assert seen == ["/first", "/third"]


async def test_a_port_without_a_listener_is_connect_failed(serve, connect):
    server = await serve(echo)
    await server.stop()
    transport = connect(server)
    with pytest.raises(ConnectFailed, match=r"cannot connect to 127\.0\.0\.1"):
        await transport.request(Request(method="GET", target="/"))


@given(st.one_of(st.text(max_size=8), st.text("/aZ~!?% \x7f\n\t", max_size=8)))
def test_targets_are_visible_ascii_after_a_slash(target):
    assert _is_safe_target(target) == bool(re.fullmatch(r"/[!-~]*", target))
