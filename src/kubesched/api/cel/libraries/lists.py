"""List functions: Kubernetes' own, and CEL's extended lists, version 3."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kubesched.api.cel import costs, macros, operators, types
from kubesched.api.cel.environment import CallCost, Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import Cancelled
from kubesched.api.cel.values import Duration, Uint, Value

_ZEROS: dict[str, Value] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")

# -- Kubernetes ------------------------------------------------------------------------------------


def _is_sorted(elements: list[Value]) -> bool:
    return not any(_order(left, right) > 0 for left, right in itertools.pairwise(elements))


def _order(left: Value, right: Value) -> int:
    # Upstream: elements that cannot be compared are taken as being in order.
    try:
        return operators.compare(left, right)
    except EvaluationError:
        return 0


def _sum(start: Value) -> Callable[[list[Value]], Value]:
    def call(elements: list[Value]) -> Value:
        total = start
        for element in elements:
            total = operators.add(total, element)
        return total

    return call


def _extreme(name: str, preferred: int) -> Callable[[list[Value]], Value]:
    def call(elements: list[Value]) -> Value:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        best = elements[0]
        for element in elements[1:]:
            if _order(element, best) == preferred:
                best = element
        return best

    return call


def _index_of(elements: list[Value], element: Value) -> int:
    for index, candidate in enumerate(elements):
        if operators.equals(candidate, element):
            return index
    return -1


def _last_index_of(elements: list[Value], element: Value) -> int:
    index = _index_of(elements[::-1], element)
    return len(elements) - 1 - index if index >= 0 else -1


def _includes(target: Value, element: Value) -> bool:
    elements = target if isinstance(target, list) else [target]
    return _index_of(elements, element) >= 0


INCLUDES = Library(
    "kubernetes.lists.includes",
    (declare(".includes(dyn, dyn) -> bool", _includes),),
    costs={"includes": costs.of_whole_tree},
)
"""New in 1.37; API servers of 1.37 do not accept it in new expressions yet."""

KUBERNETES_LISTS = Library(
    "kubernetes.lists",
    (
        *(declare(f".isSorted(list({of})) -> bool", _is_sorted) for of in _COMPARABLE),
        *(declare(f".sum(list({of})) -> {of}", _sum(zero)) for of, zero in _ZEROS.items()),
        *(declare(f".max(list({of})) -> {of}", _extreme("max", 1)) for of in _COMPARABLE),
        *(declare(f".min(list({of})) -> {of}", _extreme("min", -1)) for of in _COMPARABLE),
        declare(".indexOf(list(A), A) -> int", _index_of),
        declare(".lastIndexOf(list(A), A) -> int", _last_index_of),
    ),
    costs=dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), costs.of_whole_tree
    ),
)

# -- extended --------------------------------------------------------------------------------------


def _slice(elements: list[Value], start: int, end: int) -> list[Value]:
    problem = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        raise EvaluationError(f"{problem}negative indexes not supported")
    if start > end:
        raise EvaluationError(f"{problem}start index must be less than or equal to end index")
    if len(elements) < end:
        raise EvaluationError(f"{problem}list is length {len(elements)}")
    return list(elements[start:end])


def _flatten(elements: Value, depth: Value = 1) -> list[Value]:
    if not isinstance(elements, list | tuple):
        raise EvaluationError(f"no such overload: {types.LIST}.flatten()")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Value] = []
    # A list can contain another many times over, so visited elements count, not kept ones.
    budget = operators.MAX_VISITS
    stack = [(iter(elements), depth)]
    while stack:
        iterator, level = stack[-1]
        for element in iterator:
            budget -= 1
            if budget < 0:
                raise Cancelled
            if level > 0 and isinstance(element, list | tuple):
                stack.append((iter(element), level - 1))
                break
            flat.append(element)
        else:
            stack.pop()
    return flat


def _range(count: int) -> list[int]:
    operators.checked_size(count)
    return list(range(count))


def _distinct(elements: list[Value]) -> list[Value]:
    operators.checked_size(len(elements) ** 2)  # the cost is twice that
    kept: list[Value] = []
    texts: set[str] = set()
    for element in elements:
        if isinstance(element, str):
            if element not in texts:
                texts.add(element)
                kept.append(element)
            continue
        if not any(operators.equals(element, other) for other in kept):
            kept.append(element)
    return kept


class _SortKey:
    """Orders values as CEL compares them."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __lt__(self, other: _SortKey) -> bool:
        return operators.compare(self.value, other.value) < 0


def _sort_by(elements: Value, keys: Value) -> list[Value]:
    if not isinstance(elements, list | tuple) or not isinstance(keys, list | tuple):
        raise EvaluationError("no such overload: @sortByAssociatedKeys")
    if len(elements) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys "
            f"list, but got {len(elements)} and {len(keys)} elements respectively"
        )
    if not keys:
        return list(elements)
    if not operators.is_comparable(keys[0]):
        raise EvaluationError("list elements must be comparable")
    if len(keys) > 1 and any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    order = sorted(range(len(keys)), key=lambda index: _SortKey(keys[index]))
    return [elements[index] for index in order]


def _sort(elements: Value) -> list[Value]:
    if not isinstance(elements, list | tuple):
        raise operators.unsupported("sort", elements)
    return _sort_by(elements, elements)


def _compares(argument: int) -> CallCost:
    return lambda args, _result: costs.self_comparison(args[argument])


EXTENDED_LISTS = Library(
    "lists",
    (
        declare(".slice(list(T), int, int) -> list(T)", _slice, cost=costs.of_new_list),
        declare(
            ".flatten(list(list(T))) -> list(T)", _flatten, cost=costs.of_flatten, guarded=False
        ),
        declare(
            ".flatten(list(dyn), int) -> list(dyn)", _flatten, cost=costs.of_flatten, guarded=False
        ),
        *(
            declare(f".sort(list({of})) -> list({of})", _sort, cost=_compares(0), guarded=False)
            for of in _COMPARABLE
        ),
        *(
            declare(
                f".@sortByAssociatedKeys(list(T), list({of})) -> list(T)",
                _sort_by,
                cost=_compares(1),
                guarded=False,
            )
            for of in _COMPARABLE
        ),
        declare("lists.range(int) -> list(int)", _range, cost=costs.of_new_list),
        declare(".reverse(list(T)) -> list(T)", lambda it: list(it[::-1]), cost=costs.of_new_list),
        declare(".distinct(list(T)) -> list(T)", _distinct, cost=_compares(0)),
    ),
    macros.SORT_BY,
)
