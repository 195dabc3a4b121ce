"""The pod labels that a set of selectors reads.

A StatefulSet gives every pod a unique label. Unless a selector names that label, all selectors
treat these pods alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from kubesched.api.selectors import Operator, Selector

K = TypeVar("K", bound=Hashable)

ReadLabels = tuple[tuple[str, str | None], ...]
"""Labels, with their values where selectors read them."""


class LabelReaders:
    """The labels named by a changing collection of selectors."""

    __slots__ = ("_keys", "_pairs", "_whole")

    def __init__(self) -> None:
        self._pairs: Counter[tuple[str, str]] = Counter()
        """Labels that some requirement compares with this value."""
        self._keys: Counter[str] = Counter()
        """Labels whose presence some requirement tests."""
        self._whole: Counter[str] = Counter()
        """Labels of which any value may matter."""

    def add(self, selector: Selector, delta: int = 1) -> None:
        """Add a selector, or remove it with a `delta` of -1."""
        for requirement in selector.requirements:
            key = requirement.key
            match requirement.meaning:
                case Operator.IN | Operator.NOT_IN:
                    for value in dict.fromkeys(requirement.values):
                        _count(self._pairs, (key, value), delta)
                case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                    _count(self._keys, key, delta)
                case _:
                    _count(self._whole, key, delta)

    def read_of(self, labels: Mapping[str, str] | None) -> ReadLabels:
        """Equal for label sets that no selector distinguishes."""
        if not labels or not (self._pairs or self._keys or self._whole):
            return ()
        read: list[tuple[str, str | None]] = []
        for key, value in labels.items():
            if (key, value) in self._pairs or key in self._whole:
                read.append((key, value))
            elif key in self._keys:
                read.append((key, None))
        read.sort(key=lambda pair: pair[0])
        return tuple(read)


def _count(counter: Counter[K], key: K, delta: int) -> None:
    counter[key] += delta
    if not counter[key]:
        del counter[key]
