"""Comprehensions with two variables, and `cel.bind`."""

from __future__ import annotations

from kubesched.api.cel import macros, operators, types
from kubesched.api.cel.environment import Library, Overload
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.types import map_of
from kubesched.api.cel.values import Value

_MAP = map_of(types.parameter("K"), types.parameter("V"))


def _insert(target: dict[Value, Value], key: Value, value: Value) -> dict[Value, Value]:
    """Add an entry to the map a comprehension is building, in place."""
    if operators.find_key(target, key)[1]:
        raise EvaluationError(f"insert failed: key {operators.show(key)} already exists")
    target[operators.map_key(key)] = value
    return target


def _insert_all(target: dict[Value, Value], entries: dict[Value, Value]) -> dict[Value, Value]:
    for key, value in entries.items():
        _insert(target, key, value)
    return target


TWO_VARIABLE_COMPREHENSIONS = Library(
    "two-variable comprehensions",
    {
        "cel.@mapInsert": (
            Overload("@mapInsert_map_key_value", (_MAP, *_MAP.parameters), _MAP, _insert),
            Overload("@mapInsert_map_map", (_MAP, _MAP), _MAP, _insert_all),
        )
    },
    macros.TWO_VARIABLES,
)

BINDINGS = Library("bindings", {}, macros.BIND)
