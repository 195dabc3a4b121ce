"""Random numbers that are drawn for every pod."""

from __future__ import annotations

from random import Random


def draw_below(random: Random, bound: int) -> int:
    """Same result as `random.randrange(bound)` for a positive bound, in a third of the time."""
    bits = bound.bit_length()
    number = random.getrandbits(bits)
    while number >= bound:
        number = random.getrandbits(bits)
    return number
