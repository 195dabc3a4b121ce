"""Text tables of this package: a line per entry, and its description indented below it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def described(path: Path) -> Iterator[tuple[str, str]]:
    """The entries of a file with their descriptions; lines that begin with `#` are left out."""
    entry, description = "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            description += f" {line.strip()}"
        elif not line.startswith("#"):
            if entry:
                yield entry, description.strip()
            entry, description = line, ""
    yield entry, description.strip()
