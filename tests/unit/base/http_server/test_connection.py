"""One connection over a transport that only records: order, bounds, back pressure, timeouts,
failures.
"""

import asyncio
import gc
import weakref

import pytest
from http_peer import HttpPeer

from kubesched.base.errors import ServerError
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.messages import Response
from kubesched.base.http_server.sender import SLICE

PATIENCE_S = 10.0


class App:
    """An application whose answers the test decides."""

    def __init__(self):
        self.log = []
        self.gate = None
        """If set, `begin` waits for it."""
        self.refused = {}
        """Path -> response of `begin`."""
        self.pages = {}
        """Path -> response, awaitable or exception of `respond`."""

    def begin(self, request):
        self.log.append(("begin", request.path))
        if self.gate is not None:
            return self._slow_begin(request)
        return self.refused.get(request.path)

    async def _slow_begin(self, request):
        await self.gate.wait()
        return self.refused.get(request.path)

    def respond(self, request):
        self.log.append(("respond", request.path, request.body))
        page = self.pages.get(request.path, Response(200, request.path.encode()))
        if isinstance(page, Exception):
            raise page
        return page

    def refuse(self, refusal):
        headers = {"Retry-After": str(refusal.retry_after_s)} if refusal.retry_after_s else None
        return Response(refusal.status, refusal.message.encode(), headers=headers)

    def finished(self, request, status):
        self.log.append(("finished", request.path, status))

    @property
    def finished_paths(self):
        return [(path, *rest) for event, path, *rest in self.log if event == "finished"]


@pytest.fixture
def app():
    return App()


@pytest.fixture
async def connect(app):
    made = []

    def connect(**limits):
        peer = HttpPeer(app, Limits(**limits))
        made.append(peer)
        return peer

    yield connect
    for peer in made:
        await peer.leave()
        assert peer.owner.budget.used == 0
        assert peer.connection not in peer.owner.connections


def get(path="/", *headers):
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *headers)).encode() + b"\r\n\r\n"


