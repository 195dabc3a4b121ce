"""Optional values: `optional.of(x)`, `x.?field`, `orValue`, `optMap`."""

from __future__ import annotations

from kubesched.api.cel import macros, operators, types
from kubesched.api.cel.environment import Library, Overload, member
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries.standard import form
from kubesched.api.cel.types import BOOL, DYN, INT, STRING, list_of, map_of, optional_of
from kubesched.api.cel.values import NONE, Duration, Optional, Timestamp, Uint, Value

_K, _V = types.parameter("K"), types.parameter("V")
_OPTIONAL, _LIST, _MAP = optional_of(_V), list_of(_V), map_of(_K, _V)
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
    {
        "optional.of": Overload("optional_of", (_V,), _OPTIONAL, Optional),
        "optional.ofNonZeroValue": Overload(
            "optional_ofNonZeroValue", (_V,), _OPTIONAL, _of_non_zero
        ),
        "optional.none": Overload("optional_none", (), _OPTIONAL, lambda: NONE),
        "optional.unwrap": Overload("optional_unwrap", (list_of(_OPTIONAL),), _LIST, _unwrap),
        "unwrapOpt": member("optional_unwrapOpt", (list_of(_OPTIONAL),), _LIST, _unwrap),
        "value": member("optional_value", (_OPTIONAL,), _V, _value),
        "hasValue": member(
            "optional_hasValue", (_OPTIONAL,), BOOL, lambda optional: optional.has_value
        ),
        "first": member("list_first", (_LIST,), _OPTIONAL, _first),
        "last": member("list_last", (_LIST,), _OPTIONAL, _last),
        "or": form("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, member=True),
        "orValue": form("optional_orValue_value", (_OPTIONAL, _V), _V, member=True),
        "_?._": form("select_optional_field", (DYN, STRING), _OPTIONAL),
        "_[?_]": (
            form("list_optindex_optional_int", (_LIST, INT), _OPTIONAL),
            form("optional_list_optindex_optional_int", (optional_of(_LIST), INT), _OPTIONAL),
            form("map_optindex_optional_value", (_MAP, _K), _OPTIONAL),
            form("optional_map_optindex_optional_value", (optional_of(_MAP), _K), _OPTIONAL),
        ),
        "_[_]": (
            form("optional_list_index_int", (optional_of(_LIST), INT), _OPTIONAL),
            form("optional_map_index_value", (optional_of(_MAP), _K), _OPTIONAL),
        ),
    },
    macros.OPTIONAL,
    {types.OPTIONAL_NAME: optional_of(DYN)},
)
