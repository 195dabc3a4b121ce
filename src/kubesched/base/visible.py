"""Control characters made visible: what objects hold must not steer the terminal that shows it.

An API server accepts a scheduler's name or a message with escape sequences in it, and a dump may
hold anything. `visible` is for text that goes into a line or a cell; `VisibleStream` stands in
front of everything that a command prints.
"""

from __future__ import annotations

import re
from typing import Any, Final, TextIO

_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""C0 but tab and newline, DEL and C1; and what changes the direction of text, or begins a line."""
_IN_TEXT: Final = re.compile(f"[{_CONTROLS}]")
_IN_LINE: Final = re.compile(f"[{_CONTROLS}\t\n]")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_STYLE: Final = re.compile(r"(\x1b\[[0-9;]{0,16}m)")
_ERASURE: Final = re.compile(r"\r\x1b\[2?K")


def visible(text: str) -> str:
    """The text as one line, its control characters written as escapes."""
    return text if text.isprintable() else _IN_LINE.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The same for text of several lines: tabs and newlines stay."""
    return text if text.isprintable() else _IN_TEXT.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    # Those from DEL on may stand in JSON as they are, so they are written as JSON would write them.
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}")


class VisibleStream:
    """A text stream that lets no control characters pass but those of the commands themselves.

    These are styles and, on a terminal, the erasure of a progress line at the beginning of a write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text.isprintable() or not _IN_TEXT.search(text):
            return self._stream.write(text)
        begun = _ERASURE.match(text) if self._stream.isatty() else None
        start = begun.end() if begun is not None else 0
        parts = _STYLE.split(text[start:])
        parts[::2] = [visible_lines(part) for part in parts[::2]]
        return self._stream.write("".join((text[:start], *parts)))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever else a stream has
        return getattr(self._stream, name)
