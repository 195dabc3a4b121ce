"""Every place in a tree of JSON, for tests that spoil one of them."""

from __future__ import annotations

from typing import Any


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places but the root."""
    result = [path] if path else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        result += places(inner, (*path, key))
    return result
