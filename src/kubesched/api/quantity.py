"""Resource quantities: `500m`, `1.5Gi`, `1e3`, as Kubernetes reads, adds, rounds and prints them.

Values are exact decimals with at most nine fractional digits; rounding happens only when an integer
is extracted (`value`, `milli_value`) and goes away from zero. Records keep quantities as sent; the
functions here accept that form and cache recent results, so a known string costs a dictionary
look-up.

Kubernetes stores a quantity either as a 64-bit integer with a decimal scale ("small") or as an
arbitrary decimal ("big"). Both are exact; they differ only when an extracted integer overflows 64
bits, which happens silently there and therefore here.
"""

from __future__ import annotations

import functools
import re
from enum import Enum

from kubesched.api.meta import RawQuantity
from kubesched.base.errors import KubeschedError

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)

# The finest unit a quantity can hold is 10^-9.
_NANO = -9
_MILLI = -3

# Longest mantissa and largest exponent accepted. Upstream has no such limits and spends gigabytes
# on `1e2000000000`; no real quantity comes near these.
_MAX_DIGITS = 1000

_CACHE_SIZE = 16384


class QuantityError(KubeschedError, ValueError):
    """The text is not a quantity; the message is upstream's."""


FORMAT_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
NUMERIC_PART_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"


class Format(Enum):
    """The suffix family that a quantity was written with and is printed with."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL_SUFFIXES = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIX_OF = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}

# Looser than the expression in FORMAT_WRONG, which upstream prints but does not use.
_SCANNER = re.compile(r"([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)", re.ASCII)


class Quantity:
    """An exact amount, `unscaled * 10**scale`, that remembers its suffix family. Immutable."""

    __slots__ = ("_text", "format", "is_big", "scale", "unscaled")

    def __init__(
        self,
        unscaled: int,
        scale: int = 0,
        format: Format = Format.DECIMAL_SI,
        *,
        is_big: bool = False,
        text: str = "",
    ) -> None:
        self.unscaled = unscaled
        self.scale = scale
        self.format = format
        self.is_big = is_big
        self._text = text

    @property
    def nanos(self) -> int:
        """The exact amount in units of 10^-9, the common unit of all quantities."""
        if self.scale < _NANO:  # a sum with a zero of finer scale; the extra digits are zeros
            return self.unscaled // _power_of_ten(_NANO - self.scale)
        return self.unscaled * _power_of_ten(self.scale - _NANO)

    def value(self) -> int:
        """The amount in whole units as an int64, rounded away from zero."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """The amount in thousandths as an int64, rounded away from zero."""
        return self.scaled_value(_MILLI)

    def scaled_value(self, scale: int) -> int:
        """The amount in units of `10**scale` as an int64, rounded away from zero."""
        up = self.scale - scale
        if up < 0 and self.is_big:
            return _scale_down_big(self.unscaled, _power_of_ten(-up))
        if up <= 0:
            return low_64_bits(_divide_away_from_zero(self.unscaled, _power_of_ten(-up)))
        result = self.unscaled * _power_of_ten(up)
        if _fits(result):
            return result
        # Upstream: overflow is silent. Small amounts wrap for the powers of ten that have a
        # multiplication of their own and become 0 for the others; big ones keep the low bits, where
        # a power of ten past int64 counts as its smallest number.
        if self.is_big:
            return low_64_bits(result if up <= 18 else self.unscaled * MIN_INT64)
        return low_64_bits(result) if up in (1, 2, 3, 6, 9) else 0

    def is_zero(self) -> bool:
        return self.unscaled == 0

    def sign(self) -> int:
        return (self.unscaled > 0) - (self.unscaled < 0)

    def round_up(self, scale: int) -> Quantity:
        """This amount rounded up to multiples of `10**scale`; API defaulting uses milli."""
        if self.scale >= scale and not self.is_big:
            return self
        if self.scale >= scale:
            unscaled = self.unscaled * _power_of_ten(self.scale - scale)
        else:
            unscaled = _divide_away_from_zero(self.unscaled, _power_of_ten(scale - self.scale))
        return Quantity(unscaled, scale, self.format, is_big=self.is_big)

    def __add__(self, other: Quantity) -> Quantity:
        format = self.format if self.unscaled else other.format
        both_small = not self.is_big and not other.is_big
        if both_small and not other.unscaled:
            return Quantity(self.unscaled, self.scale, format)
        if both_small and not self.unscaled:
            return Quantity(other.unscaled, other.scale, format)
        scale = min(self.scale, other.scale)
        mine = self.unscaled * _power_of_ten(self.scale - scale)
        theirs = other.unscaled * _power_of_ten(other.scale - scale)
        stays_small = both_small and _fits(mine) and _fits(theirs) and _fits(mine + theirs)
        return Quantity(mine + theirs, scale, format, is_big=not stays_small)

    def __sub__(self, other: Quantity) -> Quantity:
        return self + -other

    def __neg__(self) -> Quantity:
        return Quantity(-self.unscaled, self.scale, self.format, is_big=self.is_big)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: Quantity) -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: Quantity) -> bool:
        return self.nanos >= other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that stays exact."""
        return self._text or _canonical(self)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


