"""The closures of a plan: logical operators, equality, calls, lists and maps."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.cel import costs, operators
from kubesched.api.cel.environment import CallCost, Overload
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.frames import Frame, Plan
from kubesched.api.cel.operators import no_such_overload
from kubesched.api.cel.run_time_types import has_type
from kubesched.api.cel.syntax import Call, Node
from kubesched.api.cel.types import TypeKind
from kubesched.api.cel.values import Optional, Value, type_of

# -- logical operators -----------------------------------------------------------------------------


def flattened(node: Call) -> list[Node]:
    """The terms of a chain, left to right; the tree is balanced, so the recursion is shallow."""
    terms: list[Node] = []
    for term in node.args:
        if isinstance(term, Call) and term.function == node.function:
            terms += flattened(term)
        else:
            terms.append(term)
    return terms


def any_decisive(terms: list[Plan], decisive: bool) -> Plan:
    """`||` and `&&`: a decisive term wins over errors of other terms."""
    neutral = not decisive

    def evaluate(frame: Frame) -> Value:
        error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
                if value is decisive:
                    return decisive
                if value is not neutral and error is None:
                    error = no_such_overload()
            except EvaluationError as raised:
                error = error or raised
        if error is not None:
            raise error
        return neutral

    return evaluate


# -- equality --------------------------------------------------------------------------------------


def equality_cost(args: tuple[Value, ...], _result: Value) -> int:
    """Upstream: Kubernetes' own types are charged 1, but only by `==`."""
    left, right = args
    plain = left is _FAILED or type(left) is Optional
    if not plain and type_of(left).kind in (TypeKind.OPAQUE, TypeKind.OBJECT):
        return 1
    return costs.traversal(min(costs.actual_size(left), costs.actual_size(right)))


def unequal(left: Value, right: Value) -> bool:
    """Upstream: values that cannot be compared are unequal, where `==` is an error."""
    return not operators.equals(left, right)


def are_primitive(elements: list[Value]) -> bool:
    return all(isinstance(element, bool | int | float | str) for element in elements)


def in_constants(left: Plan, elements: list[Value]) -> Plan:
    """Membership in a list of constants: cel-go looks up a set, which costs nothing."""
    texts = frozenset(element for element in elements if isinstance(element, str))
    others = [element for element in elements if not isinstance(element, str)]

    def evaluate(frame: Frame) -> Value:
        value = left(frame)
        if type(value) is str:
            return value in texts
        return bool(others) and operators.contains(value, others)

    return evaluate


# -- calls -----------------------------------------------------------------------------------------


def guarded(function: str, candidates: tuple[Overload, ...]) -> Callable[..., Value]:
    """Dispatch by the run-time types of the arguments."""

    def call(*args: Value) -> Value:
        for overload in candidates:
            if all(map(has_type, overload.arguments, args)):
                return overload.call(*args)
        shown = ", ".join(type_of(argument).name for argument in args)
        raise EvaluationError(f"no such overload: {function}({shown})")

    return call


class _Failed:
    """Stands for an argument whose evaluation failed: the call is still charged."""

    __slots__ = ()


_FAILED = _Failed()


def call1(call: Callable[..., Value], operand: Plan, cost: CallCost) -> Plan:
    """A call with one argument."""

    def evaluate(frame: Frame) -> Value:
        try:
            argument = operand(frame)
        except EvaluationError:
            frame[0] += cost((_FAILED,), _FAILED)
            raise
        try:
            result = call(argument)
        except EvaluationError:
            frame[0] += cost((argument,), _FAILED)
            raise
        frame[0] += cost((argument,), result)
        return result

    return evaluate


def call2(call: Callable[..., Value], left: Plan, right: Plan, cost: CallCost) -> Plan:
    """A call with two arguments; both are evaluated even if the first fails."""

    def evaluate(frame: Frame) -> Value:
        try:
            a = left(frame)
        except EvaluationError:
            _charge_failed(frame, right, cost)
            raise
        try:
            b = right(frame)
        except EvaluationError:
            frame[0] += cost((a, _FAILED), _FAILED)
            raise
        try:
            result = call(a, b)
        except EvaluationError:
            frame[0] += cost((a, b), _FAILED)
            raise
        frame[0] += cost((a, b), result)
        return result

    return evaluate


def _charge_failed(frame: Frame, right: Plan, cost: CallCost) -> None:
    """Charges the second argument and the call when the first argument has failed."""
    try:
        b = right(frame)
    except EvaluationError:
        b = _FAILED
    frame[0] += cost((_FAILED, b), _FAILED)


def call_many(call: Callable[..., Value], plans: list[Plan], cost: CallCost) -> Plan:
    """A call with any number of arguments; the first failure ends it, free of charge.

    Upstream: unless it is the last, since then all arguments have been evaluated.
    """
    *most, last = plans if plans else (None,)

    def evaluate(frame: Frame) -> Value:
        args = [plan(frame) for plan in most]
        if last is not None:
            try:
                args.append(last(frame))
            except EvaluationError:
                frame[0] += cost((*args, _FAILED), _FAILED)
                raise
        given = tuple(args)
        try:
            result = call(*given)
        except EvaluationError:
            frame[0] += cost(given, _FAILED)
            raise
        frame[0] += cost(given, result)
        return result

    return evaluate


# -- aggregates ------------------------------------------------------------------------------------


def new_list(elements: list[Plan], optional: frozenset[int]) -> Plan:
    def evaluate(frame: Frame) -> Value:
        frame[0] += costs.LIST_CREATE
        built = []
        for index, element in enumerate(elements):
            value = element(frame)
            if index in optional:
                if not isinstance(value, Optional):
                    raise EvaluationError(
                        "cannot initialize optional list element from non-optional value "
                        f"{operators.show(value)}"
                    )
                if not value.has_value:
                    continue
                value = value.value
            built.append(value)
        return built

    return evaluate


def new_map(entries: list[tuple[Plan, Plan, bool]]) -> Plan:
    def evaluate(frame: Frame) -> Value:
        frame[0] += costs.MAP_CREATE
        built: dict[Value, Value] = {}
        for key_plan, value_plan, optional in entries:
            key = key_plan(frame)
            value = value_plan(frame)
            if optional:
                if not isinstance(value, Optional):
                    raise EvaluationError(
                        f"cannot initialize optional entry '{operators.show(key)}' from "
                        f"non-optional value {operators.show(value)}"
                    )
                if not value.has_value:
                    built.pop(operators.map_key(key), None)
                    continue
                value = value.value
            built[operators.map_key(key)] = value
        return built

    return evaluate
