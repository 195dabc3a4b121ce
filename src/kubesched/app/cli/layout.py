"""Text that fits a terminal: wrapped sentences, and the table layout of all commands.

Without a width (a pipe or a file), a table's row is one line. On a terminal the table fits its
width, from 60 columns up, without losing anything: the widest text column shrinks first and wraps
at words; words are broken only when no column can shrink otherwise, figures never. If even that is
too wide, the columns are printed in several bands that repeat the first column.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kubesched.base.visible import visible

GAP = 3
NARROW_GAP = 2
"""Spaces between columns: of a table that fits, and of one that must be narrowed."""
MIN_TEXT = 8
"""Minimum width of a text column."""

BOLD, DIM, CYAN, YELLOW = "1", "2", "36", "33"
"""Parameters of the terminal's escape sequences for styles."""

_FIGURE = re.compile(r"|-|[-+±<≥~]?\d\S*( (±|to|of|/) [-+]?\d\S*)*( \S{1,3})?")
_DIGITS = re.compile(r"\d(?:[\d.,]*\d)?")
_PIECE = re.compile(
    r"(?:\d[\d.,]*\d(?![a-z])|[A-Z]*[a-z0-9]+|[A-Z]+|\s+|.)[-_/.,:;=+)\]}]*", re.DOTALL
)


def clean(text: str) -> str:
    """The printable text. Every cell and sentence of every command passes through here."""
    return visible(text.replace("\n", " "))


def text_width(text: str) -> int:
    """Width of the text in terminal columns: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def painted(text: str, style: str) -> str:
    """The text in a style, which may be empty."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken at spaces, or inside long words."""
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for index, word in enumerate(text.split(" ")):
        joined = f"{lines[-1]} {word}" if index else word
        if text_width(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1].strip():
            lines.append("")
        for piece in _pieces(word, width):
            if text_width(lines[-1] + piece) > width:
                lines.append("")
            lines[-1] += piece
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    """Parts between which a word may be broken; single characters where a part is too long."""
    if text_width(word) <= width:
        yield word
        return
    for piece in _PIECE.findall(word):
        yield from [piece] if text_width(piece) <= width else piece


def table_lines(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    right_from: int | None = None,
    is_coloured: bool = False,
) -> list[str]:
    """A table's lines, header first, without trailing spaces.

    Args:
        headers: One for each column.
        rows: As many cells as there are headers.
        width: Columns of the terminal; None if rows must not be wrapped.
        right_from: Index of the first right-aligned column.
        is_coloured: Whether headers and the first column are coloured.
    """
    edge = len(headers) if right_from is None else right_from
    columns = [
        _column(clean(header), [clean(row[index]) for row in rows], is_right=index >= edge)
        for index, header in enumerate(headers)
    ]
    columns[0].style = CYAN if is_coloured else ""
    header_style = DIM if is_coloured else ""
    lines: list[str] = []
    for band in _bands(columns, width):
        lines += [""] * bool(lines)
        lines += _band_lines(band, width, header_style)
    return lines


@dataclass(slots=True)
class _Column:
    header: str
    cells: Sequence[str]
    is_right: bool
    natural: int
    """Width without wrapping."""
    word: int
    """Width without breaking a word."""
    piece: int
    """Width without breaking a part of a word."""
    least: int
    """Width without breaking a figure."""
    style: str = ""


def _column(header: str, cells: Sequence[str], *, is_right: bool) -> _Column:
    widest = max(map(text_width, cells), default=0)
    natural = max(widest, text_width(header))
    if all(map(_FIGURE.fullmatch, cells)):
        word = max(widest, _longest(header.split(" ")))
        piece = least = max(widest, _longest(_PIECE.findall(header)))
    else:
        texts = [header, *cells]
        word = max(_longest(text.split(" ")) for text in texts)
        piece = max(MIN_TEXT, *(_longest(_PIECE.findall(text)) for text in texts))
        least = max(MIN_TEXT, *(_longest(_DIGITS.findall(text)) for text in texts))
    word = min(natural, word)
    return _Column(header, cells, is_right, natural, word, min(word, piece), min(word, least))


def _longest(parts: Sequence[str]) -> int:
    return max(map(text_width, parts), default=0)


def _bands(columns: Sequence[_Column], width: int | None) -> Iterator[list[_Column]]:
    """The columns in as few bands as fit, each with the first column."""
    first, *others = columns
    gaps = NARROW_GAP * len(others)
    if width is None or sum(column.least for column in columns) + gaps <= width:
        yield list(columns)
        return
    first.least = max(first.least, min(first.word, width // 2))  # it identifies the row
    band, used = [first], first.least
    for column in others:
        needed = NARROW_GAP + column.least
        if len(band) > 1 and used + needed > width:
            yield band
            band, used = [first], first.least
        band.append(column)
        used += needed
    yield band


def _band_lines(band: Sequence[_Column], width: int | None, header_style: str) -> Iterator[str]:
    gap, widths = GAP, [column.natural for column in band]
    if width is not None and sum(widths) + GAP * (len(band) - 1) > width:
        gap, widths = NARROW_GAP, _narrowed(band, width - NARROW_GAP * (len(band) - 1))
    headers = [column.header for column in band]
    yield from _row_lines(headers, band, widths, gap, [header_style] * len(band))
    for row in zip(*(column.cells for column in band), strict=True):
        yield from _row_lines(row, band, widths, gap, [column.style for column in band])


def _narrowed(band: Sequence[_Column], room: int) -> list[int]:
    """Widths that fit, if any do: the widest column shrinks first, words are broken last."""
    widths = [min(column.natural, max(room, column.least)) for column in band]
    for floors in (
        [column.word for column in band],
        [column.piece for column in band],
        [column.least for column in band],
    ):
        while sum(widths) > room:
            can_give = [i for i, floor in enumerate(floors) if widths[i] > floor]
            if not can_give:
                break
            widths[max(can_give, key=widths.__getitem__)] -= 1
    return widths


def _row_lines(
    row: Sequence[str],
    band: Sequence[_Column],
    widths: Sequence[int],
    gap: int,
    styles: Sequence[str],
) -> Iterator[str]:
    parts = [wrapped(text, width) for text, width in zip(row, widths, strict=True)]
    for at in range(max(map(len, parts))):
        line = ""
        for column, part, width, style in zip(band, parts, widths, styles, strict=True):
            text = part[at] if at < len(part) else ""
            padding = " " * (width - text_width(text))
            shown = painted(text, style)
            line += (padding + shown if column.is_right else shown + padding) + " " * gap
        yield line.rstrip()
