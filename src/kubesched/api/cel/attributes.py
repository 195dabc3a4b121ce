"""Variables with their selections and indexes: `device.attributes["d"].model`.

A chain is planned as one closure. `?.` and `[?]` make the rest of the chain optional.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import find_key, go_type, list_index, no_such_overload, show
from kubesched.api.cel.values import NONE, NOTHING, DefaultMap, Optional, Uint, Value

Frame = list[Value]
"""The state that closures share: the cost so far, then the variables."""
Plan = Callable[[Frame], Value]

KEY_TYPES = frozenset((str, int, Uint, bool, float))


class _Missing:
    """Placeholder for a frame slot without a value."""

    __slots__ = ()


Missing: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Raised:
    """An error stored in a variable; using the variable raises it."""

    error: EvaluationError


@dataclass(frozen=True, slots=True)
class Key:
    """A constant key, or one that `plan` computes first."""

    value: Value = None
    plan: Plan | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """The start of a chain and its qualifiers; exactly one kind of start is set."""

    slot: int = 0
    name: str = ""
    load: Plan | None = None
    """Computes a variable when it is first used."""
    operand: Plan | None = None
    condition: tuple[Plan, Attribute, Attribute] | None = None
    qualifiers: tuple[Key, ...] = ()
    test_only: bool = False
    """Only test the last qualifier for presence, as `has()` does."""

    def with_qualifier(self, qualifier: Key, *, test_only: bool = False) -> Attribute:
        if self.test_only:
            return Attribute(operand=self.evaluator()).with_qualifier(
                qualifier, test_only=test_only
            )
        if self.condition is not None:
            condition, then, otherwise = self.condition
            then = then.with_qualifier(qualifier, test_only=test_only)
            otherwise = otherwise.with_qualifier(qualifier, test_only=test_only)
            return Attribute(condition=(condition, then, otherwise))
        return replace(self, qualifiers=(*self.qualifiers, qualifier), test_only=test_only)

    def evaluator(self) -> Plan:
        """A closure for the value, charging 1 for the attribute itself.

        Upstream: neither a conditional nor a presence test has its own charge.
        """
        charge = 0 if self.condition is not None or self.test_only else 1
        return self._planned(charge)

    def resolver(self) -> Plan:
        """A closure for the value as part of another attribute, without that charge."""
        return self._planned(0)

    def _planned(self, charge: int) -> Plan:
        if self.condition is not None:
            return _conditional(*self.condition)
        if self.operand is not None and not self.qualifiers:
            # Upstream: a relative attribute without qualifiers only wraps a branch of a
            # conditional.
            return self.operand
        start = self._start()
        if not self.qualifiers:
            return _charged(start, charge)
        return _walk(start, self.qualifiers, charge, test_only=self.test_only)

    def _start(self) -> Plan:
        if self.load is not None:
            return self.load
        if self.operand is not None:
            return self.operand
        slot, name = self.slot, self.name

        def variable(frame: Frame) -> Value:
            value = frame[slot]
            if value is Missing:
                raise EvaluationError(f"no such attribute(s): {name}")
            if type(value) is Raised:
                raise value.error
            return value

        return variable


def _charged(start: Plan, charge: int) -> Plan:
    if not charge:
        return start

    def evaluate(frame: Frame) -> Value:
        frame[0] += charge
        return start(frame)

    return evaluate


def _conditional(condition: Plan, then: Attribute, otherwise: Attribute) -> Plan:
    then_plan, otherwise_plan = then.resolver(), otherwise.resolver()

    def evaluate(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return then_plan(frame)
        if value is False:
            return otherwise_plan(frame)
        raise no_such_overload()

    return evaluate


def _walk(start: Plan, qualifiers: tuple[Key, ...], charge: int, *, test_only: bool) -> Plan:
    last = len(qualifiers) - 1

    def evaluate(frame: Frame) -> Value:
        frame[0] += charge
        value = start(frame)
        is_optional = type(value) is Optional
        if is_optional:
            if value.value is NOTHING:
                return False if test_only else value
            value = value.value
        for index, qualifier in enumerate(qualifiers):
            is_optional = is_optional or qualifier.optional
            if qualifier.plan is None:
                key = qualifier.value
            else:
                key = _computed_key(frame, qualifier.plan, charge_failure=not is_optional)
            if test_only and index == last:
                frame[0] += 1
                return look_up(value, key, must_exist=False) is not NOTHING
            member = _charged_look_up(frame, value, key, must_exist=not is_optional)
            if member is NOTHING:
                return False if test_only else NONE
            value = member
        return Optional(value) if is_optional else value

    return evaluate


def _computed_key(frame: Frame, plan: Plan, *, charge_failure: bool) -> Value:
    try:
        return plan(frame)
    except EvaluationError:
        frame[0] += charge_failure
        raise


def _charged_look_up(frame: Frame, container: Value, key: Value, *, must_exist: bool) -> Value:
    """Upstream: a look-up costs one, unless it was optional and found nothing."""
    if must_exist:
        frame[0] += 1
        return look_up(container, key, must_exist=True)
    member = look_up(container, key, must_exist=False)
    if member is not NOTHING:
        frame[0] += 1
    return member


def look_up(container: Value, key: Value, *, must_exist: bool) -> Value:
    """An entry of a map or list; NOTHING if it is missing and `must_exist` is False."""
    if type(key) not in KEY_TYPES:
        raise EvaluationError(f"invalid qualifier type: {go_type(key)}")
    if isinstance(container, dict):
        if type(container) is DefaultMap:
            return container[key] if type(key) is str else container.default
        value, exists = find_key(container, key)
        if exists:
            return value
        if must_exist:
            raise EvaluationError(f"no such key: {show(key)}")
        return NOTHING
    if isinstance(container, list | tuple):
        index = list_index(key)
        if 0 <= index < len(container):
            return container[index]
        if must_exist:
            raise EvaluationError(f"index out of bounds: {show(key)}")
        return NOTHING
    if must_exist:
        raise EvaluationError(f"no such key: {show(key)}")
    return NOTHING
