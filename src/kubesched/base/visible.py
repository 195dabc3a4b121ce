"""Escapes control characters, so that object contents cannot control the terminal.

An API server accepts escape sequences in scheduler names and messages, and a dump may contain
anything. `visible` is for text in a line or table cell; `VisibleStream` wraps everything that a
command prints.
"""

from __future__ import annotations

import re
from typing import Any, Final, TextIO

_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""C0 except tab and newline, DEL, C1, and characters that change text direction or start a line."""
_IN_TEXT: Final = re.compile(f"[{_CONTROLS}]")
_IN_LINE: Final = re.compile(f"[{_CONTROLS}\t\n]")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_STYLE: Final = re.compile(r"(\x1b\[[0-9;]{0,16}m)")
_ERASURE: Final = re.compile(r"\r\x1b\[2?K")


def visible(text: str) -> str:
    """The text as one line, with control characters escaped."""
    return text if text.isprintable() else _IN_LINE.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Like `visible` for multi-line text: keeps tabs and newlines."""
    return text if text.isprintable() else _IN_TEXT.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    # JSON allows characters from DEL on unescaped, so they use JSON's escape form.
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}")


class VisibleStream:
    """A text stream that escapes control characters except the commands' own.

    These are styles and, on a terminal, erasing a progress line at the beginning of a write.
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
