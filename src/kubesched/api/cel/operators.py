"""Operators on values of any type, and their errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import ClassVar

from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.types import LIST, Type
from kubesched.api.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    Duration,
    Optional,
    Timestamp,
    Uint,
    Value,
    type_of,
)

MAX_SIZE = 10_000_000
"""Longest string or list an operation may build.

Longer ones count as exceeding the cost limit: merely reading one costs more than any limit
Kubernetes sets.
"""

MAX_VISITS = 1_000_000
"""Elements one operation may visit inside nested lists and maps.

A list can contain another many times over, so it can have far more parts than it cost to build;
more count as exceeding the cost limit.
"""

_MIN_SECONDS = -62135596800
_MAX_SECONDS = 253402300799
SECOND = 1_000_000_000


class Cancelled(Exception):
    """Ends evaluation at once: unlike an EvaluationError, it is never absorbed.

    Without a text, the reason is the cost.
    """


def no_such_overload() -> EvaluationError:
    return EvaluationError("no such overload")


def unsupported(function: str, operand: Value) -> EvaluationError:
    """The receiver does not support the function.

    Upstream: the name is missing for types that could have had methods.
    """
    if type(operand) in (str, Duration, Timestamp):
        return no_such_overload()
    return EvaluationError(f"no such overload: {function}")


# -- equality --------------------------------------------------------------------------------------

_PLAIN = frozenset((str, bool, bytes))
_NUMBERS = frozenset((int, float, Uint))


def equal(left: Value, right: Value) -> bool:
    """Equality across types; raises EvaluationError for opaque values of different types."""
    left_type, right_type = type(left), type(right)
    if left_type in _NUMBERS:
        return right_type in _NUMBERS and bool(left == right)
    if left_type in _PLAIN:
        return left_type is right_type and bool(left == right)
    if left is None or right is None:
        return left is right
    return _equal_parts(left, right, [MAX_VISITS])


def _equal_parts(left: Value, right: Value, budget: list[int]) -> bool:
    """Equality of aggregates. The budget bounds lists that contain each other many times."""
    if isinstance(left, list | tuple):
        if not isinstance(right, list | tuple) or len(left) != len(right):
            return False
        _spend(budget, len(left))
        return all(_equal_or_error(a, b, budget) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        _spend(budget, len(left))
        for key, value in left.items():
            other, exists = find_key(right, key)
            if not exists or not _equal_or_error(value, other, budget):
                return False
        return True
    if isinstance(left, Optional):
        if not isinstance(right, Optional):
            return False
        if not left.has_value or not right.has_value:
            return left.has_value is right.has_value
        return _equal_element(left.value, right.value, budget)
    if isinstance(left, Type):
        return isinstance(right, Type) and left.name == right.name
    if isinstance(left, Duration | Timestamp):
        return bool(left == right)
    if type(right) is not getattr(left, "comparable_type", type(left)):
        raise no_such_overload()
    return bool(left == right)


def _equal_element(left: Value, right: Value, budget: list[int]) -> bool:
    if isinstance(left, list | tuple | dict | Optional):
        return _equal_parts(left, right, budget)
    return equal(left, right)


def _equal_or_error(left: Value, right: Value, budget: list[int]) -> bool:
    # Upstream: elements that cannot be compared do not make aggregates different.
    try:
        return _equal_element(left, right, budget)
    except EvaluationError:
        return True


def equals(left: Value, right: Value) -> bool:
    """Equality where incomparable values are just different: `in`, `indexOf`, `distinct`."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


def _spend(budget: list[int], amount: int) -> None:
    budget[0] -= amount
    if budget[0] < 0:
        raise Cancelled


