"""Reads a file's contents, decompressing gzip, up to a size limit."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import BinaryIO

from kubesched.insight.state.problems import StateError

MAX_BYTES = 16 << 30
"""Maximum uncompressed size of one file, so that it cannot exhaust memory."""

_CHUNK = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b"


def unpacked(stream: BinaryIO, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """The contents of a stream in pieces, decompressed if it is gzip.

    Raises:
        StateError: the content is too large.
        EOFError, gzip.BadGzipFile, zlib.error: the compressed data is damaged or truncated.
    """
    size = 0
    for chunk in _unpacked(stream):
        size += len(chunk)
        if size > max_bytes:
            raise StateError(f"larger than {max_bytes >> 20} MiB unpacked")
        yield chunk


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    first = stream.read(_CHUNK)
    if first.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=_Pushback(first, stream)) as file:  # type: ignore[call-overload]  # only read() is needed
            while chunk := file.read(_CHUNK):
                yield chunk
    else:
        while first:
            yield first
            first = stream.read(_CHUNK)


class _Pushback:
    """A stream whose beginning was already read."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        self._first = first
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if self._first:
            part, self._first = self._first[:size], self._first[size:] if size >= 0 else b""
            return part if size >= 0 else part + self._stream.read()
        return self._stream.read(size)
