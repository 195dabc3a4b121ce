"""Parts of an object that are built when the first pod needs them (`functools.cached_property`)."""

from __future__ import annotations


def close_parts(owner: object, *names: str) -> None:
    """Close those parts that were built; they are built anew if needed again."""
    for name in names:
        part = vars(owner).pop(name, None)
        if part is not None:
            part.close()
