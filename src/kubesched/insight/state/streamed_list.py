"""The items of an indented JSON list, decoded while the file is read.

`kubectl get -o json` prints one List, nearly two gigabytes for 150,000 pods, of which more than
half is indentation. Its items
begin and end on lines of their own, indented alike. So a piece of the text that ends with the line `        }` should hold
whole items; whether it does, the decoder finds out.

A wrong guess and the end of the list are left to the caller: `rest` is a stream of the same list
without the items that were read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

PIECE_BYTES = 64 << 10
"""Text that is decoded at a time: small enough that the allocator reuses its memory."""
LONGEST_ITEM = 8 << 20
"""So much text without the end of an item is not a list of objects."""
_BEGINNING = re.compile(
    rb'\s*\{(?:\s*"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,|\s*"metadata"\s*:\s*\{[^{}\[\]]*\}\s*,)*'
    rb'\s*"items"\s*:\s*\[(\s*\n[ \t]*)\{'
)


class StreamedList:
    """Pieces of a list, each as the items in it."""

    def __init__(
        self, beginning: bytes, indentation: bytes, pending: bytes, chunks: Iterator[bytes]
    ) -> None:
        self.beginning = beginning
        """The text up to and with the bracket that opens the items."""
        self.lines = _line_breaks(beginning)
        """Lines before the piece that was given last."""
        self._last_line = indentation + b"}"
        self._pending = pending
        self._chunks = chunks

    @classmethod
    def begin(cls, first: bytes, chunks: Iterator[bytes]) -> StreamedList | None:
        """A list that begins with this text; None if the text is something else, or is not indented."""
        match = _BEGINNING.match(first)
        if match is None:
            return None
        indentation = match[1][match[1].rindex(b"\n") :]
        return cls(first[: match.start(1)], indentation, first[match.start(1) :], chunks)

    def pieces(self) -> Iterator[memoryview]:
        """One piece after the other as `[item, …]`.

        A piece counts as read once the next one is asked for.
        """
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
        """What was not given, as a list that begins like this one.

        Lines count from the piece that was not given: those of the beginning are left out.
        """
        yield self.beginning.replace(b"\n", b" ")
        yield self._pending.lstrip(b",\r")
        yield from self._chunks


def _line_breaks(text: bytes) -> int:
    """`bytes.count` takes five times as long for a single character."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _up_to(size: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        size -= len(chunk)
        if size <= 0:
            return
