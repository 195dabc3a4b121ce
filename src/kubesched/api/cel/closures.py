"""The closures of a plan: logical operators, equality, calls, lists and maps."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.cel import costs, operators
from kubesched.api.cel.attributes import Frame, Plan
from kubesched.api.cel.environment import CallCost, Overload
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import no_such_overload
from kubesched.api.cel.syntax import Call, Node
from kubesched.api.cel.types import Type, TypeKind
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

_ANYTHING = (TypeKind.DYN, TypeKind.ANY, TypeKind.PARAMETER)


def has_type(declared: Type, value: Value) -> bool:
    """Upstream: only the first element of an aggregate is checked."""
    if declared.kind in _ANYTHING:
        return True
    if type_of(value).name != declared.name:
        return False
    if declared.kind is TypeKind.LIST:
        return not value or has_type(declared.parameters[0], value[0])
    if declared.kind is TypeKind.MAP and value:
        key, element = next(iter(value.items()))
        key_type, element_type = declared.parameters
        return has_type(key_type, key) and has_type(element_type, element)
    return True


def needs_guard(declared: Type, known: Type) -> bool:
    """Whether a value of static type `known` needs a check before its use as `declared`."""
    if declared.kind in _ANYTHING:
        return False
    if known.is_dynamic or known.kind is not declared.kind:
        return True
    if declared.kind in (TypeKind.LIST, TypeKind.MAP):
        return any(map(needs_guard, declared.parameters, known.parameters))
    return False


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


def call_plan(
    call: Callable[..., Value], plans: list[Plan], cost: CallCost, *, eager: bool = False
) -> Plan:
    """A call. The first argument that fails ends it, free of charge.

    Upstream: unless it is the last, since then all arguments have been evaluated; and with `eager`
    they are evaluated in any case.
    """
    last = len(plans) - 1

    def evaluate(frame: Frame) -> Value:
        args: list[Value] = []
        failure: EvaluationError | None = None
        for index, plan in enumerate(plans):
            try:
                args.append(plan(frame))
            except EvaluationError as error:
                if not eager and index < last:
                    raise
                failure = failure or error
                args.append(_FAILED)
        given = tuple(args)
        try:
            if failure is not None:
                raise failure
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
