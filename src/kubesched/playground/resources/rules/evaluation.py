"""Evaluates the rules of a custom resource on every write, after schema validation.

`self` is the value that has the rule, `oldSelf` the same value before an update. A rule that reads
`oldSelf` is evaluated only if there is an old value, unless it sets `optionalOldSelf`. List items
have an old value only if the list type is map. A violation without `oldSelf` is ignored while the
value is unchanged: objects stored before a rule was added can still be changed elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubesched.api.cel import CostLimitExceededError, EvaluationError, Optional, Program
from kubesched.api.field_errors import OMITTED, FieldError, duplicate, forbidden, invalid, required
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.schema.structural import (
    EMBEDDED,
    NO_PREDECESSOR,
    RULES,
    predecessor_of,
    predecessor_of_item,
)
from kubesched.playground.resources.rules.compilation import SELF_TYPE, CompiledRule, compile_rules
from kubesched.playground.resources.rules.declarations import declare
from kubesched.playground.resources.rules.values import value_of

COST_BUDGET = 10_000_000
"""Limit for all rules on one object."""
_LONGEST_MESSAGE = 5 * 1024


class _OutOfBudget(Exception):
    """Stops the evaluation; carries the last problem."""


@dataclass(frozen=True, slots=True)
class _Node:
    """The rules of one schema, and the subschemas that have any."""

    schema: JsonObject
    is_root: bool
    rules: tuple[CompiledRule, ...]
    properties: dict[str, _Node]
    additional: _Node | None
    items: _Node | None

    @property
    def type(self) -> str:
        return self.schema.get("type") or ""


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """All rules of a schema."""

    root: _Node

    def problems(self, new: JsonObject, old: JsonObject | None) -> list[FieldError]:
        """The rules that an object violates; transition rules need an old version."""
        return _Evaluation().problems(self.root, new, NO_PREDECESSOR if old is None else old)


def rules_of(schema: JsonObject) -> SchemaRules | None:
    """The rules of a schema that passed `definition.rule_problems`; None if there are none."""
    root = _node(schema, is_root=True)
    return SchemaRules(root) if root is not None else None


def _node(schema: Json, *, is_root: bool = False) -> _Node | None:
    if not isinstance(schema, dict):
        return None
    is_root = is_root or bool(schema.get(EMBEDDED))
    rules: list[CompiledRule] = []
    if schema.get(RULES):
        declaration = declare(schema, SELF_TYPE, is_root=is_root)
        rules = compile_rules(schema, declaration) if declaration is not None else []
    members = ((name, _node(member)) for name, member in (schema.get("properties") or {}).items())
    properties = {name: node for name, node in members if node is not None}
    additional, items = _node(schema.get("additionalProperties")), _node(schema.get("items"))
    if not rules and not properties and additional is None and items is None:
        return None
    return _Node(schema, is_root, tuple(rules), properties, additional, items)


class _Evaluation:
    """Evaluation of one object, with its cost budget."""

    def __init__(self) -> None:
        self._budget = COST_BUDGET

    def problems(self, root: _Node, new: JsonObject, old: object) -> list[FieldError]:
        problems: list[FieldError] = []
        try:
            problems.extend(self._node(root, new, old, "", None))
        except _OutOfBudget as end:
            problems.append(end.args[0])
        return problems

    def _node(
        self, node: _Node, new: Json, old: object, path: str, above: tuple[Json, object] | None
    ) -> Iterator[FieldError]:
        """`above` is the nearest value with an old value, and that old value."""
        if new is None:
            return
        nearest = above if old is NO_PREDECESSOR else (new, old)
        if node.rules:
            yield from self._rules(node, new, old, path, nearest)
        if isinstance(new, dict):
            for name, value in new.items():
                before = predecessor_of(name, old)
                if name in node.properties:
                    here = f"{path}.{name}" if path else name
                    yield from self._node(node.properties[name], value, before, here, nearest)
                elif node.additional is not None:
                    here = f"{path}[{name}]"
                    yield from self._node(node.additional, value, before, here, nearest)
        elif isinstance(new, list) and node.items is not None:
            for index, item in enumerate(new):
                before = predecessor_of_item(node.schema, item, old)
                yield from self._node(node.items, item, before, f"{path}[{index}]", nearest)

    def _rules(
        self,
        node: _Node,
        new: Json,
        old: object,
        path: str,
        nearest: tuple[Json, object] | None,
    ) -> Iterator[FieldError]:
        has_old = old is not NO_PREDECESSOR and old is not None
        value = value_of(node.schema, new, is_root=node.is_root)
        before = value_of(node.schema, old, is_root=node.is_root) if has_old else None
        for rule in node.rules:
            if rule.program is None or (
                rule.is_transition and not has_old and not rule.has_optional_old_self
            ):
                continue
            bindings: JsonObject = {"self": value}
            if rule.has_optional_old_self:
                bindings["oldSelf"] = Optional(before) if has_old else Optional()
            elif has_old:
                bindings["oldSelf"] = before
            verdict = self._verdict(rule, rule.program, bindings, path, node.type)
            if isinstance(verdict, FieldError):
                yield verdict
            elif not verdict and (
                rule.is_transition or nearest is None or nearest[0] != nearest[1]
            ):
                yield self._broken(rule, bindings, new, path, node.type)

    def _verdict(
        self, rule: CompiledRule, program: Program, bindings: JsonObject, path: str, type_name: str
    ) -> bool | FieldError:
        """Whether the rule holds, or the error of its evaluation."""
        where = path or _ROOT
        if self._budget <= 0:
            raise _OutOfBudget(invalid(where, type_name, _NO_BUDGET))
        outcome = program.run(bindings)
        if outcome.cost > self._budget:
            raise _OutOfBudget(invalid(where, type_name, _NO_BUDGET))
        self._budget -= outcome.cost
        error = outcome.error
        if error is None:
            return outcome.value is True
        if isinstance(error, CostLimitExceededError):
            detail = (
                f"'{error}': no further validation rules will be run due to call cost exceeds limit"
                f" for rule: {rule.shown}"
            )
            raise _OutOfBudget(invalid(where, type_name, detail))
        if str(error).startswith("no such overload"):
            detail = (
                f"'{error}': call arguments did not match a supported operator, function or macro"
                f" signature for rule: {rule.shown}"
            )
        else:
            detail = f"{error} evaluating rule: {rule.shown}"
        return invalid(where, type_name, detail)

    def _broken(
        self, rule: CompiledRule, bindings: JsonObject, value: Json, path: str, type_name: str
    ) -> FieldError:
        where = path or _ROOT
        if rule.field_path:
            where = f"{path}.{rule.field_path}" if path else rule.field_path
        message = self._message(rule, bindings, where, type_name)
        if not message:
            message = rule.message.strip() if rule.message else f"failed rule: {rule.shown}"
        shown = OMITTED if type_name in ("object", "array") else value
        match rule.reason:
            case "FieldValueForbidden":
                return forbidden(where, message)
            case "FieldValueRequired":
                return required(where, message)
            case "FieldValueDuplicate":
                return duplicate(where, shown)
        return invalid(where, shown, message)

    def _message(self, rule: CompiledRule, bindings: JsonObject, where: str, type_name: str) -> str:
        """Result of the message expression; "" if it fails, to fall back to the message."""
        if rule.message_program is None:
            return ""
        outcome = rule.message_program.run(bindings)
        if outcome.cost > self._budget:
            detail = (
                "messageExpression evaluation failed due to running out of cost budget, no further"
                " validation rules will be run"
            )
            raise _OutOfBudget(invalid(where, type_name, detail))
        self._budget -= outcome.cost
        if isinstance(outcome.error, CostLimitExceededError):
            source = rule.message_program.expression
            detail = (
                "no further validation rules will be run due to call cost exceeds limit for"
                f' messageExpression: "{source}"'
            )
            raise _OutOfBudget(invalid(where, type_name, detail))
        if isinstance(outcome.error, EvaluationError) or not isinstance(outcome.value, str):
            return ""
        text = outcome.value.strip()
        return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


_ROOT = "<nil>"
"""Upstream: a problem of the whole object has no path, which Go prints like this."""
_NO_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
