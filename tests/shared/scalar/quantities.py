"""Resource quantities as exact fractions; overflow is not covered."""

import math
import re
from fractions import Fraction

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse(raw):
    text = raw if isinstance(raw, str) else repr(raw)
    number, suffix = re.fullmatch(r"([+-]?[0-9]*\.?[0-9]*)(.*)", text).groups()
    amount = Fraction(number.strip("+") or "0")
    if suffix in _DECIMAL:
        return amount * Fraction(10) ** _DECIMAL[suffix]
    if suffix in _BINARY:
        return amount * 2 ** _BINARY[suffix]
    assert suffix[0] in "eE", f"not a quantity: {raw!r}"
    return amount * Fraction(10) ** int(suffix[1:])


def round_up(amount):
    """Away from zero."""
    return math.ceil(amount) if amount >= 0 else math.floor(amount)


def in_units(name, amount):
    """The integer that counts for a resource: thousandths of a CPU, whole units of anything
    else.
    """
    return round_up(amount * 1000) if name == "cpu" else round_up(amount)
