"""Go's 64-bit integer arithmetic, for amounts so large that it differs from Python's.

# Upstream: sums and products wrap around silently, and division drops the fraction, also below
# zero.
"""

from __future__ import annotations

from typing import Final

from kubesched.framework.nodes.columns import Ints

MIN: Final = -(2**63)
MAX: Final = 2**63 - 1


def wrap(number: int) -> int:
    return number if MIN <= number <= MAX else (number - MIN) % 2**64 + MIN


def divide(numerator: int, denominator: int) -> int:
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def quotients(numerators: Ints, denominators: Ints | int) -> Ints:
    """`divide` for columns."""
    floors = numerators // denominators
    if least(floors) < 0:
        floors += (floors < 0) & (floors * denominators != numerators)
    return floors


def least(amounts: Ints) -> int:
    """`min` of a column; `argmin` is faster."""
    return int(amounts[amounts.argmin()]) if len(amounts) else MAX
