"""Progress lines of a long run."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
"""Takes a short text: what is being done right now. Called often; whoever shows it decides how much
of it.
"""


def silent(text: str) -> None:
    """For those who do not want to know."""
    del text
