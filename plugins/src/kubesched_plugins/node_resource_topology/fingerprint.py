"""Fingerprints of sets of pods, by which a node's agent tells which pods it counted.

A fingerprint is `pfp0v001` and the XXH64 sum, in hexadecimal, of the pods' own sums in ascending
order; a pod's sum is that of its name, with the sum of its namespace as the seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PREFIX: Final = "pfp0v001"

_MASK: Final = 2**64 - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def fingerprint_of(sums: Iterable[int]) -> str:
    data = b"".join(each.to_bytes(8, "little") for each in sorted(sums))
    return f"{PREFIX}{xxh64(data):016x}"


def pod_sum(namespace: str, name: str) -> int:
    return xxh64(name.encode(), xxh64(namespace.encode()))


def xxh64(data: bytes, seed: int = 0) -> int:
    """The 64-bit sum of the xxHash family."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(data, at, 8))
                at += 8
        sum_ = sum(_turned(lanes[lane], by) for lane, by in enumerate((1, 7, 12, 18)))
        for lane in lanes:
            sum_ = (sum_ ^ _round(0, lane)) * _P1 + _P4
    else:
        sum_ = seed + _P5
    sum_ += size
    while at + 8 <= size:
        sum_ = _turned(sum_ ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= size:
        sum_ = _turned(sum_ ^ (_word(data, at, 4) * _P1 & _MASK), 23) * _P2 + _P3
        at += 4
    for byte in data[at:]:
        sum_ = _turned(sum_ ^ (byte * _P5 & _MASK), 11) * _P1
    sum_ &= _MASK
    sum_ = (sum_ ^ sum_ >> 33) * _P2 & _MASK
    sum_ = (sum_ ^ sum_ >> 29) * _P3 & _MASK
    return sum_ ^ sum_ >> 32


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _turned(word: int, by: int) -> int:
    word &= _MASK
    return (word << by | word >> 64 - by) & _MASK


def _round(lane: int, word: int) -> int:
    return _turned(lane + word * _P2, 31) * _P1 & _MASK
