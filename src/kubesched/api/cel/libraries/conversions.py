"""Conversions between CEL's standard types; errors have cel-go's texts."""

from __future__ import annotations

import re
from collections.abc import Callable

from kubesched.api.cel import times, types
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import SECOND, checked_int, checked_timestamp, checked_uint
from kubesched.api.cel.types import Type
from kubesched.api.cel.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Timestamp, Uint, Value

_SIGNED = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_DECIMAL = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)",
    re.ASCII | re.IGNORECASE,
)
_HEXADECIMAL = re.compile(
    r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+", re.ASCII | re.IGNORECASE
)
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def conversion_error(source: Type, target: Type) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{source}' to '{target}'")


def succeeds(
    parse: Callable[..., object], error: type[Exception] = EvaluationError
) -> Callable[..., bool]:
    """Whether `parse` accepts its arguments: `isIP`, `isQuantity` and similar."""

    def call(*args: Value) -> bool:
        try:
            parse(*args)
        except error:
            return False
        return True

    return call


def identity(value: Value) -> Value:
    return value


def text_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise conversion_error(types.STRING, types.BOOL)


def text_to_bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def text_to_int(text: str) -> int:
    value = _integer(text, _SIGNED)
    if value is None or not MIN_INT <= value <= MAX_INT:
        raise conversion_error(types.STRING, types.INT)
    return value


def text_to_uint(text: str) -> Uint:
    value = _integer(text, _UNSIGNED)
    if value is None or value > MAX_UINT:
        raise conversion_error(types.STRING, types.UINT)
    return Uint(value)


def _integer(text: str, shape: re.Pattern[str]) -> int | None:
    if not shape.fullmatch(text):
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 20:
        return None
    return int(digits or "0") * (-1 if text.startswith("-") else 1)


def text_to_double(text: str) -> float:
    value: float | None = None
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")) and "n" not in text.lower():
            value = None  # out of range
    elif _HEXADECIMAL.fullmatch(text):
        try:
            value = float.fromhex(text)
        except OverflowError:
            value = None
    if value is None:
        raise conversion_error(types.STRING, types.DOUBLE)
    return value


def text_to_duration(text: str) -> Duration:
    duration = times.parse_duration(text)
    if duration is None:
        raise conversion_error(types.STRING, types.DURATION)
    return duration


def text_to_timestamp(text: str) -> Timestamp:
    timestamp = times.parse_timestamp(text)
    if timestamp is None:
        raise conversion_error(types.STRING, types.TIMESTAMP)
    return timestamp


def bytes_to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error


def int_to_duration(_value: int) -> Duration:
    # Upstream: declared, but not implemented.
    raise conversion_error(types.INT, types.DURATION)


def int_to_timestamp(seconds: int) -> Timestamp:
    return checked_timestamp(seconds * SECOND)


def double_to_int(value: float) -> int:
    if value != value or not MIN_INT < value < MAX_INT:
        raise EvaluationError("integer overflow")
    return checked_int(int(value))


def double_to_uint(value: float) -> Uint:
    if value != value or not 0 <= value < MAX_UINT:
        raise EvaluationError("unsigned integer overflow")
    return checked_uint(int(value))


def uint_to_int(value: Uint) -> int:
    return checked_int(int(value))
