"""Kubernetes quantities: `quantity('1Gi').isGreaterThan(quantity('1G'))`."""

from __future__ import annotations

from typing import ClassVar

from kubesched.api.cel import costs
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries.conversions import succeeds
from kubesched.api.cel.types import QUANTITY, Type
from kubesched.api.quantity import (
    FORMAT_WRONG,
    MAX_INT64,
    MIN_INT64,
    Format,
    Quantity,
    QuantityError,
)
from kubesched.api.quantity import parse as parse_quantity


def _parse(text: str) -> Quantity:
    if text != text.strip():  # the API trims JSON strings, this function does not
        raise EvaluationError(FORMAT_WRONG)
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise EvaluationError(str(error)) from error


def _integer(quantity: Quantity) -> int | None:
    """The amount if Kubernetes stores it as an integer, which excludes `1000m`."""
    if quantity.is_big or quantity.scale < 0:
        return None
    whole = quantity.nanos // 10**9
    return whole if MIN_INT64 <= whole <= MAX_INT64 else None


def _as_integer(quantity: Quantity) -> int:
    value = _integer(quantity)
    if value is None:
        raise EvaluationError("cannot convert value to integer")
    return value


def _as_float(quantity: Quantity) -> float:
    try:
        return quantity.nanos / 10**9
    except OverflowError:
        return float("inf") if quantity.nanos > 0 else float("-inf")


def _compare(left: Quantity, right: Quantity) -> int:
    return (left > right) - (left < right)


class _Computed(Quantity):
    """The result of `add` or `sub`.

    Upstream: it is not accepted on the right of `==`, where only a parsed quantity is.
    """

    __slots__ = ()
    cel_type: ClassVar[Type] = QUANTITY
    comparable_type: ClassVar[type] = Quantity


def _computed(quantity: Quantity) -> Quantity:
    return _Computed(quantity.unscaled, quantity.scale, quantity.format, is_big=quantity.is_big)


def _subtract(left: Quantity, right: Quantity) -> Quantity:
    if right.unscaled == MIN_INT64 and not right.is_big:
        # Upstream: the smallest int64 is its own negative, unless the sum is too large.
        total = left + right
        if not total.is_big:
            return _computed(total)
    return _computed(left - right)


def _of_int(value: int) -> Quantity:
    return Quantity(value, 0, Format.DECIMAL_EXPONENT)


QUANTITIES = Library(
    "kubernetes.quantity",
    (
        declare("quantity(string) -> quantity", _parse),
        declare("isQuantity(string) -> bool", succeeds(_parse)),
        declare("sign(quantity) -> int", Quantity.sign),
        declare(".isGreaterThan(quantity, quantity) -> bool", lambda a, b: a > b),
        declare(".isLessThan(quantity, quantity) -> bool", lambda a, b: a < b),
        declare(".compareTo(quantity, quantity) -> int", _compare),
        declare(".asApproximateFloat(quantity) -> double", _as_float),
        declare(".asInteger(quantity) -> int", _as_integer),
        declare(".isInteger(quantity) -> bool", lambda quantity: _integer(quantity) is not None),
        declare(".add(quantity, quantity) -> quantity", lambda a, b: _computed(a + b)),
        declare(".add(quantity, int) -> quantity", lambda a, b: _computed(a + _of_int(b))),
        declare(".sub(quantity, quantity) -> quantity", _subtract),
        declare(".sub(quantity, int) -> quantity", lambda a, b: _subtract(a, _of_int(b))),
    ),
    costs=dict.fromkeys(("quantity", "isQuantity"), costs.of_first_argument),
)
