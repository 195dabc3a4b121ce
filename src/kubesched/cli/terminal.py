"""Output for people: colour and fitted tables on a terminal, plain columns when piped.

Machine-readable output (`-o json`, `-o yaml`) never goes through here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from kubesched.errors import FieldProblem
from kubesched.visible import visible, visible_lines


def is_terminal() -> bool:
    """Whether a person is likely to be looking at stdout."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """One line on stderr that is rewritten; nothing unless a terminal shows it."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled and sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._enabled:
            sys.stderr.write(f"\r\x1b[K{visible(text)}")
            sys.stderr.flush()

    def clear(self) -> None:
        self.show("")


def heading(text: str) -> None:
    text = visible(text)
    if is_terminal():
        _rich_print(f"[bold]{_escape(text)}[/bold]")
    else:
        print(text)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
    """Prints aligned columns; on a terminal the last one wraps to fit."""
    listed = [[visible(cell) for cell in row] for row in rows]
    if is_terminal():
        _rich_table(headers, listed, indent)
        return
    widths = [max(len(row[i]) for row in [headers, *listed]) for i in range(len(headers))]
    for row in [headers, *listed]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print((" " * indent + "   ".join(cells)).rstrip())


def problem_line(problem: FieldProblem, source: str) -> str:
    """One problem as compilers print them: `file:line:column: path: message`."""
    place = source or "configuration"
    if problem.line is not None:
        place += f":{problem.line}:{problem.column}"
    path = f"{problem.path}: " if problem.path else ""
    return visible_lines(f"{place}: {path}{problem.message}")


def problem(problem_: FieldProblem, source: str) -> None:
    """Prints a problem to stdout, its parts coloured on a terminal."""
    if not is_terminal():
        print(problem_line(problem_, source))
        return
    place, _, rest = problem_line(problem_, source).partition(": ")
    path = f"[yellow]{_escape(problem_.path)}[/yellow]: " if problem_.path else ""
    message = rest.removeprefix(f"{problem_.path}: ")
    _rich_print(f"[bold]{_escape(place)}[/bold]: {path}{_escape(message)}")


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], indent: int) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for index, header in enumerate(headers):
        last = index == len(headers) - 1
        shown.add_column(header, no_wrap=not last, overflow="fold", style=None if index else "cyan")
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(Padding(shown, (0, 0, 0, indent)))


def _rich_print(markup: str) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(markup)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
