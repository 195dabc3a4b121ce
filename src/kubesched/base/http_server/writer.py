"""Response heads and chunks as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus

from kubesched.base.clock import Clock
from kubesched.base.http_server.messages import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

# Go's wording where Python's differs.
_REASONS = {
    413: "Request Entity Too Large",
    414: "Request URI Too Long",
    422: "Unprocessable Entity",
}
_STATUS_LINES = {
    status.value: (
        f"HTTP/1.1 {status.value} {_REASONS.get(status.value, status.phrase)}\r\n"
    ).encode()
    for status in HTTPStatus
}


class DateHeader:
    """The Date header, formatted once per second."""

    __slots__ = ("_clock", "_line", "_second")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        second = int(self._clock.now())
        if second != self._second:
            self._second = second
            self._line = f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


def head(response: Response, date: bytes, *, keeps_alive: bool, is_http_1_0: bool = False) -> bytes:
    """Status line and headers.

    A stream is chunked, or ends with the connection for an HTTP/1.0 client.
    """
    status = response.status
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status]
    lines.append(b"Content-Type: %b\r\n" % response.content_type.encode("latin-1"))
    if response.headers:
        lines.append(_fields(response.headers))
    if response.stream is None:
        lines.append(b"Content-Length: %d\r\n" % len(response.body))
    elif not is_http_1_0:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    lines.append(date)
    if not keeps_alive:
        lines.append(b"Connection: close\r\n\r\n")
    else:
        lines.append(b"Connection: keep-alive\r\n\r\n" if is_http_1_0 else b"\r\n")
    return b"".join(lines)


def _fields(headers: Mapping[str, str]) -> bytes:
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        # Otherwise a value taken from a request could inject headers or a whole response.
        text = "".join([f"{_one_line(name)}: {_one_line(headers[name])}\r\n" for name in headers])
    return text.encode("latin-1", "replace")


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
