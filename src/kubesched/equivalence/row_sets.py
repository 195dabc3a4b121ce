"""Sets of rows with fast access to the n-th member.

A set is a list of bit masks, one per block of rows, with a member count per block. Adding and removing are O(1); picking
scans the block counts, so it costs nearly the same for a thousand rows and a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kubesched.snapshot.columns import Indices

BLOCK_BITS: Final = 10
BLOCK: Final = 1 << BLOCK_BITS
IN_BLOCK: Final = BLOCK - 1
_HALVES: Final = tuple(
    (width, (1 << width) - 1) for width in (1 << shift for shift in range(BLOCK_BITS - 1, -1, -1))
)


def blocks_for(rows: int) -> int:
    """How many blocks hold that many rows."""
    return (rows + BLOCK - 1) >> BLOCK_BITS


class RowSet:
    """A set of rows. Callers must not add a member twice or remove a non-member: this is not checked."""

    __slots__ = ("count", "counts", "masks")

    def __init__(self, blocks: int) -> None:
        self.count = 0
        self.masks = [0] * blocks
        self.counts = [0] * blocks

    @classmethod
    def of(cls, rows: Indices, blocks: int) -> RowSet:
        """A set of many rows at once."""
        row_set = cls(blocks)
        members = np.zeros(blocks << BLOCK_BITS, dtype=np.bool_)
        members[rows] = True
        packed = np.packbits(members, bitorder="little").tobytes()
        size = BLOCK >> 3
        for block in np.unique(rows >> BLOCK_BITS).tolist():
            mask = int.from_bytes(packed[block * size : (block + 1) * size], "little")
            row_set.masks[block] = mask
            row_set.counts[block] = mask.bit_count()
        row_set.count = len(rows)
        return row_set

    def add(self, row: int) -> None:
        block = row >> BLOCK_BITS
        self.masks[block] |= 1 << (row & IN_BLOCK)
        self.counts[block] += 1
        self.count += 1

    def remove(self, row: int) -> None:
        block = row >> BLOCK_BITS
        self.masks[block] ^= 1 << (row & IN_BLOCK)
        self.counts[block] -= 1
        self.count -= 1

    def any(self) -> int:
        """Some member of a set that is not empty."""
        for block, mask in enumerate(self.masks):
            if mask:
                return (block << BLOCK_BITS) + mask.bit_length() - 1
        raise LookupError("the set is empty")

    def rows(self) -> Indices:
        """All members, in order."""
        size = BLOCK >> 3
        packed = b"".join([mask.to_bytes(size, "little") for mask in self.masks])
        bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
        return np.flatnonzero(bits)


def nth_of(sets: Sequence[RowSet], n: int) -> int:
    """The n-th row, counted from 0 in ascending order, of the union of disjoint sets."""
    if len(sets) == 1:
        only = sets[0]
        for block, count in enumerate(only.counts):
            if n < count:
                return (block << BLOCK_BITS) + _nth_bit(only.masks[block], n)
            n -= count
    for block in range(len(sets[0].counts)):
        count = sum([row_set.counts[block] for row_set in sets])
        if n < count:
            mask = 0
            for row_set in sets:
                mask |= row_set.masks[block]
            return (block << BLOCK_BITS) + _nth_bit(mask, n)
        n -= count
    raise LookupError("there are not that many rows")


def _nth_bit(mask: int, n: int) -> int:
    at = 0
    for width, low_bits in _HALVES:
        low = mask & low_bits
        count = low.bit_count()
        if n < count:
            mask = low
        else:
            n -= count
            mask >>= width
            at += width
    return at
