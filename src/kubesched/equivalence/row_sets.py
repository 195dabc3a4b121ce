"""Sets of rows with fast access to the n-th member.

A set is a list of bit masks, one per block of 1,024 rows, with member counts per block and per span of 32 blocks. Adding
and removing are O(1). Picking the n-th member walks down the three levels, so it costs nearly the same for a thousand rows
and for a million:

    spans    [ 20000,  31000, 12000 ]            which span holds the n-th member
    counts   [ .., 700, 1024, 512, .. ]          which block of that span
    masks    [ .., 0b..0110, .. ]                which bit of that block
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from kubesched.snapshot.columns import Indices

BLOCK_BITS: Final = 10
BLOCK: Final = 1 << BLOCK_BITS
IN_BLOCK: Final = BLOCK - 1
_BYTES: Final = BLOCK // 8
SPAN_BITS: Final = 5
"""Binary logarithm of the number of blocks per span."""
BLOCKS_PER_SPAN: Final = 1 << SPAN_BITS
ROW_SPAN_BITS: Final = BLOCK_BITS + SPAN_BITS
"""Binary logarithm of the number of rows per span."""
_HALVES: Final = tuple((width, (1 << width) - 1) for width in (512, 256, 128))
_BITS_IN: Final = bytes([byte.bit_count() for byte in range(256)])
_PLACES: Final = tuple([bit for bit in range(8) if byte >> bit & 1] for byte in range(256))
"""Byte -> the bits that are set in it."""


def blocks_for(rows: int) -> int:
    """How many blocks hold that many rows."""
    return (rows + BLOCK - 1) >> BLOCK_BITS


class RowSet:
    """A set of rows. Callers must not add a member twice or remove a non-member: this is not checked."""

    __slots__ = ("count", "counts", "masks", "spans")

    def __init__(self, blocks: int) -> None:
        self.count = 0
        self.masks = [0] * blocks
        self.counts = [0] * blocks
        self.spans = [0] * (((blocks - 1) >> SPAN_BITS) + 1)

    @classmethod
    def of(cls, rows: Indices, blocks: int) -> RowSet:
        """A set of many rows at once, which are in ascending order."""
        row_set = cls(blocks)
        if not len(rows):
            return row_set
        first, last = int(rows[0]) >> BLOCK_BITS, int(rows[-1]) >> BLOCK_BITS
        members = np.zeros((last + 1 - first) << BLOCK_BITS, dtype=np.bool_)
        members[rows - (first << BLOCK_BITS)] = True
        packed = np.packbits(members, bitorder="little").tobytes()
        for at, block in enumerate(range(first, last + 1)):
            mask = int.from_bytes(packed[at * _BYTES : (at + 1) * _BYTES], "little")
            count = mask.bit_count()
            row_set.masks[block] = mask
            row_set.counts[block] = count
            row_set.spans[block >> SPAN_BITS] += count
        row_set.count = len(rows)
        return row_set

    def copy(self) -> RowSet:
        twin = RowSet.__new__(RowSet)
        twin.count = self.count
        twin.masks, twin.counts = self.masks.copy(), self.counts.copy()
        twin.spans = self.spans.copy()
        return twin

    def add(self, row: int) -> None:
        block = row >> BLOCK_BITS
        self.masks[block] |= 1 << (row & IN_BLOCK)
        self.counts[block] += 1
        self.spans[row >> ROW_SPAN_BITS] += 1
        self.count += 1

    def remove(self, row: int) -> None:
        block = row >> BLOCK_BITS
        self.masks[block] ^= 1 << (row & IN_BLOCK)
        self.counts[block] -= 1
        self.spans[row >> ROW_SPAN_BITS] -= 1
        self.count -= 1

    def any(self) -> int:
        """Some member of a set that is not empty."""
        return self.nth(0)

    def nth(self, n: int) -> int:
        """The n-th member in ascending order, counted from 0."""
        block, counts = 0, self.counts
        for count in self.spans:
            if n < count:
                break
            n -= count
            block += BLOCKS_PER_SPAN
        else:
            raise LookupError("there are not that many rows")
        while n >= (count := counts[block]):
            n -= count
            block += 1
        return (block << BLOCK_BITS) + _nth_bit(self.masks[block], n)

    def rows(self) -> Indices:
        """All members, in order."""
        size = BLOCK >> 3
        packed = b"".join([mask.to_bytes(size, "little") for mask in self.masks])
        bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
        return np.flatnonzero(bits)


def nth_of(sets: Sequence[RowSet], n: int, flipped: Iterable[int] = ()) -> int:
    """The n-th row, counted from 0 in ascending order, of the union of disjoint sets.

    Without those of its members, and with those other rows, that are `flipped`.
    """
    if len(sets) == 1 and not flipped:
        return sets[0].nth(n)
    bits: dict[int, int] = {}
    for row in flipped:
        block = row >> BLOCK_BITS
        bits[block] = bits.get(block, 0) ^ 1 << (row & IN_BLOCK)
    masks: dict[int, int] = {}
    more: dict[int, int] = {}
    """Block -> members more than the sets have, and the same under ~span."""
    for block, changed in bits.items():
        before = 0
        for row_set in sets:
            before |= row_set.masks[block]
        masks[block] = before ^ changed
        more[block] = masks[block].bit_count() - before.bit_count()
        span = ~(block >> SPAN_BITS)
        more[span] = more.get(span, 0) + more[block]
    for span in range(len(sets[0].spans)):
        count = sum([row_set.spans[span] for row_set in sets]) + more.get(~span, 0)
        if n < count:
            break
        n -= count
    else:
        raise LookupError("there are not that many rows")
    block = span << SPAN_BITS
    while True:
        count = sum([row_set.counts[block] for row_set in sets]) + more.get(block, 0)
        if n < count:
            break
        n -= count
        block += 1
    mask = masks.get(block, 0)
    if block not in masks:
        for row_set in sets:
            mask |= row_set.masks[block]
    return (block << BLOCK_BITS) + _nth_bit(mask, n)


def _nth_bit(mask: int, n: int) -> int:
    """The n-th bit that is set in a block: by halves down to 16 bytes, then by bytes."""
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
    bits = mask.to_bytes(16, "little")
    totals = [*accumulate(bits.translate(_BITS_IN))]
    byte = bisect_right(totals, n)
    return at + 8 * byte + _PLACES[bits[byte]][n - totals[byte]]
