"""Which labels of pods some selectors look at.

A StatefulSet gives every pod a label of its own. Unless a selector names that label, such pods are
alike to all selectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from kubesched.api.selectors import Operator, Selector

K = TypeVar("K", bound=Hashable)

ReadLabels = tuple[tuple[str, str | None], ...]
"""Labels, with their values where these matter."""


class LabelReaders:
    """The labels named by a changing collection of selectors."""

    __slots__ = ("_keys", "_pairs", "_whole")

    def __init__(self) -> None:
        self._pairs: Counter[tuple[str, str]] = Counter()
        """Labels that some requirement compares with this value."""
        self._keys: Counter[str] = Counter()
        """Labels whose presence matters to some requirement."""
        self._whole: Counter[str] = Counter()
        """Labels of which every value may matter."""

    def add(self, selector: Selector, delta: int = 1) -> None:
        """Take a selector in; with a `delta` of -1 take it out again."""
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
        """Equal for labels that no selector tells apart."""
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
