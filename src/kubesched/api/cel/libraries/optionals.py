"""Optional values: `optional.of(x)`, `x.?field`, `orValue`, `optMap`."""

from __future__ import annotations

from kubesched.api.cel import macros, operators, types
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.values import NONE, Duration, Optional, Timestamp, Uint, Value

_ZERO_TIME = -62135596800 * operators.SECOND


def _is_zero(value: Value) -> bool:
    if value is None or isinstance(value, bool | int | float | Uint):
        return not value
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value) == 0
    if isinstance(value, Duration):
        return value.nanos == 0
    return isinstance(value, Timestamp) and value.nanos == _ZERO_TIME


def _of_non_zero(value: Value) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _value(optional: Optional) -> Value:
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _first(elements: list[Value]) -> Optional:
    return Optional(elements[0]) if elements else NONE


def _last(elements: list[Value]) -> Optional:
    return Optional(elements[-1]) if elements else NONE


def _unwrap(elements: list[Value]) -> list[Value]:
    for element in elements:
        if not isinstance(element, Optional):
            raise EvaluationError(f"value {operators.show(element)} is not optional")
    return [element.value for element in elements if element.has_value]


OPTIONALS = Library(
    "optional",
    (
        declare("optional.of(V) -> optional(V)", Optional),
        declare("optional.ofNonZeroValue(V) -> optional(V)", _of_non_zero),
        declare("optional.none() -> optional(V)", lambda: NONE),
        declare("optional.unwrap(list(optional(V))) -> list(V)", _unwrap),
        declare(".unwrapOpt(list(optional(V))) -> list(V)", _unwrap),
        declare(".value(optional(V)) -> V", _value),
        declare(".hasValue(optional(V)) -> bool", lambda optional: optional.has_value),
        declare(".first(list(V)) -> optional(V)", _first),
        declare(".last(list(V)) -> optional(V)", _last),
        declare(".or(optional(V), optional(V)) -> optional(V)", guarded=False),
        declare(".orValue(optional(V), V) -> V", guarded=False),
        declare("_?._(dyn, string) -> optional(V)", guarded=False),
        declare("_[?_](list(V), int) -> optional(V)", guarded=False),
        declare("_[?_](optional(list(V)), int) -> optional(V)", guarded=False),
        declare("_[?_](map(K, V), K) -> optional(V)", guarded=False),
        declare("_[?_](optional(map(K, V)), K) -> optional(V)", guarded=False),
        declare("_[_](optional(list(V)), int) -> optional(V)", guarded=False),
        declare("_[_](optional(map(K, V)), K) -> optional(V)", guarded=False),
    ),
    macros.OPTIONAL,
    {types.OPTIONAL_NAME: types.optional_of(types.DYN)},
)