ZERO = Quantity(0, text="0")


@functools.lru_cache(maxsize=_CACHE_SIZE)
def parse(raw: RawQuantity) -> Quantity:
    """Parses a JSON string or number; raises QuantityError."""
    text = raw.strip() if isinstance(raw, str) else repr(raw)
    return _parse_text(text)


@functools.lru_cache(maxsize=_CACHE_SIZE)
def value(raw: RawQuantity) -> int:
    """`parse(raw).value()`, cached."""
    return parse(raw).value()


@functools.lru_cache(maxsize=_CACHE_SIZE)
def milli_value(raw: RawQuantity) -> int:
    """`parse(raw).milli_value()`, cached."""
    return parse(raw).milli_value()


@functools.lru_cache(maxsize=_CACHE_SIZE)
def nanos(raw: RawQuantity) -> int:
    """`parse(raw).nanos`, cached: add these where sums must be exact."""
    return parse(raw).nanos


def canonical(raw: RawQuantity) -> str:
    """The canonical form of `raw`, as Kubernetes prints it."""
    return str(parse(raw))


def _parse_text(text: str) -> Quantity:
    scanned = _SCANNER.fullmatch(text)
    if not text or scanned is None:
        raise QuantityError(FORMAT_WRONG)
    sign, zeros, integer, fraction, suffix = scanned.groups()
    if suffix in _BINARY_SUFFIXES:
        format, exponent = Format.BINARY_SI, _BINARY_SUFFIXES[suffix]
    elif suffix in _DECIMAL_SUFFIXES:
        format, exponent = Format.DECIMAL_SI, _DECIMAL_SUFFIXES[suffix]
    else:
        format, exponent = Format.DECIMAL_EXPONENT, _written_exponent(suffix)
    digits = (integer or "0") + (fraction or "")
    places = len(fraction or "")
    if len(digits) > _MAX_DIGITS:
        raise QuantityError(NUMERIC_PART_WRONG)
    mantissa = int(digits)
    if exponent > _MAX_DIGITS:
        if mantissa:
            raise QuantityError(NUMERIC_PART_WRONG)
        exponent = 0
    if sign == "-":
        mantissa = -mantissa
    if format is Format.BINARY_SI:
        fits_small = not fraction and 15 - len(digits) - exponent * 3 // 10 - 1 >= 0
        small = Quantity(mantissa << exponent, 0, format)
        reusable = abs(mantissa) & 0x07 != 0
    else:
        fits_small = len(digits) <= 18 and exponent - places >= _NANO
        small = Quantity(mantissa, exponent - places, format)
        reusable = small.scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    if fits_small:
        # Upstream: text that looks canonical is printed as it was written, which keeps `+5` and
        # `1.500`.
        small._text = text if reusable or text == "0" else ""
        return small
    if not (zeros or integer or fraction):
        raise QuantityError(NUMERIC_PART_WRONG)
    return _big_quantity(mantissa, exponent, places, format)


