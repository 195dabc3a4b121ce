"""Values that are either a number or a share: `3`, `"25%"`."""

from __future__ import annotations

from kubesched.errors import BadRequest


def scaled_value(value: int | str, total: int, *, round_up: bool) -> int:
    """The number meant by `value`: itself, or that share of `total`."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if digits == value or not digits.isdecimal():
        raise BadRequest(f'expected a number or a percentage, found "{value}"')
    share = int(digits) * total
    return -(-share // 100) if round_up else share // 100


def is_percent(value: int | str | None) -> bool:
    return isinstance(value, str)
