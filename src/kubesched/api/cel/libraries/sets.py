"""Lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`."""

from __future__ import annotations

from kubesched.api.cel import costs, operators
from kubesched.api.cel.environment import CallCost, Library, declare
from kubesched.api.cel.values import Value


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
    (
        declare("sets.contains(list(T), list(T)) -> bool", _contains, cost=_cost(1.0)),
        declare("sets.equivalent(list(T), list(T)) -> bool", _equivalent, cost=_cost(2.0)),
        declare("sets.intersects(list(T), list(T)) -> bool", _intersects, cost=_cost(1.0)),
    ),
)
