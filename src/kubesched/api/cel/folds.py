"""Comprehensions at run time."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.api.cel import operators
from kubesched.api.cel.attributes import Attribute, Frame, Missing, Plan, Raised
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.values import Value


def accumulator(slot: int, init: Plan) -> Attribute:
    """The accumulator is computed on first use: `cel.bind(x, <error>, true)` is true."""

    def load(frame: Frame) -> Value:
        value = frame[slot]
        if value is Missing:
            try:
                value = init(frame)
            except EvaluationError as error:
                value = Raised(error)
            # Empty aggregates are extended in place, so each evaluation needs a new object.
            if isinstance(value, list) and not value:
                value = operators.MutableList()
            elif isinstance(value, dict) and not value:
                value = {}
            frame[slot] = value
        if type(value) is Raised:
            raise value.error
        return value

    return Attribute(load=load)


@dataclass(frozen=True, slots=True)
class Fold:
    """The loop of every comprehension. An error of the step becomes the accumulator's value."""

    iteration_range: Plan
    accumulator: int
    variable: int
    variable2: int
    """0 if there is only one variable."""
    condition: Plan | None
    """None if the loop covers the whole range."""
    step: Plan
    result: Plan
    limit: float

    def evaluate(self, frame: Frame) -> Value:
        elements = self.iteration_range(frame)
        frame[self.accumulator] = Missing
        if self.variable2:
            self._loop(frame, _pairs(elements))
        else:
            self._loop(frame, ((element,) for element in _elements(elements)))
        value = self.result(frame)
        return list(value) if type(value) is operators.MutableList else value

    def _loop(self, frame: Frame, turns: Value) -> None:
        condition, step = self.condition, self.step
        accumulator, limit = self.accumulator, self.limit
        for turn in turns:
            frame[self.variable] = turn[0]
            if self.variable2:
                frame[self.variable2] = turn[1]
            if condition is not None and _is_false(condition, frame):
                return
            try:
                frame[accumulator] = step(frame)
            except EvaluationError as error:
                frame[accumulator] = Raised(error)
            if frame[0] > limit:
                raise operators.Cancelled


def _is_false(condition: Plan, frame: Frame) -> bool:
    try:
        return condition(frame) is False
    except EvaluationError:
        return False


def _elements(value: Value) -> Value:
    if isinstance(value, list | tuple | dict):
        return value
    raise EvaluationError(f"got '{operators.go_type(value)}', expected iterable type")


def _pairs(value: Value) -> Value:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    raise EvaluationError(f"unsupported comprehension range type: {operators.go_type(value)}")
