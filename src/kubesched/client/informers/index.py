"""One index over a store: from a value computed per object to the keys of matching objects.

Invariant: after every change `keys_by_value` holds exactly the keys whose object's function yields
the value, in insertion order; values without keys are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]


class Index(Generic[T]):
    """Keys by value. Holds only keys, not objects."""

    __slots__ = ("_function", "_keys_by_value")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._keys_by_value: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> Iterable[str]:
        return self._keys_by_value.get(value, ())

    def values(self) -> Iterator[str]:
        """Every value that some object has."""
        return iter(self._keys_by_value)

    def change(self, key: str, old: T | None, new: T | None) -> None:
        """An object appeared (`old` is None), changed, or disappeared (`new` is None)."""
        old_values = () if old is None else tuple(self._function(old))
        new_values = () if new is None else tuple(self._function(new))
        if old_values == new_values:
            return
        for value in old_values:
            keys = self._keys_by_value.get(value)
            if keys is not None and value not in new_values:
                keys.pop(key, None)
                if not keys:
                    del self._keys_by_value[value]
        for value in new_values:
            # Most pods may be in one namespace.
            self._keys_by_value.setdefault(value, {})[key] = None