# -- order -----------------------------------------------------------------------------------------


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; raises EvaluationError if the values have no order."""
    left_type, right_type = type(left), type(right)
    if left_type in _NUMBERS:
        if right_type not in _NUMBERS:
            raise no_such_overload()
        if left != left or right != right:
            raise EvaluationError("NaN values cannot be ordered")
        if left_type is not right_type and float in (left_type, right_type):
            left, right = _as_doubles(left, right)
    elif left_type is not right_type:
        raise no_such_overload()
    elif left_type is Duration or left_type is Timestamp:
        left, right = left.nanos, right.nanos
    elif left_type is str:
        if left != right and not (left.isascii() and right.isascii()):
            left, right = left.encode(errors="replace"), right.encode(errors="replace")
    elif left_type not in _PLAIN:
        raise no_such_overload()
    return int(left > right) - int(left < right)


def _as_doubles(left: Value, right: Value) -> tuple[Value, Value]:
    """Upstream compares an integer with a double as doubles, unless the double is out of range."""
    for number, double in ((left, right), (right, left)):
        if type(double) is float and type(number) is not float:
            low, high = (0, MAX_UINT) if type(number) is Uint else (MIN_INT, MAX_INT)
            if low <= double <= high:
                return float(left), float(right)
    return left, right


_COMPARABLE = frozenset((bool, bytes, float, Duration, int, str, Timestamp, Uint))


def is_comparable(value: Value) -> bool:
    return type(value) in _COMPARABLE


def _ordered(function: str, test: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    def operation(left: Value, right: Value) -> bool:
        if type(left) not in _COMPARABLE:
            raise unsupported(function, left)
        return test(compare(left, right))

    return operation


less = _ordered("_<_", lambda order: order < 0)
less_equals = _ordered("_<=_", lambda order: order <= 0)
greater = _ordered("_>_", lambda order: order > 0)
greater_equals = _ordered("_>=_", lambda order: order >= 0)


# -- arithmetic ------------------------------------------------------------------------------------


def checked_int(value: int) -> int:
    if MIN_INT <= value <= MAX_INT:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= MAX_UINT:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def checked_timestamp(nanos: int, offset_seconds: int = 0) -> Timestamp:
    if not _MIN_SECONDS <= nanos // SECOND <= _MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos, offset_seconds)


def checked_size(size: int) -> None:
    """Rejects a string or list of that size."""
    if size > MAX_SIZE:
        raise Cancelled


class MutableList(list[Value]):
    """The list that a comprehension builds: adding to it extends it."""

    __slots__ = ()
    cel_type: ClassVar[Type] = LIST


def add(left: Value, right: Value) -> Value:
    left_type, right_type = type(left), type(right)
    if left_type is MutableList:
        if not isinstance(right, list | tuple):
            raise no_such_overload()
        left.extend(right)
        return left
    if left_type is int and right_type is int:
        return checked_int(left + right)
    if left_type is str and right_type is str:
        checked_size(len(left) + len(right))
        return left + right
    if left_type is Timestamp and right_type is Duration:
        return checked_timestamp(left.nanos + right.nanos, left.offset_seconds)
    if left_type is Duration and right_type is Timestamp:
        return checked_timestamp(left.nanos + right.nanos, right.offset_seconds)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        checked_size(len(left) + len(right))
        return [*left, *right]
    if left_type is bytes and right_type is bytes:
        checked_size(len(left) + len(right))
        return left + right
    return _arithmetic("_+_", left, right, lambda a, b: a + b)


def subtract(left: Value, right: Value) -> Value:
    if type(left) is Timestamp:
        if type(right) is Duration:
            return checked_timestamp(left.nanos - right.nanos, left.offset_seconds)
        if type(right) is Timestamp:
            return Duration(checked_int(left.nanos - right.nanos))
    return _arithmetic("_-_", left, right, lambda a, b: a - b)


def multiply(left: Value, right: Value) -> Value:
    return _arithmetic("_*_", left, right, lambda a, b: a * b)


_ARITHMETIC = {
    "_+_": frozenset((int, Uint, float, Duration, Timestamp, str, bytes, list, tuple)),
    "_-_": frozenset((int, Uint, float, Duration, Timestamp)),
    "_*_": frozenset((int, Uint, float)),
    "_/_": frozenset((int, Uint, float)),
    "_%_": frozenset((int, Uint)),
}


def _arithmetic(
    function: str, left: Value, right: Value, operate: Callable[[Value, Value], Value]
) -> Value:
    kind = type(left)
    if kind not in _ARITHMETIC[function]:
        raise unsupported(function, left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is int:
        return checked_int(operate(left, right))
    if kind is Uint:
        return checked_uint(operate(int(left), int(right)))
    if kind is Duration:
        return Duration(checked_int(operate(left.nanos, right.nanos)))
    if kind is float:
        return operate(left, right)
    raise no_such_overload()


def divide(left: Value, right: Value) -> Value:
    if type(left) is float and type(right) is float:
        return _divide_doubles(left, right)
    return _arithmetic("_/_", left, right, _truncated_division)


def modulo(left: Value, right: Value) -> Value:
    return _arithmetic("_%_", left, right, _truncated_remainder)


def _truncated_division(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _truncated_remainder(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == MIN_INT and right == -1:
        raise EvaluationError("integer overflow")
    remainder = abs(left) % abs(right)
    return remainder if left >= 0 else -remainder


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return math.nan
    return math.inf if (math.copysign(1, left) > 0) is (math.copysign(1, right) > 0) else -math.inf


def negate(operand: Value) -> Value:
    kind = type(operand)
    if kind is int:
        return checked_int(-operand)
    if kind is float:
        return -operand
    if kind is Duration:
        return Duration(checked_int(-operand.nanos))
    if kind is bool:
        raise no_such_overload()
    raise unsupported("-_", operand)


def logical_not(operand: Value) -> bool:
    if operand is True:
        return False
    if operand is False:
        return True
    raise no_such_overload()


# -- aggregates ------------------------------------------------------------------------------------


def find_key(mapping: dict[Value, Value], key: Value) -> tuple[Value, bool]:
    """The value of a key; numbers of different types are the same key, but `true` is not 1."""
    kind = type(key)
    if kind is str:
        if key in mapping:
            return mapping[key], True
    elif (kind in _NUMBERS or kind is bool) and key in mapping:
        for stored in mapping:
            if stored == key and (type(stored) is bool) is (kind is bool):
                return mapping[stored], True
    return None, False


def map_key(key: Value) -> Value:
    """A key as stored in maps; raises EvaluationError for aggregates."""
    if isinstance(key, list | tuple | dict):
        raise EvaluationError(f"unsupported key type: {type_of(key).name}")
    return key


def contains(element: Value, container: Value) -> bool:
    if isinstance(container, list | tuple):
        return any(equals(element, member) for member in container)
    if isinstance(container, dict):
        return find_key(container, element)[1]
    raise no_such_overload()


def size(value: Value) -> int:
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value)
    measure: Callable[[], int] | None = getattr(value, "size", None)
    if measure is None:
        raise unsupported("size", value)
    return measure()


def list_index(index: Value) -> int:
    """An index into a list from a number of any type."""
    if type(index) is int:
        return index
    if type(index) is Uint and index <= MAX_INT:
        return int(index)
    if type(index) is float and index.is_integer() and MIN_INT <= index <= MAX_INT:
        return int(index)
    if type(index) in _NUMBERS:
        raise EvaluationError(f"unsupported index value {show(index)} in list")
    raise EvaluationError(f"unsupported index type '{type_of(index).name}' in list")


# -- showing ---------------------------------------------------------------------------------------


def show(value: Value) -> str:
    """A value in an error message, as Go's `%v` prints it."""
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float):
        return show_double(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{show(k)}: {show(v)}' for k, v in value.items())}}}"
    if value is None:
        return "0"
    return str(value)


_GO_TYPES = {
    "bool": "types.Bool",
    "bytes": "types.Bytes",
    "double": "types.Double",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "int": "types.Int",
    "list": "*types.baseList",
    "map": "*types.baseMap",
    "null_type": "types.Null",
    "optional_type": "*types.Optional",
    "string": "types.String",
    "type": "*types.Type",
    "uint": "types.Uint",
}


def go_type(value: Value) -> str:
    """cel-go's type of a value, which some of its messages name."""
    name = type_of(value).name
    return _GO_TYPES.get(name, f"cel.{name.rpartition('.')[2]}")


def show_double(value: float) -> str:
    """Like Go's `%g`, with the shortest digits that read back the same."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    shortest = _shortest(value)
    if -4 <= shortest.adjusted() < 6:
        return format(shortest, "f")
    digits, sign, exponent = re.split("([+-])", f"{shortest:e}".removeprefix("-"))
    return f"{'-' if value < 0 else ''}{digits}{sign}{int(exponent):02d}"


def show_positional(value: float) -> str:
    """The shortest digits that read back the same, without an exponent."""
    return format(_shortest(value), "f")


def _shortest(value: float) -> Decimal:
    return Decimal(repr(value)).normalize()