def post(path, body, *headers, length=None):
    size = len(body) if length is None else length
    lines = (f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {size}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def closed(peer):
    async with asyncio.timeout(PATIENCE_S):
        await peer.transport.closed.wait()


async def aborted(peer):
    async with asyncio.timeout(PATIENCE_S):
        await peer.transport.aborted.wait()


# Requests and responses.


async def test_a_body_is_only_waited_for_after_the_head_was_accepted(app, connect):
    peer = connect()
    app.refused["/no"] = Response(403, b"no")
    peer.send(post("/no", b"", length=5000))
    assert peer.statuses() == [403]
    assert app.log == [("begin", "/no"), ("finished", "/no", 403)]
    assert peer.answers()[0][1]["connection"] == "close"


async def test_a_refused_request_whose_body_has_arrived_keeps_the_connection(app, connect):
    peer = connect()
    app.refused["/no"] = Response(403, b"no")
    peer.send(post("/no", b"body") + get("/yes"))
    assert peer.statuses() == [403, 200]
    assert not peer.transport.is_closed


async def test_after_a_refusal_input_is_dropped_for_a_while_and_then_the_connection_closed(
    app, connect
):
    """Closing a socket that has unread input resets it, and the client may never see the
    response.
    """
    peer = connect(linger_s=0.05)
    app.refused["/no"] = Response(403, b"no")
    peer.send(post("/no", b"", length=50_000))
    peer.send(b"x" * 20_000)
    assert not peer.transport.is_closed
    assert peer.transport.is_reading
    await closed(peer)
    assert peer.statuses() == [403]


async def test_a_client_that_floods_after_a_refusal_is_cut(app, connect):
    peer = connect(max_drained_bytes=10_000)
    peer.send(b"nonsense\r\n\r\n")
    peer.send(b"x" * 10_001)
    assert peer.transport.aborted.is_set()


async def test_a_client_is_told_to_continue_only_if_its_request_is_accepted(app, connect):
    peer = connect()
    app.refused["/no"] = Response(403, b"no")
    peer.send(post("/yes", b"", "Expect: 100-continue", length=4))
    assert peer.transport.out == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(b"body")
    peer.transport.out = peer.transport.out.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    peer.send(post("/no", b"", "Expect: 100-continue", length=4))
    assert peer.statuses() == [200, 403]


async def test_a_large_body_goes_out_in_slices_as_the_client_reads(app, connect):
    peer = connect()
    app.pages["/big"] = Response(200, b"x" * (3 * SLICE))
    peer.send(get("/big"))
    peer.connection.pause_writing()
    await peer.settled()
    assert len(peer.transport.out) < 2 * SLICE
    peer.connection.resume_writing()
    await peer.settled()
    assert [len(body) for _, _, body in peer.answers()] == [3 * SLICE]


async def test_head_of_a_large_body_is_its_head(app, connect):
    peer = connect()
    app.pages["/big"] = Response(200, b"x" * (3 * SLICE))
    peer.send(get("/big").replace(b"GET", b"HEAD"))
    await peer.settled()
    ((_, headers, body),) = peer.answers()
    assert (headers["content-length"], body) == (str(3 * SLICE), b"")


async def test_an_http_1_0_client_may_keep_its_connection(app, connect):
    peer = connect()
    peer.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert peer.answers()[0][1]["connection"] == "keep-alive"
    peer.send(b"GET / HTTP/1.0\r\n\r\n")
    assert peer.answers()[1][1]["connection"] == "close"
    assert peer.transport.is_closed


async def test_a_header_cannot_split_a_response(app, connect):
    peer = connect()
    app.pages["/"] = Response(302, headers={"Location": "/a\r\nX: y\r\n\r\nbody"})
    peer.send(get())
    ((_, headers, _),) = peer.answers()
    assert headers["location"] == "/a  X: y    body"
    assert "x" not in headers


async def test_responses_are_dated(app, connect):
    peer = connect()
    peer.send(get())
    assert peer.answers()[0][1]["date"].endswith(" GMT")


async def test_an_upgrade_is_ignored_and_what_follows_dropped(app, connect):
    peer = connect()
    peer.send(get("/", "Connection: upgrade", "Upgrade: h2c") + b"PRI * HTTP/2.0\r\n\r\n")
    peer.send(get("/second"))
    assert peer.statuses() == [200]
    assert peer.answers()[0][1]["connection"] == "close"


# Pipelining.


async def test_pipelined_requests_are_answered_in_order_however_long_one_takes(app, connect):
    peer = connect()
    gate = asyncio.Event()

    async def slow():
        await gate.wait()
        return Response(200, b"slow")

    app.pages["/slow"] = slow()
    peer.send(get("/a") + get("/slow") + post("/b", b"body") + b"nonsense\r\n\r\n")
    await peer.settled()
    assert [body for _, _, body in peer.answers()] == [b"/a"]
    gate.set()
    await peer.settled()
    assert peer.statuses() == [200, 200, 200, 400]


@pytest.mark.parametrize("at_once", [True, False])
async def test_pipelining_beyond_the_bound_stops_the_reading(app, connect, at_once):
    peer = connect(max_pipelined=4)
    app.gate = asyncio.Event()
    requests = [get(f"/{number}", "X: " + "x" * 500) for number in range(200)]
    for data in [b"".join(requests)] if at_once else requests:
        if peer.transport.is_reading:
            peer.send(data)
    sent = 200 if at_once else len(requests)
    assert not peer.transport.is_reading
    assert len(peer.connection._queue) <= 4 + 8192 // 500
    app.gate.set()
    for _ in range(40):
        await peer.settled()
    answered = len(peer.statuses())
    assert answered == sent if at_once else 4 < answered < 10
    assert peer.transport.is_reading


async def test_bodies_of_waiting_requests_are_bounded(app, connect):
    peer = connect(max_body_bytes=1000, max_pipelined=100)
    app.gate = asyncio.Event()
    for _ in range(3):
        peer.send(post("/", b"x" * 400))
    assert not peer.transport.is_reading
    app.gate.set()
    await peer.settled()
    assert peer.statuses() == [200, 200, 200]
    assert peer.transport.is_reading


async def test_a_body_waits_in_the_socket_until_its_request_is_accepted(app, connect):
    peer = connect(max_unaccepted_bytes=1000)
    app.gate = asyncio.Event()
    peer.send(post("/", b"x" * 1001, length=3000))
    assert not peer.transport.is_reading
    app.gate.set()
    await peer.settled()
    assert peer.transport.is_reading
    peer.send(b"x" * 1999)
    await peer.settled()
    assert peer.statuses() == [200]
    assert ("respond", "/", b"x" * 3000) in app.log


async def test_a_body_that_breaks_while_it_is_waited_for_is_refused(app, connect):
    peer = connect()
    app.gate = asyncio.Event()
    peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    app.gate.set()
    await peer.settled()
    peer.send(b"nonsense")
    await peer.settled()
    assert peer.statuses() == [400]
    assert not any(event == "respond" for event, *_ in app.log)


# Streams.


def stream_of(*pieces, log=None):
    async def generate():
        try:
            for piece in pieces:
                if isinstance(piece, asyncio.Event):
                    await piece.wait()
                elif isinstance(piece, Exception):
                    raise piece
                else:
                    yield piece
        finally:
            if log is not None:
                log.append("closed")

    return Response(stream=generate())


async def test_a_stream_is_chunked_and_an_empty_piece_does_not_end_it(app, connect):
    peer = connect()
    app.pages["/s"] = stream_of(b"one", b"", b"two")
    peer.send(get("/s") + get("/next"))
    await peer.settled()
    head, _, rest = peer.transport.out.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert rest.startswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200")


async def test_a_stream_is_closed_when_its_client_leaves(app, connect):
    peer = connect()
    log = []
    app.pages["/s"] = stream_of(b"one", asyncio.Event(), log=log)
    peer.send(get("/s"))
    await peer.settled()
    await peer.leave()
    assert log == ["closed"]
    assert app.finished_paths == [("/s", 200)]


class Subscription:
    """A stream that holds something from its creation on, as a watch does."""

    def __init__(self):
        self.is_closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.Event().wait()

    async def aclose(self):
        self.is_closed = True


async def test_a_stream_is_closed_even_if_the_client_left_before_it_began(app, connect):
    peer = connect()
    subscription = Subscription()
    app.pages["/s"] = Response(stream=subscription)
    peer.send(get("/s"))
    peer.disconnect()
    await peer.settled()
    assert subscription.is_closed


async def test_head_of_a_stream_does_not_begin_it(app, connect):
    peer = connect()
    subscription = Subscription()
    app.pages["/s"] = Response(stream=subscription)
    peer.send(get("/s").replace(b"GET", b"HEAD") + get("/next"))
    await peer.settled()
    assert subscription.is_closed
    assert peer.transport.out.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("error", [RuntimeError("broken"), ServerError("broken")])
async def test_a_stream_that_breaks_cuts_the_connection(app, connect, error):
    peer = connect()
    app.pages["/s"] = stream_of(b"one", error)
    peer.send(get("/s"))
    await aborted(peer)
    assert not peer.transport.out.endswith(b"0\r\n\r\n")


async def test_a_stream_stops_when_the_client_does_not_read_and_is_cut_in_the_end(app, connect):
    peer = connect(send_s=0.05)
    log = []
    app.pages["/s"] = stream_of(*[b"x" * 1000] * 100, log=log)
    peer.send(get("/s"))
    peer.connection.pause_writing()
    await peer.settled()
    assert peer.transport.out.count(b"\r\nxxx") < 10
    assert not peer.transport.is_reading
    await aborted(peer)
    await peer.leave()
    assert log == ["closed"]


async def test_a_client_that_reads_at_last_has_its_full_time_again(app, connect):
    peer = connect()
    app.pages["/s"] = stream_of(*[b"x" * 1000] * 10)
    peer.send(get("/s"))
    for _ in range(5):
        peer.connection.pause_writing()
        assert peer.connection._sender._timer is not None
        await peer.settled()
        peer.connection.resume_writing()
        assert peer.connection._sender._timer is None
        await peer.settled()
    assert peer.transport.out.endswith(b"0\r\n\r\n")


# Timeouts.


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_trickling_head_is_cut_without_a_word(app, connect, is_first):
    peer = connect(headers_s=30.0, idle_s=90.0)
    if not is_first:
        peer.send(get())
    before = peer.transport.out
    now = asyncio.get_running_loop().time()
    peer.send(b"GET / HTTP/1.1\r\n")
    peer.connection.check_timeouts(now + 29)
    assert not peer.transport.aborted.is_set()
    peer.send(b"X: y\r\n")
    peer.connection.check_timeouts(now + 31)
    assert peer.transport.aborted.is_set()
    assert peer.transport.out == before


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_trickling_body_gets_a_408(app, connect, is_slow):
    peer = connect(body_s=30.0)
    if is_slow:
        app.gate = asyncio.Event()
        app.gate.set()
    peer.send(post("/", b"x", length=100))
    await peer.settled()
    now = asyncio.get_running_loop().time()
    peer.connection.check_timeouts(now + 29)
    peer.send(b"x")
    assert peer.transport.out == b""
    peer.connection.check_timeouts(now + 31)
    await peer.settled()
    assert peer.statuses() == [408]


async def test_a_response_may_take_its_time(app, connect):
    peer = connect()
    app.gate = asyncio.Event()
    peer.send(get())
    peer.connection.check_timeouts(asyncio.get_running_loop().time() + 1e6)
    assert not peer.transport.aborted.is_set()
    assert peer.connection.is_busy


# Ends and failures.


async def test_half_close_is_answered_first(app, connect):
    peer = connect()
    app.gate = asyncio.Event()
    peer.send(get("/a") + get("/b"))
    assert peer.connection.eof_received() is True
    app.gate.set()
    await peer.settled()
    assert peer.statuses() == [200, 200]
    assert peer.transport.is_closed


async def test_half_close_in_the_middle_of_a_request_ends_the_connection(app, connect):
    peer = connect()
    peer.send(post("/", b"x", length=10))
    assert peer.connection.eof_received() is False


async def test_half_close_ends_a_stream(app, connect):
    peer = connect()
    app.pages["/s"] = stream_of(b"one", asyncio.Event())
    peer.send(get("/s"))
    await peer.settled()
    assert peer.connection.eof_received() is False


@pytest.mark.parametrize("point", ["begin", "respond", "slow begin", "slow respond"])
async def test_a_fault_in_the_application_is_a_500_and_no_more(app, connect, point, caplog):
    async def fault(*_):
        raise ZeroDivisionError("secret")

    def immediately(*_):
        raise ZeroDivisionError("secret")

    name = point.removeprefix("slow ")
    setattr(app, name, fault if point.startswith("slow") else immediately)
    peer = connect()
    peer.send(get("/bad"))
    await peer.settled()
    ((status, _, body),) = peer.answers()
    assert status == 500
    assert b"secret" not in body
    assert "A request failed" in caplog.text


async def test_a_response_under_way_is_finished_before_closing(app, connect):
    peer = connect()
    app.gate = asyncio.Event()
    peer.send(get())
    peer.connection.close_when_idle()
    assert not peer.transport.is_closed
    app.gate.set()
    await peer.settled()
    assert peer.answers()[0][1]["connection"] == "close"
    assert peer.transport.is_closed


async def test_a_connection_is_freed_without_the_garbage_collector(app):
    """Hostile clients come faster than collections do."""
    peer = HttpPeer(app)
    peer.send(get() + b"nonsense\r\n\r\n")
    connection = weakref.ref(peer.connection)
    gc.collect()
    gc.disable()
    try:
        await peer.leave()
        del peer
        await asyncio.sleep(0)
        assert connection() is None
    finally:
        gc.enable()
