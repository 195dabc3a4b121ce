"""The API server over HTTP: authentication before bodies, API requests, watches.

Connections are `http_server`'s.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random

import pytest
from http_peer import HttpPeer
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.base.clock import ManualClock
from kubesched.playground.client.local import LocalApi
from kubesched.playground.server.api_server import ApiServer
from kubesched.playground.server.web import LIMITS, ApiApplication

MAPS = "/api/v1/namespaces/default/configmaps"


def peer_of(server: ApiServer, **limits) -> HttpPeer:
    application = ApiApplication(server)
    return HttpPeer(application, dataclasses.replace(LIMITS, **limits))


def fresh_peer() -> HttpPeer:
    api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(1))
    server = ApiServer(api.registry, clock=ManualClock(), rng=random.Random(1), token="secret")
    return peer_of(server)


@pytest.fixture
async def peer(http):
    made = peer_of(http.server)
    yield made
    await made.leave()


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Authorization: Bearer secret", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def config_map(name: str) -> bytes:
    return json.dumps({"metadata": {"name": name}}).encode()


async def test_a_request_is_answered_and_the_connection_kept(peer):
    peer.send(request("POST", MAPS, config_map("a")))
    peer.send(request("GET", f"{MAPS}/a"))
    (created, _, _), (read, headers, body) = peer.answers()
    assert (created, read) == (201, 200)
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["metadata"]["name"] == "a"
    assert not peer.transport.is_closed


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=6))
async def test_it_does_not_matter_how_bytes_are_cut(cuts):
    peer = fresh_peer()
    data = (
        request("POST", MAPS, config_map("a"))
        + request("GET", f"{MAPS}/a")
        + request("DELETE", f"{MAPS}/a")
    )
    start = 0
    for cut in sorted(cuts):
        peer.send(data[start:cut])
        start = max(start, cut)
    peer.send(data[start:])
    assert [status for status, _, _ in peer.answers()] == [201, 200, 200]
    await peer.leave()


async def test_pipelined_requests_are_answered_in_order(peer):
    peer.send(b"".join(request("POST", MAPS, config_map(f"c{index}")) for index in range(5)))
    names = [json.loads(body)["metadata"]["name"] for _, _, body in peer.answers()]
    assert names == [f"c{index}" for index in range(5)]


async def test_a_chunked_body_is_put_together(peer):
    body = config_map("a")
    chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (5, body[:5], len(body) - 5, body[5:])
    head = request(
        "POST", MAPS, b"", "Content-Type: application/json", "Transfer-Encoding: chunked"
    )
    peer.send(head + chunks)
    assert peer.answers()[0][0] == 201


async def test_percent_signs_in_paths_are_decoded(peer):
    peer.send(request("GET", f"{MAPS}/%61?x=%20"))
    assert b'configmaps \\"a\\" not found' in peer.answers()[0][2]


async def test_head_has_no_body(peer):
    peer.send(request("HEAD", "/api/v1/namespaces/default"))
    status, headers, body = peer.answers()[0]
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


async def test_a_client_that_asks_is_told_to_go_on(peer):
    head, _, body = request("POST", MAPS, config_map("a"), "Expect: 100-continue").partition(
        b"\r\n\r\n"
    )
    peer.send(head + b"\r\n\r\n")
    assert peer.transport.out == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(body)
    assert b"HTTP/1.1 201 Created" in peer.transport.out


@pytest.mark.parametrize("extra", [("Connection: close",), ()])
async def test_the_connection_ends_when_the_client_wishes(peer, extra):
    peer.send(request("GET", "/healthz", b"", *extra))
    assert peer.transport.is_closed is bool(extra)
    assert peer.answers()[0][1].get("connection") == ("close" if extra else None)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"NONSENSE\r\n\r\n", 400, id="no HTTP at all"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n",
            400,
            id="a header without a colon",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
            b"chunked\r\n\r\nabc",
            400,
            id="two lengths at once",
        ),
        pytest.param(b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n", 414, id="an endless path"),
        pytest.param(
            b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431, id="endless headers"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n", 413, id="an announced flood"
        ),
        pytest.param(
            request("POST", MAPS, b"", "Transfer-Encoding: chunked")
            + b"3d0900\r\n"
            + b"x" * 4_000_000,
            413,
            id="a flood without announcement",
        ),
    ],
)
async def test_a_malformed_request_is_refused_and_the_connection_closed(peer, data, status):
    peer.send(data)
    answered, headers, body = peer.answers()[0]
    assert (answered, headers["connection"]) == (status, "close")
    assert json.loads(body)["kind"] == "Status"
    await asyncio.wait_for(peer.transport.closed.wait(), 10)


async def test_strangers_get_nothing_but_a_refusal(peer):
    peer.send(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n")
    assert peer.answers()[0][0] == 401


async def test_a_peer_that_does_not_read_is_not_read_from(peer):
    peer.connection.pause_writing()
    peer.send(request("GET", "/healthz") * 3)
    assert peer.answers() == []
    assert not peer.transport.is_reading
    peer.connection.resume_writing()
    assert len(peer.answers()) == 3
    assert peer.transport.is_reading


async def test_a_watch_streams_chunks_until_the_peer_goes(peer, http):
    peer.send(request("GET", f"{MAPS}?watch=true"))
    await asyncio.sleep(0)
    await http.post(MAPS, {"metadata": {"name": "a"}})
    for _ in range(5):
        await asyncio.sleep(0)
    head, _, stream = peer.transport.out.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    size, _, rest = stream.partition(b"\r\n")
    assert json.loads(rest[: int(size, 16)])["object"]["metadata"]["name"] == "a"
    subscribers = http.server.registry.store.collection("configmaps").subscribers
    assert len(subscribers) == 1
    peer.disconnect()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not subscribers


async def test_a_watcher_that_leaves_its_socket_full_is_cut_off(http):
    peer = peer_of(http.server, send_s=0.01)
    peer.send(request("GET", f"{MAPS}?watch=true"))
    await asyncio.sleep(0)
    peer.connection.pause_writing()
    await http.post(MAPS, {"metadata": {"name": "a"}})
    async with asyncio.timeout(5):
        await peer.transport.aborted.wait()
    await peer.leave()
    assert not http.server.registry.store.collection("configmaps").subscribers


async def test_an_answer_waits_until_it_is_durable(peer, http, monkeypatch):
    settled = asyncio.Event()

    class Disk:
        is_settled = False

        async def settled(self) -> None:
            await settled.wait()

    monkeypatch.setattr(http.server, "_journal", Disk())
    peer.send(request("POST", MAPS, config_map("a")) + request("GET", "/healthz"))
    await asyncio.sleep(0)
    assert peer.transport.out == b""
    settled.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [status for status, _, _ in peer.answers()] == [201, 200]


async def test_a_request_that_never_ends_is_given_up_on(peer):
    peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
    now = asyncio.get_running_loop().time()
    peer.connection.check_timeouts(now + LIMITS.headers_s - 1)
    assert not peer.transport.aborted.is_set()
    peer.connection.check_timeouts(now + LIMITS.headers_s + 1)
    assert peer.transport.aborted.is_set()


async def test_an_idle_connection_is_left_alone_for_long_but_not_for_ever(peer):
    peer.send(request("GET", "/healthz"))
    now = asyncio.get_running_loop().time()
    peer.connection.check_timeouts(now + LIMITS.idle_s - 1)
    assert not peer.transport.aborted.is_set()
    peer.connection.check_timeouts(now + LIMITS.idle_s + 1)
    assert peer.transport.aborted.is_set()


async def test_a_client_that_is_not_authenticated_cannot_make_the_server_buffer_a_body(peer):
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n".encode()
    peer.send(head + b"x" * 200_000)
    assert peer.statuses() == [401]
    peer.send(b"x" * 200_000)
    assert peer.owner.budget.used == 0
    await asyncio.wait_for(peer.transport.closed.wait(), 10)


async def test_a_trailer_does_not_authenticate(peer):
    head = f"GET {MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    peer.send(head)
    peer.send(b"0\r\nAuthorization: Bearer secret\r\n\r\n")
    assert peer.statuses() == [401]


async def test_bodies_of_all_connections_together_are_bounded(http):
    first = peer_of(http.server, max_buffered_bytes=150_000)
    second = HttpPeer(ApiApplication(http.server), owner=first.owner)
    head = request("POST", MAPS, b"", "Content-Length: 100000")
    first.send(head + b"x" * 99_000)
    second.send(head + b"x" * 99_000)
    (status, headers, body), *_ = second.answers()
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(body)["reason"] == "TooManyRequests"
    assert first.owner.budget.used == 99_000
    await first.leave()
    await second.leave()
    assert first.owner.budget.used == 0


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=200))
async def test_noise_is_refused_or_waited_for(noise):
    peer = fresh_peer()
    peer.send(noise)
    assert all(status in (400, 401) for status, _, _ in peer.answers())
    await peer.leave()
