"""HTTP/1.1 requests from bytes.

The grammar is llhttp's (through httptools) without any leniency: bare LF, obs-fold, whitespace
before a colon, control characters, repeated or malformed Content-Length, and Content-Length beside
Transfer-Encoding are errors there. This module adds what llhttp leaves open:

- Sizes. httptools collects a header until its line ends, however long it is, so received bytes are
  counted as well.
- Transfer-Encoding other than exactly `chunked`, or in HTTP/1.0, and repeated Host headers: a proxy
  in front might find the end of the request, or its destination, elsewhere than we do.
- Trailers are dropped. llhttp reports them like headers; merged, they could replace an
  Authorization header after the fact.
- Chunk overhead. Extensions and tiny chunks cost work and count for nothing in the length of a
  body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import httptools

from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.messages import Headers, Refusal, Request

if TYPE_CHECKING:
    from kubesched.base.http_server.connection import Connection

METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"))
CHUNK_OVERHEAD_BYTES: Final = 16 * 1024
CHUNK_OVERHEAD_RATIO: Final = 8
"""One byte per chunk is six bytes on the wire."""


class RequestParser:
    """Parses the requests of one connection and hands their parts to it, in order.

    The connection may raise `Refusal`, which `feed` then returns.
    """

    def __init__(self, sink: Connection, limits: Limits) -> None:
        self._sink = sink
        self._limits = limits
        self._llhttp: Any = httptools.HttpRequestParser(self)
        self._reset()
        self._head_wire_bytes = 0
        self._overhead_bytes = 0
        self._has_completed = False
        self.is_upgraded = False
        """Whether the last request asked for an upgrade; the data after it must be dropped."""

    def feed(self, data: bytes | memoryview) -> Refusal | None:
        """Parse the next bytes. After a refusal the parser must not be used again.

        The refusal is returned, not raised: a traceback would keep the input alive until the next
        garbage collection.
        """
        was_in_body = self._is_in_body
        self._has_completed = False
        self._body_bytes_in_feed = 0
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_upgraded = True
            return None
        except httptools.HttpParserCallbackError as error:
            cause, error.__context__ = error.__context__, None
            if not isinstance(cause, Refusal):
                raise
            return cause.with_traceback(None)
        except httptools.HttpParserError as error:
            return Refusal(400, f"malformed request: {error}")
        if not self._is_in_body:
            return self._count_head(len(data))
        return self._count_overhead(len(data)) if was_in_body else None

    def close(self) -> None:
        """Break reference cycles with the sink and httptools, so that memory is freed at once."""
        del self._llhttp, self._sink

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        self._reset()

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > self._limits.max_target_bytes:
            raise Refusal(414, "the request target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_body:
            return  # a trailer
        size = len(name) + len(value)
        self._head_bytes += size + 4
        self._field_count += 1
        limits = self._limits
        if (
            size > limits.max_field_bytes
            or self._head_bytes > limits.max_head_bytes
            or self._field_count > limits.max_fields
        ):
            raise _head_too_large()
        key = _NAMES.get(name) or _remember_name(name)
        if key in self._headers and key in ("host", "content-length", "transfer-encoding"):
            raise Refusal(400, f"malformed request: more than one {key} header")
        self._headers.add(key, value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        headers = self._headers
        version = self._llhttp.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refusal(505, f"HTTP version {version} is not supported")
        method = self._llhttp.get_method().decode("ascii")
        if method not in METHODS:
            raise Refusal(501, f"method {method} is not implemented")
        is_http_1_0 = version == "1.0"
        self._check_length(headers, is_http_1_0=is_http_1_0)
        if not is_http_1_0 and "host" not in headers:
            raise Refusal(400, "malformed request: missing Host header")
        target = _origin_form(self._target.decode("ascii"))
        path, _, query = target.partition("?")
        request = Request(method, target, unquote(path) if "%" in path else path, query, headers)
        request.is_http_1_0 = is_http_1_0
        if "expect" in headers and not is_http_1_0:
            if headers["expect"].lower() != "100-continue":
                raise Refusal(417, "only the expectation 100-continue is supported")
            request.expects_continue = True
        self._is_in_body = True
        self._head_wire_bytes = self._overhead_bytes = 0
        self._body_bytes = self._body_bytes_in_feed = 0
        self._sink.head_received(request)

    def on_body(self, part: bytes) -> None:
        self._body_bytes += len(part)
        self._body_bytes_in_feed += len(part)
        if self._body_bytes > self._limits.max_body_bytes:
            raise self._body_too_large()
        self._sink.body_received(part)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._has_completed = True
        self._sink.request_complete(keeps_alive=self._llhttp.should_keep_alive())

    def _reset(self) -> None:
        self._target = b""
        self._headers = Headers()
        self._head_bytes = 0
        self._field_count = 0
        self._body_bytes = 0
        self._body_bytes_in_feed = 0
        self._is_in_body = False

    # Checks.

    def _check_length(self, headers: Headers, *, is_http_1_0: bool) -> None:
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if is_http_1_0:
                raise Refusal(400, "malformed request: Transfer-Encoding in HTTP/1.0")
            if coding.lower() != "chunked":
                raise Refusal(501, "unsupported transfer encoding")
        # llhttp has verified that it is a 64-bit number.
        if int(headers.get("content-length", "0")) > self._limits.max_body_bytes:
            raise self._body_too_large()

    def _count_head(self, received: int) -> Refusal | None:
        """Bound an incomplete head, not counting its first part, whose start is unknown."""
        self._head_wire_bytes = 0 if self._has_completed else self._head_wire_bytes + received
        return _head_too_large() if self._head_wire_bytes > self._limits.max_head_bytes else None

    def _count_overhead(self, received: int) -> Refusal | None:
        if self._has_completed:
            return None
        self._overhead_bytes += received - self._body_bytes_in_feed
        allowed = CHUNK_OVERHEAD_BYTES + CHUNK_OVERHEAD_RATIO * self._body_bytes
        if self._overhead_bytes > allowed:
            return Refusal(400, "malformed request: too much chunk overhead")
        return None

    def _body_too_large(self) -> Refusal:
        return Refusal(413, f"Request entity too large: limit is {self._limits.max_body_bytes}")


_NAMES: dict[bytes, str] = {}
"""Cache of lower-case header names; decoding them was 10% of the cost of a small request."""
_MAX_NAMES: Final = 256


def _remember_name(name: bytes) -> str:
    key = name.decode("ascii").lower()
    if len(_NAMES) < _MAX_NAMES and len(name) <= 64:
        _NAMES[name] = key
    return key


def _origin_form(target: str) -> str:
    """Path and query, also for the absolute form that proxies use."""
    if target.startswith("/"):
        return target
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in ("http", "https"):
        end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        origin = rest[end:]
        return origin if origin.startswith("/") else f"/{origin}"
    raise Refusal(400, "malformed request: the request target is not a path")


def _head_too_large() -> Refusal:
    return Refusal(431, "the request's headers are too long")
