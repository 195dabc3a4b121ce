"""What is a request and what is refused. Everything a proxy might read differently than we do must
be refused.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.messages import Headers, Refusal
from kubesched.base.http_server.parser import RequestParser

HOST = b"Host: x\r\n"
LIMITS = Limits(
    max_target_bytes=100,
    max_field_bytes=200,
    max_fields=10,
    max_head_bytes=1000,
    max_body_bytes=5000,
)


class Sink:
    """Collects requests: [method, path, query, body, keeps_alive]."""

    def __init__(self):
        self.requests = []
        self.heads = []

    def head_received(self, head):
        self.heads.append(head)
        self.requests.append([head.method, head.path, head.query, b"", None])

    def body_received(self, part):
        self.requests[-1][3] += part

    def request_complete(self, *, keeps_alive):
        self.requests[-1][4] = keeps_alive


def parse(*parts, limits=LIMITS):
    sink = Sink()
    parser = RequestParser(sink, limits)
    for part in parts:
        refusal = parser.feed(part)
        if refusal is not None:
            return sink, refusal
    return sink, None


def post(headers, body=b"", version=b"1.1"):
    return b"POST / HTTP/%b\r\nHost: x\r\n%b\r\n\r\n%b" % (version, headers, body)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", ["GET", "/", "", b"", True], id="plain"
        ),
        pytest.param(
            b"\r\nGET /a%20b?c=%20d HTTP/1.1\r\n" + HOST + b"\r\n",
            ["GET", "/a b", "c=%20d", b"", True],
            id="an escaped path after an empty line",
        ),
        pytest.param(
            b"GET http://host:1/a?b HTTP/1.1\r\n" + HOST + b"\r\n",
            ["GET", "/a", "b", b"", True],
            id="the absolute form",
        ),
        pytest.param(
            b"GET http://host?b HTTP/1.1\r\n" + HOST + b"\r\n",
            ["GET", "/", "b", b"", True],
            id="the absolute form without a path",
        ),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", ["GET", "/", "", b"", False], id="HTTP/1.0"),
        pytest.param(
            b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            ["GET", "/", "", b"", True],
            id="HTTP/1.0 with keep-alive",
        ),
        pytest.param(
            post(b"Content-Length: 3", b"abc"), ["POST", "/", "", b"abc", True], id="with a length"
        ),
        pytest.param(
            post(
                b"Transfer-Encoding: chunked", b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nX: trailer\r\n\r\n"
            ),
            ["POST", "/", "", b"abc", True],
            id="chunked, with an extension and a trailer",
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n",
            ["GET", "/", "", b"", False],
            id="the last on its connection",
        ),
    ],
)
def test_a_request_is_understood_however_it_is_cut(data, expected):
    for size in (len(data), 1, 7):
        sink, refusal = parse(*(data[at : at + size] for at in range(0, len(data), size)))
        assert refusal is None
        assert sink.requests == [expected]


def get(*lines):
    return b"GET / HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


REFUSED = [
    pytest.param(post(b"Content-Length: 3\r\nContent-Length: 3", b"abc"), 400, id="length twice"),
    pytest.param(post(b"Content-Length: 3\r\nContent-Length: 4", b"abc"), 400, id="two lengths"),
    pytest.param(post(b"Content-Length: 3, 3", b"abc"), 400, id="a list of lengths"),
    pytest.param(post(b"Content-Length: +3", b"abc"), 400, id="a signed length"),
    pytest.param(post(b"Content-Length: -3", b"abc"), 400, id="a negative length"),
    pytest.param(post(b"Content-Length: 0x3", b"abc"), 400, id="a hexadecimal length"),
    pytest.param(post(b"Content-Length: 1 2", b"abc"), 400, id="a length with a gap"),
    pytest.param(post(b"Content-Length:", b"abc"), 400, id="an empty length"),
    pytest.param(post(b"Content-Length: 99999999999999999999", b""), 400, id="beyond 64 bits"),
    pytest.param(
        post(b"Content-Length: 3\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"), 400, id="CL.TE"
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"0\r\n\r\n"), 400, id="TE.CL"
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        400,
        id="chunked twice",
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"),
        400,
        id="TE.TE",
    ),
    pytest.param(post(b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n"), 501, id="compressed"),
    pytest.param(post(b"Transfer-Encoding: chunked, gzip", b"0\r\n\r\n"), 400, id="chunked first"),
    pytest.param(post(b"Transfer-Encoding: xchunked", b"0\r\n\r\n"), 501, id="an unknown coding"),
    pytest.param(post(b"Transfer-Encoding: identity"), 501, id="no coding"),
    pytest.param(post(b"Transfer-Encoding: \x0bchunked", b"0\r\n\r\n"), 400, id="a vertical tab"),
    pytest.param(post(b"Transfer-Encoding : chunked", b"0\r\n\r\n"), 400, id="space before colon"),
    pytest.param(post(b"Transfer-Encoding:\r\n chunked", b"0\r\n\r\n"), 400, id="folded coding"),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"0\r\n\r\n", b"1.0"), 400, id="chunked in HTTP/1.0"
    ),
    pytest.param(get(b"X: a\r\n b"), 400, id="obs-fold"),
    pytest.param(get(b" X: a"), 400, id="a header that begins with a space"),
    pytest.param(get(b": a"), 400, id="a header without a name"),
    pytest.param(get(b"broken"), 400, id="a header without a colon"),
    pytest.param(get(b"X: a\nY: b"), 400, id="bare LF between headers"),
    pytest.param(get(b"X: a\rY: b"), 400, id="bare CR between headers"),
    pytest.param(get(b"X: a\x00b"), 400, id="NUL in a header"),
    pytest.param(get(b"X\x00: a"), 400, id="NUL in a name"),
    pytest.param(b"GET / HTTP/1.1\nHost: x\n\n", 400, id="bare LF everywhere"),
    pytest.param(b"GET / HTTP/1.1\r\n" + HOST + b"\n", 400, id="bare LF at the end"),
    pytest.param(get(b"Host: y"), 400, id="two hosts"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no host"),
    pytest.param(b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", 400, id="a space in the path"),
    pytest.param(b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n", 400, id="NUL in the path"),
    pytest.param(
        b"GET /\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n", 400, id="a path that is not ASCII"
    ),
    pytest.param(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400, id="the asterisk form"),
    pytest.param(b"GET ftp://x/y HTTP/1.1\r\n" + HOST + b"\r\n", 400, id="another scheme"),
    pytest.param(b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", 501, id="CONNECT"),
    pytest.param(b"PROPFIND / HTTP/1.1\r\n" + HOST + b"\r\n", 501, id="a method of WebDAV"),
    pytest.param(b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", 400, id="no method at all"),
    pytest.param(b"GET /\r\n\r\n", 505, id="HTTP/0.9"),
    pytest.param(b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505, id="HTTP/2 in words"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2's preface"),
    pytest.param(b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", 400, id="HTTP/1.2"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, id="a TLS handshake"),
    pytest.param(post(b"Expect: something\r\nContent-Length: 1", b"x"), 417, id="an expectation"),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"1\nx\r\n0\r\n\r\n"), 400, id="chunk with LF"
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"-1\r\nx\r\n0\r\n\r\n"), 400, id="negative chunk"
    ),
    pytest.param(post(b"Transfer-Encoding: chunked", b"0x1\r\nx\r\n0\r\n\r\n"), 400, id="0x chunk"),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"1 \r\nx\r\n0\r\n\r\n"), 400, id="chunk and space"
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"f" * 20 + b"\r\n"), 400, id="a huge chunk size"
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"1\r\nxx0\r\n\r\n"), 400, id="a chunk too long"
    ),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"1;a\nb\r\nx\r\n0\r\n\r\n"), 400, id="LF in extension"
    ),
    pytest.param(post(b"Content-Length: 5001"), 413, id="an announced body beyond the limit"),
    pytest.param(
        post(b"Transfer-Encoding: chunked", b"1389\r\n" + b"x" * 5001), 413, id="a chunked one"
    ),
    pytest.param(b"GET /" + b"x" * 100 + b" HTTP/1.1\r\n", 414, id="a long target"),
    pytest.param(get(b"X: " + b"x" * 200), 431, id="a long header"),
    pytest.param(get(*[b"X: y"] * 10), 431, id="many headers"),
    pytest.param(get(*[b"X: " + b"x" * 150] * 7), 431, id="many bytes of headers"),
]


@pytest.mark.parametrize(("data", "status"), REFUSED)
@pytest.mark.parametrize("size", [None, 1])
def test_a_bad_request_is_refused_however_it_is_cut(data, status, size):
    size = size or len(data)
    sink, refusal = parse(*(data[at : at + size] for at in range(0, len(data), size)))
    assert refusal is not None
    # llhttp sees an unknown coding before we do if the whole request is there.
    assert refusal.status == status or (status == 501 and refusal.status == 400)
    assert all(keeps_alive is None for *_, keeps_alive in sink.requests)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX: ", id="a header value"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX", id="a header name"),
        pytest.param(b"", id="nothing but empty lines"),
    ],
)
def test_a_head_that_never_ends_is_refused(start):
    filler = b"x" * 100 if start else b"\r\n" * 50
    _, refusal = parse(start, *[filler] * 20)
    assert refusal is not None
    assert refusal.status == 431


@pytest.mark.parametrize(
    "filler",
    [
        pytest.param(b"1;" + b"x" * 500 + b"\r\ny\r\n", id="extensions"),
        pytest.param(b"", id="trailers"),
    ],
)
def test_chunks_that_are_mostly_overhead_are_refused(filler):
    parts = [filler] * 100 if filler else [b"0\r\n", *[b"X: " + b"x" * 150 + b"\r\n"] * 200]
    _, refusal = parse(post(b"Transfer-Encoding: chunked"), *parts)
    assert refusal is not None
    assert refusal.status == 400


def test_tiny_chunks_are_not_overhead():
    sink, refusal = parse(
        post(b"Transfer-Encoding: chunked"), *[b"1\r\nx\r\n"] * 5000, b"0\r\n\r\n"
    )
    assert refusal is None
    assert sink.requests[0][3] == b"x" * 5000


def test_many_requests_at_once_are_not_a_long_head():
    sink, refusal = parse(get() * 100 + b"GET / HT", b"TP/1.1\r\n" + HOST + b"\r\n")
    assert refusal is None
    assert len(sink.requests) == 101


def test_trailers_do_not_become_headers():
    body = b"0\r\nAuthorization: Bearer x\r\nHost: y\r\n\r\n"
    sink, refusal = parse(post(b"Transfer-Encoding: chunked", body))
    assert refusal is None
    assert dict(sink.heads[0].headers) == {"host": "x", "transfer-encoding": "chunked"}


def test_what_follows_an_upgrade_is_not_parsed():
    sink = Sink()
    parser = RequestParser(sink, LIMITS)
    data = get(b"Connection: upgrade", b"Upgrade: h2c") + b"PRI * HTTP/2.0\r\n\r\n"
    assert parser.feed(data) is None
    assert parser.is_upgraded
    assert len(sink.requests) == 1


@given(st.binary(max_size=300), st.integers(1, 50))
def test_noise_is_refused_or_incomplete(noise, size):
    sink, refusal = parse(*(noise[at : at + size] for at in range(0, len(noise), size)))
    assert refusal is None or isinstance(refusal, Refusal)
    assert sink.requests == []


@given(st.lists(st.sampled_from([b"x", b"yy", b"z" * 300]), max_size=8), st.integers(1, 400))
def test_however_it_is_cut_the_body_is_the_same(chunks, size):
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    data = post(b"Transfer-Encoding: chunked", body) + get()
    sink, refusal = parse(*(data[at : at + size] for at in range(0, len(data), size)))
    assert refusal is None
    assert [request[3] for request in sink.requests] == [b"".join(chunks), b""]


def test_headers_keep_the_order_of_repeated_values():
    headers = Headers([("X-Group", "a"), ("Accept", "b"), ("x-group", "c")])
    assert headers["x-group"] == "a"
    assert headers.get_all("x-group") == ["a", "c"]
    assert headers.get_all("accept") == ["b"]
    assert headers.get_all("missing") == []
