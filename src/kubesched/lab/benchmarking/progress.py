"""Progress lines of a long run."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
"""Receives a short status text. Called often; the receiver decides what to show."""


def silent(text: str) -> None:
    """Ignore progress."""
    del text
