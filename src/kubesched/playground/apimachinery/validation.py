"""Rules shared by kinds: label selectors, quantities, ports, immutability."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from kubesched.api import quantity
from kubesched.api.field_errors import FieldError, forbidden, invalid, not_supported, required
from kubesched.api.names import label_key_problems, label_value_problems
from kubesched.playground.apimachinery.objects import Json, JsonObject, value_at

IS_NEGATIVE = "must be greater than or equal to 0"
IS_IMMUTABLE = "field is immutable"
_PORT_RANGE = "must be between 1 and 65535, inclusive"
_PERCENT = re.compile(r"[0-9]+%")


T = TypeVar("T")
Problems: TypeAlias = Iterable[FieldError]
"""Problems of a value, in the order in which they are reported."""


def refused(path: str, value: Json, details: Iterable[str]) -> Problems:
    """One error per detail, all for the same value."""
    return [invalid(path, value, detail) for detail in details]


def needed(path: str, value: str, problems: Callable[[str], Iterable[str]]) -> Problems:
    """Problems of a text that must be given."""
    return refused(path, value, problems(value)) if value else [required(path)]


def numbered(items: Iterable[T] | None, path: str) -> Iterator[tuple[str, T]]:
    """Items of a list, each with its path."""
    return ((f"{path}[{index}]", item) for index, item in enumerate(items or ()))


def one_of(value: str, supported: Iterable[str], path: str) -> Problems:
    """Reject a value that is not one of the supported ones."""
    choices = tuple(supported)
    return [] if value in choices else [not_supported(path, value, choices)]


def choice(obj: JsonObject, path: str, *supported: str) -> Problems:
    """`one_of` for the value at a path, if it is set."""
    value = value_at(obj, path.split("."))
    return one_of(value, supported, path) if value is not None else []


def not_negative(value: int, path: str) -> Problems:
    return [invalid(path, value, IS_NEGATIVE)] if value < 0 else []


def port_number(value: int, path: str) -> Problems:
    return [] if 1 <= value <= 65535 else [invalid(path, value, _PORT_RANGE)]


def unchanged(new: Json, old: Json, path: str) -> Problems:
    return [] if new == old else [invalid(path, new, IS_IMMUTABLE)]


def never_changes(*paths: str) -> Callable[[JsonObject, JsonObject], Problems]:
    """An update rule: these fields are immutable."""

    def validate(new: JsonObject, old: JsonObject) -> Problems:
        for path in paths:
            after, before = (value_at(obj, path.split(".")) for obj in (new, old))
            yield from unchanged(after, before, path)

    return validate


def selector_operator(requirement: JsonObject, path: str) -> Problems:
    """Problems of an operator and its number of values."""
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{path}.values", detail)
    else:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")


def label_selector(selector: JsonObject | None, path: str) -> Problems:
    if not selector:
        return
    for key, value in (selector.get("matchLabels") or {}).items():
        yield from refused(f"{path}.matchLabels", key, label_key_problems(key))
        yield from refused(f"{path}.matchLabels", value, label_value_problems(value))
    for here, expression in numbered(selector.get("matchExpressions"), f"{path}.matchExpressions"):
        key, values = expression.get("key", ""), expression.get("values") or ()
        yield from selector_operator(expression, here)
        yield from refused(f"{here}.key", key, label_key_problems(key))
        for position, value in enumerate(values):
            yield from refused(f"{here}.values[{position}]", value, label_value_problems(value))


def positive_int_or_percent(value: Json, path: str) -> Problems:
    """A non-negative number, or a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            detail = (
                "a valid percent string must be a numeric string followed by an ending '%'"
                " (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            )
            return [invalid(path, value, detail)]
        return []
    return not_negative(value, path)


def at_most_hundred_percent(value: Json, path: str) -> Problems:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def positive_quantity(raw: Json, path: str) -> Problems:
    return [] if quantity.nanos(raw) > 0 else [invalid(path, raw, "must be greater than zero")]