def _written_exponent(suffix: str) -> int:
    if len(suffix) < 2 or suffix[0] not in "eE":
        raise QuantityError(SUFFIX_WRONG)
    digits = suffix[1:].lstrip("+-")
    if not digits.isdigit() or len(digits.lstrip("0")) > 19:  # more than fits an int64
        raise QuantityError(SUFFIX_WRONG)
    exponent = (
        -int(digits.lstrip("0") or "0") if suffix[1] == "-" else int(digits.lstrip("0") or "0")
    )
    if not _fits(exponent):
        raise QuantityError(SUFFIX_WRONG)
    # Upstream: the exponent is cut down to 32 bits.
    return (exponent + 2**31) % 2**32 - 2**31


def _big_quantity(mantissa: int, exponent: int, places: int, format: Format) -> Quantity:
    """An amount too long or too fine for the small form: rounded to nano, capped when binary."""
    if format is Format.BINARY_SI:
        mantissa, scale = mantissa << exponent, -places
    else:
        scale = exponent - places
    if _NANO - scale > 2 * _MAX_DIGITS:  # far below one nano: any non-zero amount becomes one
        mantissa, scale = (mantissa > 0) - (mantissa < 0), _NANO
    elif mantissa and scale < _NANO:
        mantissa = _divide_away_from_zero(mantissa, _power_of_ten(_NANO - scale))
        scale = _NANO
    elif mantissa:
        mantissa, scale = mantissa * _power_of_ten(scale - _NANO), _NANO
    if format is Format.BINARY_SI:
        if abs(mantissa) > MAX_INT64 * _power_of_ten(-scale):
            mantissa, scale = MAX_INT64 if mantissa > 0 else -MAX_INT64, 0
        elif 0 < abs(mantissa) < _power_of_ten(-scale):
            format = Format.DECIMAL_SI
    return Quantity(mantissa, scale, format, is_big=True)


def _canonical(quantity: Quantity) -> str:
    if quantity.is_zero():
        return "0"
    if quantity.format is Format.BINARY_SI:
        whole, rest = divmod(quantity.nanos, _power_of_ten(-_NANO))
        # Small or fractional amounts would lose precision with a binary suffix.
        if rest == 0 and abs(whole) >= 1024:
            return _canonical_binary(whole)
    mantissa, exponent = quantity.unscaled, quantity.scale
    while mantissa % 10 == 0:
        mantissa, exponent = mantissa // 10, exponent + 1
    mantissa, exponent = mantissa * _power_of_ten(exponent % 3), exponent - exponent % 3
    if quantity.format is Format.DECIMAL_EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    # Upstream: past the last suffix there is none, and `1000E` is printed as `1`.
    return f"{mantissa}{_DECIMAL_SUFFIX_OF.get(exponent, '')}"


def _canonical_binary(whole: int) -> str:
    exponent = 0
    while whole % 1024 == 0:
        whole, exponent = whole // 1024, exponent + 10
    return f"{whole}{_BINARY_SUFFIX_OF.get(exponent, '')}"


@functools.lru_cache(maxsize=4 * _MAX_DIGITS)
def _power_of_ten(exponent: int) -> int:
    result: int = 10**exponent
    return result


def _divide_away_from_zero(amount: int, divisor: int) -> int:
    return -(-amount // divisor) if amount >= 0 else amount // divisor


def _scale_down_big(amount: int, divisor: int) -> int:
    # Upstream: negative big amounts are cut to 64 bits first and rounded towards positive infinity,
    # or past it. Nothing valid is negative; it only has to come out the same.
    if amount < MAX_INT64 and divisor <= 10**18:
        amount = low_64_bits(amount)
        whole = -(-amount // divisor) if amount < 0 else amount // divisor
    else:
        whole = amount // divisor
    return low_64_bits(whole + (amount % divisor != 0))


def _fits(amount: int) -> bool:
    return MIN_INT64 <= amount <= MAX_INT64


def low_64_bits(amount: int) -> int:
    """Two's complement truncation, as Go converts."""
    return (amount + 2**63) % 2**64 - 2**63
