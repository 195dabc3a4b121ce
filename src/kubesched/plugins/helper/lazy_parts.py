"""Parts of an object that are built on first use (`functools.cached_property`)."""

from __future__ import annotations


def close_parts(owner: object, *names: str) -> None:
    """Close the parts that were built; they are rebuilt on next use."""
    for name in names:
        part = vars(owner).pop(name, None)
        if part is not None:
            part.close()
