"""Decodes the items of an indented JSON list while the file is read.

`kubectl get -o json` prints one List, nearly two gigabytes for 150,000 pods, more than half of it
indentation. Items begin and end on their own lines with equal indentation, so text that ends with
the line `        }` should hold whole items; the decoder verifies this.

The caller handles a wrong guess and the end of the list: `rest` is a stream of the same list
without the items already read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

PIECE_BYTES = 64 << 10
"""Text decoded at a time: small enough for the allocator to reuse its memory."""
LONGEST_ITEM = 8 << 20
"""Text of this size without the end of an item is not a list of objects."""
_BEGINNING = re.compile(
    rb'\s*\{(?:\s*"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,|\s*"metadata"\s*:\s*\{[^{}\[\]]*\}\s*,)*'
    rb'\s*"items"\s*:\s*\[(\s*\n[ \t]*)\{'
)


class StreamedList:
    """Pieces of a list, each with its items."""

    def __init__(
        self, beginning: bytes, indentation: bytes, pending: bytes, chunks: Iterator[bytes]
    ) -> None:
        self.beginning = beginning
        """The text up to and including the bracket that opens the items."""
        self.lines = _line_breaks(beginning)
        """Lines before the most recent piece."""
        self._last_line = indentation + b"}"
        self._pending = pending
        self._chunks = chunks

    @classmethod
    def begin(cls, first: bytes, chunks: Iterator[bytes]) -> StreamedList | None:
        """A list that begins with this text; None if it is not an indented list."""
        match = _BEGINNING.match(first)
        if match is None:
            return None
        indentation = match[1][match[1].rindex(b"\n") :]
        return cls(first[: match.start(1)], indentation, first[match.start(1) :], chunks)

    def pieces(self) -> Iterator[memoryview]:
        """Pieces as `[item, …]`; a piece counts as read once the next one is requested."""
        while True:
            end = self._pending.rfind(self._last_line) + len(self._last_line)
            if end >= len(self._last_line):
                yield memoryview(b"[%b]" % self._pending[:end].lstrip(b",\r"))
                self.lines += _line_breaks(self._pending[:end])
                self._pending = self._pending[end:]
            more = list(_up_to(PIECE_BYTES, self._chunks))
            if not more or len(self._pending) > LONGEST_ITEM:
                self._pending = b"".join((self._pending, *more))
                return
            self._pending = b"".join((self._pending, *more))

    def rest(self) -> Iterator[bytes]:
        """The unread items, as a list that begins like this one.

        Lines count from the first unread piece, without those of the beginning.
        """
        yield self.beginning.replace(b"\n", b" ")
        yield self._pending.lstrip(b",\r")
        yield from self._chunks


def _line_breaks(text: bytes) -> int:
    """Count line breaks; `bytes.count` takes five times as long for a single character."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _up_to(size: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        size -= len(chunk)
        if size <= 0:
            return
