"""Watch streams: any cut of the bytes gives the same events, and errors come after what preceded
them.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.core_v1 import Pod
from kubesched.api.watch import INITIAL_EVENTS_END
from kubesched.base.errors import Gone, ServerError, StreamEnded, TransportError
from kubesched.client.exchange import BufferedResponse
from kubesched.client.watch import MAX_LINE_BYTES, EventStream, Watch


def line(type_: str, name: str, revision: int, **metadata: object) -> bytes:
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "d", "resourceVersion": str(revision), **metadata},
        "spec": {"nodeName": "n\u00fc", "containers": [{"name": "c", "image": "i"}]},
    }
    return msgspec.json.encode({"type": type_, "object": pod}) + b"\n"


GONE = msgspec.json.encode(
    {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "too old resource version: 1 (9)",
            "reason": "Expired",
            "code": 410,
        },
    }
)


def names(events):
    return [(event.type, event.object.metadata.name) for event in events]


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 4000), max_size=40),
)
def test_any_cut_of_the_stream_gives_the_same_events(sizes, cuts):
    stream = b"".join(
        line("ADDED", f"pod-{number}-" + "x" * size, number) for number, size in enumerate(sizes)
    )
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    stream_decoder = EventStream(Pod)
    events = []
    for start, end in itertools.pairwise(edges):
        events += stream_decoder.feed(stream[start:end])
    stream_decoder.finish()
    assert stream_decoder.error is None
    assert names(events) == names(EventStream(Pod).feed(stream))
    assert len(events) == len(sizes)


@given(cuts=st.lists(st.integers(0, 800), max_size=10))
def test_events_before_an_error_are_delivered_wherever_the_stream_is_cut(cuts):
    stream = line("ADDED", "a", 1) + line("DELETED", "b", 2) + GONE + b"\n" + line("ADDED", "c", 3)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    stream_decoder = EventStream(Pod)
    events = []
    for start, end in itertools.pairwise(edges):
        events += stream_decoder.feed(stream[start:end])
    assert names(events) == [("ADDED", "a"), ("DELETED", "b")]
    assert isinstance(stream_decoder.error, Gone)
    assert stream_decoder.error.message == "too old resource version: 1 (9)"


def test_blank_lines_and_carriage_returns_mean_nothing():
    stream_decoder = EventStream(Pod)
    stream = b"\n\r\n" + line("ADDED", "a", 1).replace(b"\n", b"\r\n") + b"\n"
    assert names(stream_decoder.feed(stream)) == [("ADDED", "a")]
    stream_decoder.finish()
    assert stream_decoder.error is None


def test_bookmark_carries_its_metadata():
    (event,) = EventStream(Pod).feed(
        b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7",'
        b'"creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},'
        b'"spec":{"containers":null},"status":{}}}\n'
    )
    assert event.type == "BOOKMARK"
    assert event.object.metadata.resource_version == "7"
    assert event.object.metadata.annotations == {INITIAL_EVENTS_END: "true"}


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"not json\n", id="no JSON"),
        pytest.param(b'{"type":"RENAMED","object":{}}\n', id="an unknown type"),
        pytest.param(b'{"object":{}}\n', id="no type"),
        pytest.param(b"[]\n", id="no object"),
    ],
)
def test_events_that_make_no_sense_are_an_error(bad):
    stream_decoder = EventStream(Pod)
    assert names(stream_decoder.feed(line("ADDED", "a", 1) + bad)) == [("ADDED", "a")]
    assert isinstance(stream_decoder.error, TransportError)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b'{"type":"ADDED","object":{"metadata":5}}\n', id="a field of the wrong type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n', id="no UTF-8"),
    ],
)
def test_an_object_that_makes_no_sense_is_passed_over(bad, caplog):
    stream_decoder = EventStream(Pod)
    events = stream_decoder.feed(line("ADDED", "a", 1) + bad + line("ADDED", "b", 2))
    assert names(events) == [("ADDED", "a"), ("ADDED", "b")]
    assert stream_decoder.error is None
    assert "makes no sense" in caplog.text


def test_line_without_end_is_bounded():
    stream_decoder = EventStream(Pod)
    for _ in range(MAX_LINE_BYTES // 2**20 + 1):
        stream_decoder.feed(b"x" * 2**20)
    assert isinstance(stream_decoder.error, TransportError)
    assert "exceeds the limit" in str(stream_decoder.error)


def watch_over(body: bytes) -> Watch[Pod]:
    async def start():
        return BufferedResponse(200, [], body)

    return Watch(Pod, start)


async def test_watch_yields_events_and_ends():
    async with watch_over(line("ADDED", "a", 1) + line("MODIFIED", "a", 2)) as watch:
        assert names([event async for event in watch]) == [("ADDED", "a"), ("MODIFIED", "a")]


async def test_watch_that_ends_within_an_event_raises_after_the_whole_ones():
    async with watch_over(line("ADDED", "a", 1) + line("MODIFIED", "a", 2)[:-20]) as watch:
        assert names(await watch.next_batch()) == [("ADDED", "a")]
        with pytest.raises(StreamEnded, match="middle of an event"):
            await watch.next_batch()


async def test_error_event_is_raised_each_time_it_is_asked_for():
    body = b'{"type":"ERROR","object":{"kind":"Status","message":"etcd","code":500}}\n'
    async with watch_over(body) as watch:
        for _ in range(2):
            with pytest.raises(ServerError, match="etcd"):
                await watch.next_batch()


async def test_refused_watch_raises_on_entering():
    async def start():
        raise Gone("too old resource version")

    with pytest.raises(Gone):
        async with Watch(Pod, start):
            raise AssertionError("entered a refused watch")
