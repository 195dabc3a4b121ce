"""A checked syntax tree to Python closures.

Every closure takes the frame, a list: the first item is the cost so far, the others hold variables,
each in a slot fixed at plan time. A CEL error is a raised EvaluationError; the logical operators
and comprehensions absorb it as the language prescribes.

Costs are added where cel-go adds them, but compared with the limit only once per iteration of a
comprehension and at the end: the cost between two comparisons is bounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from kubesched.api.cel import closures, costs, folds, operators
from kubesched.api.cel.attributes import KEY_TYPES, Attribute, Frame, Key, Plan
from kubesched.api.cel.environment import CallCost, Environment
from kubesched.api.cel.errors import EvaluationError, InstantiationError
from kubesched.api.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from kubesched.api.cel.values import NOTHING, Optional, Value

_CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)


@dataclass(frozen=True, slots=True)
class Constant:
    """A part whose value is known at plan time. It costs nothing."""

    value: Value


Planned = Constant | Attribute | Plan
"""A constant, an attribute that can still be extended by selections, or a finished closure."""


class Planner:
    """Plans one expression. `slots` then maps its free variables to slots in the frame."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.slots: dict[str, int] = {}
        self.frame_size = 1
        self._scopes: list[dict[str, Attribute | int]] = []
        self._forms: dict[str, Callable[[Call], Planned]] = {
            "_&&_": self._logical,
            "_||_": self._logical,
            "_?_:_": self._conditional,
            "_==_": self._equality,
            "_!=_": self._equality,
            "_[_]": self._index,
            "_[?_]": self._index,
            "_?._": self._index,
            "@in": self._in,
            "@not_strictly_false": self._not_strictly_false,
            "or": self._optional_or,
            "orValue": self._optional_or,
        }

    def plan(self, node: Node) -> Planned:
        match node:
            case Literal():
                return Constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                form = self._forms.get(node.function)
                return form(node) if form is not None else self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
        raise InstantiationError(f"unsupported expr: {type(node).__name__}")

    def closure(self, node: Node) -> Plan:
        return finished(self.plan(node))

    def _new_slot(self) -> int:
        self.frame_size += 1
        return self.frame_size - 1

    # -- variables, selections and indexes ---------------------------------------------------------

    def _ident(self, node: Ident) -> Planned:
        if node.constant is not None:
            return Constant(node.constant)
        for scope in reversed(self._scopes):
            place = scope.get(node.name)
            if isinstance(place, int):
                return Attribute(place, node.name)
            if place is not None:
                return place
        if node.name not in self.slots:
            self.slots[node.name] = self._new_slot()
        return Attribute(self.slots[node.name], node.name)

    def _attribute(self, node: Node) -> Attribute:
        planned = self.plan(node)
        return planned if isinstance(planned, Attribute) else Attribute(operand=finished(planned))

    def _select(self, node: Select) -> Planned:
        if node.resolved is not None:
            return self._ident(node.resolved)
        attribute = self._attribute(node.operand)
        return attribute.with_qualifier(Key(node.field), test_only=node.test_only)

    def _index(self, node: Call) -> Planned:
        attribute = self._attribute(node.args[0])
        optional = node.function != "_[_]"
        key = self.plan(node.args[1])
        if isinstance(key, Constant):
            if type(key.value) not in KEY_TYPES:
                raise InstantiationError(f"invalid qualifier type: {operators.go_type(key.value)}")
            return attribute.with_qualifier(Key(key.value, optional=optional))
        # Upstream: an index that is itself an attribute is resolved, not evaluated, and costs less.
        evaluate = key.resolver() if isinstance(key, Attribute) else key
        return attribute.with_qualifier(Key(plan=evaluate, optional=optional))

    # -- special operators -------------------------------------------------------------------------

    def _logical(self, node: Call) -> Plan:
        decisive = node.function == "_||_"
        terms = [self.closure(term) for term in closures.flattened(node)]
        return closures.any_decisive(terms, decisive)

    def _conditional(self, node: Call) -> Planned:
        condition = self.closure(node.args[0])
        then, otherwise = (self._attribute(branch) for branch in node.args[1:])
        return Attribute(condition=(condition, then, otherwise))

    def _equality(self, node: Call) -> Plan:
        left, right = (self.plan(argument) for argument in node.args)
        if node.function == "_!=_":
            cost, compare = costs.of_shorter_argument, closures.unequal
        else:
            cost, compare = closures.equality_cost, operators.equal
        return closures.call_plan(compare, [finished(left), finished(right)], cost, eager=True)

    def _in(self, node: Call) -> Planned:
        left, right = (self.plan(argument) for argument in node.args)
        only_lists = [overload.id for overload in node.overloads] == ["@in(A, list(A))"]
        if only_lists and isinstance(right, Constant) and closures.are_primitive(right.value):
            if not right.value:
                return Constant(False)
            return closures.in_constants(finished(left), right.value)
        cost = costs.of_list if only_lists else costs.constant
        return closures.call_plan(
            operators.contains, [finished(left), finished(right)], cost, eager=True
        )

    def _not_strictly_false(self, node: Call) -> Plan:
        operand = self.closure(node.args[0])

        def evaluate(frame: Frame) -> Value:
            frame[0] += 1
            try:
                value = operand(frame)
            except EvaluationError:
                return True
            return value if value is False else True

        return evaluate

    def _optional_or(self, node: Call) -> Planned:
        if node.target is None or len(node.args) != 1:
            return self._call(node)
        left, right = self.closure(node.target), self.closure(node.args[0])
        unwrap = node.function == "orValue"

        def evaluate(frame: Frame) -> Value:
            value = left(frame)
            if type(value) is not Optional:
                return value
            if value.value is NOTHING:
                return right(frame)
            return value.value if unwrap else value

        return evaluate

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Planned:
        nodes = [*([node.target] if node.target is not None else []), *node.args]
        arguments = [self.plan(argument) for argument in nodes]
        call = self._callable(node, nodes, arguments)
        if node.function in _CONVERSIONS and len(arguments) == 1:
            argument = arguments[0]
            if isinstance(argument, Constant):
                return Constant(_at_plan_time(lambda: call(argument.value)))
        cost = self._cost(node)
        plans = [finished(argument) for argument in arguments]
        eager = len(plans) == 2 and self._is_eager(node, arguments)
        return closures.call_plan(call, plans, cost, eager=eager)

    def _is_eager(self, node: Call, arguments: list[Planned]) -> bool:
        """Upstream: with run-time dispatch or a constant pattern, a call stops at an error."""
        first = node.overloads[0]
        if first.guarded and len(node.overloads) > 1:
            return False
        return first.specialize is None or not isinstance(arguments[1], Constant)

    def _cost(self, node: Call) -> CallCost:
        if len(node.overloads) == 1 and node.overloads[0].cost is not None:
            return node.overloads[0].cost
        return self.environment.costs.get(node.function, costs.constant)

    def _callable(
        self, node: Call, nodes: list[Node], arguments: list[Planned]
    ) -> Callable[..., Value]:
        """The implementation, with the run-time type checks it still needs."""
        constants = tuple(
            argument.value if isinstance(argument, Constant) else NOTHING for argument in arguments
        )
        for overload in node.overloads:
            if overload.specialize is not None:
                special: Callable[..., Value] | None = _at_plan_time(
                    functools.partial(overload.specialize, constants)
                )
                if special is not None:
                    return special
        first = node.overloads[0]
        if not first.guarded:
            return first.call
        if len(node.overloads) == 1:
            if not any(
                map(closures.needs_guard, first.arguments, (argument.type for argument in nodes))
            ):
                return first.call
            return closures.guarded(node.function, (first,))
        candidates = tuple(
            overload
            for overload in self.environment.functions[node.function]
            if len(overload.arguments) == len(nodes)
        )
        return closures.guarded(node.function, candidates)

    # -- aggregates --------------------------------------------------------------------------------

    def _list(self, node: ListNode) -> Planned:
        elements = [self.plan(element) for element in node.elements]
        plan = closures.new_list([finished(element) for element in elements], node.optional)
        if all(isinstance(element, Constant) for element in elements):
            return _constant_aggregate(plan)
        return plan

    def _map(self, node: MapNode) -> Planned:
        keys = [self.plan(entry.key) for entry in node.entries if isinstance(entry.key, Node)]
        values = [self.plan(entry.value) for entry in node.entries]
        entries = [
            (finished(key), finished(value), entry.optional)
            for key, value, entry in zip(keys, values, node.entries, strict=True)
        ]
        plan = closures.new_map(entries)
        if all(isinstance(part, Constant) for part in (*keys, *values)):
            return _constant_aggregate(plan)
        return plan

    # -- comprehensions ----------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> Plan:
        iteration_range = self.closure(node.iteration_range)
        init = self.closure(node.init)
        accumulator, variable, variable2 = self._new_slot(), self._new_slot(), self._new_slot()
        self._scopes.append({node.accumulator: folds.accumulator(accumulator, init)})
        loop: dict[str, Attribute | int] = {node.variable: variable}
        if node.variable2:
            loop[node.variable2] = variable2
        self._scopes.append(loop)
        condition = self.plan(node.condition)
        step = self.closure(node.step)
        self._scopes.pop()
        result = self.closure(node.result)
        self._scopes.pop()
        limit = self.environment.cost_limit
        always = isinstance(condition, Constant) and condition.value is True
        fold = folds.Fold(
            iteration_range,
            accumulator,
            variable,
            variable2 if node.variable2 else 0,
            None if always else finished(condition),
            step,
            result,
            float("inf") if limit is None else limit,
        )
        return fold.evaluate


def finished(planned: Planned) -> Plan:
    """Converts any planned part to a closure."""
    if isinstance(planned, Constant):
        value = planned.value
        return lambda _frame: value
    if isinstance(planned, Attribute):
        return planned.evaluator()
    return planned


def _at_plan_time(evaluate: Callable[[], Value]) -> Value:
    try:
        return evaluate()
    except EvaluationError as error:
        raise InstantiationError(str(error)) from error


def _constant_aggregate(plan: Plan) -> Planned:
    """The value itself if it can be built; otherwise its error is raised by evaluation."""
    try:
        return Constant(plan([0]))
    except EvaluationError:
        return plan
