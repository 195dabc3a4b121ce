"""From text to something that can be evaluated again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubesched.cel.environment import Environment
from kubesched.cel.errors import EvaluationError
from kubesched.cel.types import Type
from kubesched.cel.values import Value


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Outcome of one evaluation: a value or an error, and what it cost."""

    value: Value
    """Meaningless if there is an error."""
    error: EvaluationError | None
    cost: int


class Program:
    """A compiled expression. Immutable; evaluation depends on the bindings alone."""

    expression: str
    output_type: Type

    def evaluate(self, bindings: Mapping[str, Value]) -> Value:
        """The value of the expression, as `values` says it is held in Python.

        Raises:
            EvaluationError: with cel-go's text, such as `no such key: model`.
        """
        raise NotImplementedError

    def run(self, bindings: Mapping[str, Value]) -> Evaluation:
        """Like `evaluate`, but returns errors and tells the cost."""
        raise NotImplementedError


def compile(expression: str, environment: Environment) -> Program:
    """Parse, type-check and plan an expression.

    Raises:
        CompileError: it does not parse or does not type-check; the text lists every issue.
        InstantiationError: a constant part of it cannot be evaluated.
    """
    raise NotImplementedError
