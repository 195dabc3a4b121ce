"""Comprehensions with two variables, and `cel.bind`."""

from __future__ import annotations

from kubesched.api.cel import macros, operators
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.values import Value


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
    (
        declare("cel.@mapInsert(map(K, V), K, V) -> map(K, V)", _insert),
        declare("cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)", _insert_all),
    ),
    macros.TWO_VARIABLES,
)

BINDINGS = Library("bindings", (), macros.BIND)
