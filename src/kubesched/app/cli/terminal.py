"""Text output: colour and fitted tables on a terminal, plain columns when piped.

Machine-readable output (`-o json`, `-o yaml`) does not use this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TextIO

from kubesched.app.cli import layout
from kubesched.base.errors import FieldProblem
from kubesched.base.visible import visible

LEAST_WIDTH = 20
REDRAW_S = 0.1
"""Minimum interval between redraws of progress."""


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _width() -> int | None:
    """Columns of the terminal; None if stdout is not one."""
    return max(LEAST_WIDTH, _columns(sys.stdout)) if is_terminal() else None


def _columns(stream: TextIO) -> int:
    """Columns of the stream's terminal; $COLUMNS takes precedence, as in other programs."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() else os.get_terminal_size(stream.fileno()).columns or 80


def _is_coloured() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR")


class ProgressLine:
    """One line on stderr that is rewritten; nothing without a terminal.

    A context manager, which clears the line at its end. It has no thread, which would affect
    benchmarks.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._shown_at = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._enabled:
            self._write("")

    def show(self, text: str) -> None:
        if self._enabled and monotonic() - self._shown_at >= REDRAW_S:
            self._shown_at = monotonic()
            self._write(visible(text)[: _columns(sys.stderr) - 1])

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def heading(text: str) -> None:
    sentence(text, style=layout.BOLD)


def sentence(text: str, *, style: str = "") -> None:
    """Prints text, wrapped at words on a terminal."""
    text, width = layout.clean(text), _width()
    for line in [text] if width is None else layout.wrapped(text, width):
        print(layout.painted(line, style) if _is_coloured() else line)


def notes(texts: Iterable[str]) -> None:
    """Prints each distinct note once, after an empty line."""
    for text in dict.fromkeys(texts):
        print()
        sentence(f"note: {text}")


def still_waiting(what: str) -> None:
    """What a command that follows a cluster has not got from it yet."""
    print(visible(f"still waiting for the cluster: {what}"), file=sys.stderr, flush=True)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    indent: int = 0,
    right_from: int | None = None,
) -> None:
    """Prints aligned columns (`kubesched.app.cli.layout`)."""
    width = _width()
    lines = layout.table_lines(
        headers,
        list(rows),
        width=None if width is None else width - indent,
        right_from=right_from,
        is_coloured=_is_coloured(),
    )
    for line in lines:
        print(f"{' ' * indent}{line}".rstrip())


def section(headers: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
    """Prints a table after an empty line, or nothing if it has no rows."""
    listed = list(rows)
    if listed:
        print()
        table(headers, listed, indent=indent)


def problem_line(problem: FieldProblem, source: str) -> str:
    """One problem in compiler style: `file:line:column: path: message`."""
    return ": ".join(part for part in _problem_parts(problem, source) if part)


def _problem_parts(problem: FieldProblem, source: str) -> tuple[str, str, str]:
    place = source or "configuration"
    if problem.line is not None:
        place += f":{problem.line}:{problem.column}"
    return place, problem.path, problem.message


def problem(problem_: FieldProblem, source: str) -> None:
    """Prints a problem to stdout, coloured on a terminal."""
    styles = (layout.BOLD, layout.YELLOW, "") if _is_coloured() else ("", "", "")
    parts = zip(map(layout.clean, _problem_parts(problem_, source)), styles, strict=True)
    print(": ".join(layout.painted(part, style) for part, style in parts if part))
