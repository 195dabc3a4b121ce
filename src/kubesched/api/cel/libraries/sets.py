"""Lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`."""

from __future__ import annotations

from kubesched.api.cel import costs, operators, types
from kubesched.api.cel.environment import CallCost, Library, Overload
from kubesched.api.cel.types import BOOL, list_of
from kubesched.api.cel.values import Value

_LIST = list_of(types.parameter("T"))


def _contains(elements: list[Value], others: list[Value]) -> bool:
    _check_effort(elements, others)
    return all(operators.contains(other, elements) for other in others)


def _equivalent(elements: list[Value], others: list[Value]) -> bool:
    return _contains(elements, others) and _contains(others, elements)


def _intersects(elements: list[Value], others: list[Value]) -> bool:
    _check_effort(elements, others)
    return any(operators.contains(element, others) for element in elements)


def _check_effort(elements: list[Value], others: list[Value]) -> None:
    """Rejects an operation in advance if it is certain to exceed the cost limit."""
    operators.checked_size(len(elements) * len(others))


def _cost(factor: float) -> CallCost:
    def cost(args: tuple[Value, ...], _result: Value) -> int:
        return 1 + int(costs.actual_size(args[0]) * costs.actual_size(args[1]) * factor)

    return cost


SETS = Library(
    "sets",
    {
        f"sets.{name}": Overload(
            f"list_sets_{name}_list", (_LIST, _LIST), BOOL, implementation, cost=_cost(factor)
        )
        for name, implementation, factor in (
            ("contains", _contains, 1.0),
            ("equivalent", _equivalent, 2.0),
            ("intersects", _intersects, 1.0),
        )
    },
)
