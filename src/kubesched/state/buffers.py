"""The bytes of a dump in memory that is given back while they are decoded.

A dump of 150,000 pods is nearly two gigabytes of JSON as kubectl prints it. It is read (and unpacked) into one anonymous
mapping, without the indentation, which is more than half of it; the decoder refers to parts of the mapping, and
`release` returns the pages of what has been decoded to the system. A file is copied and not mapped, because a mapped
file that is truncated by its writer would end the process.
"""

from __future__ import annotations

import gzip
import mmap
import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from kubesched.state.problems import StateError

MAX_BYTES = 16 << 30
"""Unpacked size of one file. A packed file must not fill the memory unnoticed."""

_CHUNK = 64 << 10
_FIRST = 1 << 22
_GZIP_MAGIC = b"\x1f\x8b"
_INDENTATION = re.compile(rb"\n +")


class Buffer:
    """A growing piece of memory. `view` may be called once all is written."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _FIRST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._released = 0
        self.size = 0

    def write(self, data: bytes) -> None:
        end = self.size + len(data)
        if end > len(self._map):
            self._map.resize(max(2 * len(self._map), end))
        self._map[self.size : end] = data
        self.size = end

    def view(self) -> memoryview:
        return memoryview(self._map)[: self.size].toreadonly()

    def release(self, upto: int) -> None:
        """Give back what comes before this offset; reading it again would yield zeros."""
        upto -= upto % mmap.PAGESIZE
        if upto > self._released:
            self._map.madvise(mmap.MADV_DONTNEED, self._released, upto - self._released)
            self._released = upto


def unpacked(stream: BinaryIO, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """The contents of a stream in pieces, unpacked if it is gzip.

    Raises:
        StateError: there is too much of it.
        EOFError, gzip.BadGzipFile, zlib.error: the packed data is damaged or cut short.
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


def read_all(chunks: Iterator[bytes]) -> Buffer:
    """All of them in one buffer, JSON without its indentation."""
    buffer = Buffer()
    first = next(chunks, b"")
    chunks = chain((first,), chunks)
    if first.lstrip()[:1] in (b"{", b"["):
        chunks = _without_indentation(chunks)
    for chunk in chunks:
        buffer.write(chunk)
    return buffer


def _without_indentation(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """JSON without the spaces at the beginning of lines: a string cannot contain a line break, and lines still count."""
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        cut = text.rfind(b"\n")
        if cut < 0:
            rest = b""
            yield text
        else:
            rest = text[cut:]  # its spaces may go on in the next chunk
            yield _INDENTATION.sub(b"\n", text[:cut])
    yield _INDENTATION.sub(b"\n", rest)


class _Pushback:
    """A stream whose beginning was read already."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        self._first = first
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if self._first:
            part, self._first = self._first[:size], self._first[size:] if size >= 0 else b""
            return part if size >= 0 else part + self._stream.read()
        return self._stream.read(size)
