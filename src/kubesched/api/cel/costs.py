"""Evaluation costs, in the units of cel-go and Kubernetes' cost estimator."""

from __future__ import annotations

import math

from kubesched.api.cel.operators import MAX_VISITS, Cancelled
from kubesched.api.cel.values import Optional, Value

STRING_FACTOR = 0.1
REGEX_FACTOR = 0.25
LIST_CREATE = 10
MAP_CREATE = 30


def traversal(size: int) -> int:
    """Cost of reading a string of that size.

    Rounding follows floating point: 30 characters cost 4, since 30 * 0.1 is slightly above 3.
    """
    return math.ceil(size * STRING_FACTOR)


def actual_size(value: Value) -> int:
    """Characters of a string, elements of an aggregate; 1 for everything else."""
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value)
    if isinstance(value, Optional):
        return actual_size(value.value) if value.has_value else 1
    measure = getattr(value, "size", None)
    return 1 if measure is None else int(measure())


def of_first_argument(args: tuple[Value, ...], _result: Value) -> int:
    return traversal(actual_size(args[0]))


def of_first_argument_twice(args: tuple[Value, ...], _result: Value) -> int:
    return math.ceil(actual_size(args[0]) * 2 * STRING_FACTOR)


def of_shorter_argument(args: tuple[Value, ...], _result: Value) -> int:
    return traversal(min(actual_size(args[0]), actual_size(args[1])))


def of_both_arguments(args: tuple[Value, ...], _result: Value) -> int:
    return traversal(actual_size(args[0]) + actual_size(args[1]))


def of_list(args: tuple[Value, ...], _result: Value) -> int:
    """Cost of searching the list in the second argument."""
    return actual_size(args[1])


def of_contains(args: tuple[Value, ...], _result: Value) -> int:
    return traversal(actual_size(args[0])) * traversal(actual_size(args[1]))


def regex(text_size: int, pattern_size: int) -> int:
    text_cost = math.ceil((1.0 + text_size) * STRING_FACTOR)
    return text_cost * math.ceil(pattern_size * REGEX_FACTOR)


def of_regex(args: tuple[Value, ...], _result: Value) -> int:
    return regex(actual_size(args[0]), actual_size(args[1]))


def of_join(_args: tuple[Value, ...], result: Value) -> int:
    return math.ceil(actual_size(result) * 2 * STRING_FACTOR)


def constant(_args: tuple[Value, ...], _result: Value) -> int:
    return 1


def of_whole_tree(args: tuple[Value, ...], _result: Value) -> int:
    """Cost of visiting everything inside the first argument."""
    return _tree(args[0], [MAX_VISITS])


def _tree(value: Value, budget: list[int]) -> int:
    if isinstance(value, str):
        return int(len(value.encode(errors="replace")) * STRING_FACTOR)
    if isinstance(value, bytes):
        return int(len(value) * STRING_FACTOR)
    if isinstance(value, list | tuple | dict):
        budget[0] -= len(value)
        if budget[0] < 0:
            raise Cancelled
        if isinstance(value, dict):
            return sum(_tree(k, budget) + _tree(v, budget) for k, v in value.items())
        return sum(_tree(element, budget) for element in value)
    return 1


def allocating(factor: float, size: int) -> int:
    """Cost of a call that visits `size` elements `factor` times and builds a list."""
    return int(size * factor) + 1 + LIST_CREATE


def of_new_list(_args: tuple[Value, ...], result: Value) -> int:
    return allocating(1, actual_size(result))


def of_flatten(args: tuple[Value, ...], _result: Value) -> int:
    depth = float(args[1]) if len(args) == 2 and type(args[1]) is int else 1.0
    return allocating(depth, actual_size(args[0]))


def self_comparison(elements: Value) -> int:
    """Cost of comparing every element with every other."""
    if not isinstance(elements, list | tuple):
        # Upstream: charging for an argument that failed ends the whole evaluation.
        raise Cancelled(
            "internal error: interface conversion: *types.Err is not traits.Lister: "
            "missing method Add"
        )
    size = len(elements)
    factor = 2.0
    if size and isinstance(elements[0], str | bytes):
        factor += STRING_FACTOR
    return allocating(factor, size * size)
