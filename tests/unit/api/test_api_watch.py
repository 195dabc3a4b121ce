"""Watch events: one line in, one typed event or the error it stands for out."""

from __future__ import annotations

import pytest

from kubesched.api.codec import MalformedObject
from kubesched.api.core_v1 import Pod
from kubesched.api.watch import WatchDecoder
from kubesched.base.errors import ApiError, Gone, ServerError


@pytest.fixture(scope="module")
def decoder():
    return WatchDecoder(Pod)


@pytest.mark.parametrize("event_type", ["ADDED", "MODIFIED", "DELETED"])
def test_events_carry_the_object(decoder, event_type):
    line = f'{{"type":"{event_type}","object":{{"metadata":{{"name":"p","uid":"u"}}}}}}\n'.encode()
    event = decoder.decode(line)
    assert (event.type, event.object.metadata.uid) == (event_type, "u")
    assert isinstance(event.object, Pod)


def test_a_bookmark_carries_a_revision(decoder):
    event = decoder.decode(
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746",'
        b'"creationTimestamp":null},"spec":{"containers":null},"status":{}}}'
    )
    assert event.type == "BOOKMARK"
    assert event.object.metadata.resource_version == "12746"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
            '"message":"too old resource version: 1 (5)","reason":"Expired","code":410}',
            Gone,
            id="an expired revision",
        ),
        pytest.param(
            '{"code":500,"message":"m","reason":"InternalError"}',
            ServerError,
            id="a server's failure",
        ),
        pytest.param('{"code":499,"message":"m"}', ApiError, id="something else"),
    ],
)
def test_an_error_event_is_raised(decoder, status, error):
    line = f'{{"type":"ERROR","object":{status}}}'.encode()
    with pytest.raises(error):
        decoder.decode(line)


def test_nulls_are_read_as_absent(decoder):
    event = decoder.decode(b'{"type":"ADDED","object":{"metadata":{"name":"p","uid":null}}}')
    assert event.object.metadata.uid == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            b'{"type":"NEW","object":{}}',
            'watch event of Pod: type: unknown event type "NEW"',
            id="an unknown type",
        ),
        pytest.param(b"{}", 'watch event of Pod: type: unknown event type ""', id="no type"),
        pytest.param(
            b'{"type":"ADDED"', "watch event of Pod: input data was truncated", id="cut off"
        ),
        pytest.param(
            b'{"type":"ADDED","object":{"metadata":{"name":"p"},"spec":3}}',
            "Pod p: spec: expected object, got int",
            id="a malformed object",
        ),
    ],
)
def test_nonsense_is_refused(decoder, line, message):
    with pytest.raises(MalformedObject) as caught:
        decoder.decode(line)
    assert str(caught.value) == message
