"""Server-sent events: their format, heartbeats, and that the source ends with the client."""

import asyncio

import pytest
from http_peer import HttpPeer

from kubesched.base.http_server.event_stream import Event, event_stream
from kubesched.base.http_server.messages import Response


@pytest.mark.parametrize(
    ("event", "encoded"),
    [
        pytest.param(Event("a"), b"data: a\n\n", id="plain"),
        pytest.param(Event(""), b"data: \n\n", id="empty"),
        pytest.param(Event("a\nb\r\nc\rd"), b"data: a\ndata: b\ndata: c\ndata: d\n\n", id="lines"),
        pytest.param(
            Event("a", name="pod", id="7", retry_ms=500),
            b"event: pod\nid: 7\nretry: 500\ndata: a\n\n",
            id="all fields",
        ),
        pytest.param(
            Event("a", name="x\ndata: forged", id="1\r\n\r\ndata: forged"),
            b"event: x data: forged\nid: 1    data: forged\ndata: a\n\n",
            id="fields cannot add lines",
        ),
        pytest.param(Event("ä"), "data: ä\n\n".encode(), id="UTF-8"),
    ],
)
def test_an_event_on_the_wire(event, encoded):
    assert event.encode() == encoded


class Source:
    """Events that the test publishes."""

    def __init__(self):
        self.queue = asyncio.Queue()
        self.is_closed = False

    async def events(self):
        try:
            while (event := await self.queue.get()) is not None:
                yield event
        finally:
            self.is_closed = True


async def pieces_of(response, count):
    async with asyncio.timeout(10):
        return [await anext(response.stream) for _ in range(count)]


async def test_events_are_sent_as_they_come_and_the_end_is_the_end():
    source = Source()
    response = event_stream(source.events())
    assert response.content_type.startswith("text/event-stream")
    assert await pieces_of(response, 1) == [b":\n\n"]
    source.queue.put_nowait(Event("a"))
    source.queue.put_nowait(None)
    assert await pieces_of(response, 1) == [b"data: a\n\n"]
    with pytest.raises(StopAsyncIteration):
        await anext(response.stream)
    assert source.is_closed


async def test_silence_is_filled_with_comments():
    source = Source()
    response = event_stream(source.events(), heartbeat_s=0.001)
    assert await pieces_of(response, 4) == [b":\n\n"] * 4
    source.queue.put_nowait(Event("late"))
    while (await pieces_of(response, 1)) == [b":\n\n"]:
        pass
    await response.stream.aclose()
    assert source.is_closed


async def test_an_error_of_the_source_is_raised():
    async def broken():
        yield Event("a")
        raise RuntimeError("broken")

    response = event_stream(broken())
    await pieces_of(response, 2)
    with pytest.raises(RuntimeError, match="broken"):
        await anext(response.stream)


class Page:
    def __init__(self, source):
        self.source = source

    def begin(self, request):
        return None

    def respond(self, request):
        return event_stream(self.source.events())

    def refuse(self, refusal):
        return Response(refusal.status)

    def finished(self, request, status):
        pass


async def test_the_source_is_closed_when_the_browser_leaves():
    source = Source()
    peer = HttpPeer(Page(source))
    peer.send(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    source.queue.put_nowait(Event("a"))
    for _ in range(5):
        await peer.settled()
    assert peer.transport.out.endswith(b"9\r\ndata: a\n\n\r\n")
    await peer.leave()
    assert source.is_closed
