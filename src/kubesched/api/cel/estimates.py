"""Bounds of sizes and costs, in the saturating 64-bit arithmetic of cel-go's estimator."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MAX: Final = (1 << 64) - 1
"""Also stands for every larger amount."""


class Size(NamedTuple):
    """Bounds of a value's `size()`."""

    least: int
    most: int

    def plus(self, other: Size) -> Size:
        return Size(total(self.least, other.least), total(self.most, other.most))

    def times(self, other: Size) -> Size:
        return Size(product(self.least, other.least), product(self.most, other.most))

    def union(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = Size(0, MAX)


class Path:
    """Path into a declared variable: field names, `@items`, `@keys`, `@values`, `@indices`.

    Upstream: a path is a Go slice. Two extensions of the same path share memory while its capacity
    lasts, so the later one overwrites the last name of the earlier one, which then gets the other
    part's size.
    """

    __slots__ = ("_cells", "_length")

    def __init__(self, *names: str) -> None:
        self._cells = list(names)
        self._length = len(names)

    def then(self, name: str) -> Path:
        longer = Path()
        has_room = self._length < len(self._cells)
        longer._cells = self._cells if has_room else self._cells + [""] * max(len(self._cells), 1)
        longer._cells[self._length] = name
        longer._length = self._length + 1
        return longer

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._cells[: self._length])

    def __bool__(self) -> bool:
        return self._length > 0


def exactly(size: int) -> Size:
    return Size(size, size)


def total(*amounts: int) -> int:
    return min(sum(amounts), MAX)


def product(one: int, other: int) -> int:
    return min(one * other, MAX)


def scaled(amount: int, factor: float) -> int:
    """The product, rounded up in floating point."""
    exact = float(amount)
    if exact > 0 and factor > 0 and exact > float(MAX) / factor:
        return MAX
    rounded = math.ceil(exact * factor)
    return MAX if rounded >= 1 << 64 else rounded


def wrapped(amount: int) -> int:
    """Upstream: some sums do not saturate; they wrap around as Go's uint64 does."""
    return amount & MAX
