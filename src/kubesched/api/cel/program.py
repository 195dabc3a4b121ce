"""Compiles text to a program that can be evaluated repeatedly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kubesched.api.cel.attributes import Frame, Missing
from kubesched.api.cel.checker import check
from kubesched.api.cel.environment import Environment
from kubesched.api.cel.errors import (
    CompileError,
    CostLimitExceededError,
    EvaluationError,
    Issue,
    Source,
)
from kubesched.api.cel.operators import Cancelled
from kubesched.api.cel.parser import MAX_NESTING, parse
from kubesched.api.cel.planner import Planner
from kubesched.api.cel.syntax import Node
from kubesched.api.cel.types import Type
from kubesched.api.cel.validation import validate
from kubesched.api.cel.values import Value


class Evaluation(NamedTuple):
    """Outcome of one evaluation: a value or an error, and its cost."""

    value: Value
    """Meaningless if there is an error."""
    error: EvaluationError | None
    cost: int


class Program:
    """A compiled expression. Immutable; evaluation depends only on the bindings."""

    def __init__(self, expression: str, root: Node, environment: Environment) -> None:
        planner = Planner(environment)
        self.expression = expression
        self.output_type: Type = root.type
        self._plan = planner.closure(root)
        self._slots = tuple(planner.slots.items())
        self._empty: Frame = [0, *[Missing] * (planner.frame_size - 1)]
        limit = environment.cost_limit
        self._limit = float("inf") if limit is None else limit

    def evaluate(self, bindings: Mapping[str, Value], frame: Frame | None = None) -> Value:
        """The value of the expression, in the Python form that `values` defines.

        Raises:
            EvaluationError: with cel-go's text, such as `no such key: model`.
        """
        if frame is None:
            frame = self._empty.copy()
        for name, slot in self._slots:
            if name in bindings:
                frame[slot] = bindings[name]
        try:
            value = self._plan(frame)
        except EvaluationError:
            if frame[0] > self._limit:
                raise CostLimitExceededError from None
            raise
        except Cancelled as cancelled:
            raise _reason(cancelled) from None
        except RecursionError:
            raise EvaluationError("expression nests too deeply to be evaluated") from None
        if frame[0] > self._limit:
            raise CostLimitExceededError
        return value

    def run(self, bindings: Mapping[str, Value]) -> Evaluation:
        """Like `evaluate`, but returns errors and the cost."""
        frame = self._empty.copy()
        try:
            value, error = self.evaluate(bindings, frame), None
        except EvaluationError as raised:
            value, error = None, raised
        return Evaluation(value, error, frame[0])


def _reason(cancelled: Cancelled) -> EvaluationError:
    return EvaluationError(str(cancelled)) if cancelled.args else CostLimitExceededError()


def compile(expression: str, environment: Environment) -> Program:
    """Parse, type-check and plan an expression.

    Raises:
        CompileError: it does not parse or does not type-check; the text lists every issue.
        InstantiationError: a constant part of it cannot be evaluated.
    """
    source = Source(expression)
    root = parse(source, environment.macros)
    try:
        nodes = check(root, source, environment)
        validate(root, nodes, source)
        return Program(expression, root, environment)
    except RecursionError:
        raise _too_deep(expression) from None


def _too_deep(expression: str) -> CompileError:
    message = f"expression recursion limit exceeded: {MAX_NESTING}"
    return CompileError([Issue(message, -1, -1)], expression)
