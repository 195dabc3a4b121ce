"""CEL rules of structural schemas (`x-kubernetes-validations`): compiled with the definition, evaluated on every write.

`self` is the value the rule stands on, `oldSelf` the same value before an update; a rule that mentions `oldSelf` is
evaluated only where there is one. Items of a list have a predecessor if the list is a map by keys.

Expressions are not checked against the schema's types: a misspelt field is an error when the rule is evaluated, not when
the definition is written. Strings are strings, whatever their `format`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kubesched.api.field_errors import OMITTED, FieldError, duplicate, forbidden, invalid, required
from kubesched.cel import (
    KUBERNETES,
    CompileError,
    Environment,
    EvaluationError,
    InstantiationError,
    Program,
    compile,
    types,
)
from kubesched.embedded.objects import Json, JsonObject
from kubesched.embedded.resources.structural_schema import RULES

COST_LIMIT = 1_000_000
"""Of one rule on one value; upstream's limit per call."""

_ENVIRONMENT = Environment(
    variables={"self": types.DYN, "oldSelf": types.DYN}, libraries=KUBERNETES, cost_limit=COST_LIMIT
)
_OLD_SELF = re.compile(r"\boldSelf\b")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class _Rule:
    source: str
    program: Program
    message: str
    message_program: Program | None
    reason: str
    field_path: str
    is_transition: bool


@dataclass(frozen=True, slots=True)
class _Node:
    """The rules of one place in a schema, and the places below it that have any."""

    rules: tuple[_Rule, ...]
    type: str
    properties: dict[str, _Node]
    additional: _Node | None
    items: _Node | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """All rules of a schema."""

    root: _Node

    def problems(self, new: JsonObject, old: JsonObject | None) -> list[FieldError]:
        """The rules that an object breaks; without an old version, those about changes are left out."""
        return list(_evaluate(self.root, new, _MISSING if old is None else old, ""))


def rule_problems(schema: JsonObject, path: str) -> list[FieldError]:
    """Rules of a schema that are not CEL."""
    problems: list[FieldError] = []
    if not isinstance(schema, dict):
        return problems  # reported with the structure of the schema
    for index, rule in enumerate(schema.get(RULES) or ()):
        try:
            _compile(rule)
        except (CompileError, InstantiationError) as error:
            where = f"{path}.{RULES}[{index}].rule"
            problems.append(invalid(where, rule.get("rule", ""), f"compilation failed: {error}"))
    for name, member in (schema.get("properties") or {}).items():
        problems += rule_problems(member, f"{path}.properties[{name}]")
    for field in ("items", "additionalProperties"):
        if isinstance(schema.get(field), dict):
            problems += rule_problems(schema[field], f"{path}.{field}")
    return problems


def compile_rules(schema: JsonObject) -> SchemaRules | None:
    """The rules of a schema that has passed `rule_problems`; None if it has none."""
    root = _node(schema)
    return SchemaRules(root) if root is not None else None


def _node(schema: Json) -> _Node | None:
    if not isinstance(schema, dict):
        return None
    rules = tuple(_compile(rule) for rule in schema.get(RULES) or ())
    members = ((name, _node(member)) for name, member in (schema.get("properties") or {}).items())
    properties = {name: node for name, node in members if node is not None}
    additional, items = _node(schema.get("additionalProperties")), _node(schema.get("items"))
    if not rules and not properties and additional is None and items is None:
        return None
    is_map = schema.get("x-kubernetes-list-type") == "map"
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()
    return _Node(rules, schema.get("type") or "", properties, additional, items, keys)


def _compile(rule: JsonObject) -> _Rule:
    source = rule.get("rule", "")
    expression = rule.get("messageExpression")
    return _Rule(
        source=source,
        program=compile(source, _ENVIRONMENT),
        message=rule.get("message") or f"failed rule: {source}",
        message_program=compile(expression, _ENVIRONMENT) if expression else None,
        reason=rule.get("reason") or "FieldValueInvalid",
        field_path=rule.get("fieldPath") or "",
        is_transition=_OLD_SELF.search(source) is not None,
    )


def _evaluate(node: _Node, new: Json, old: object, path: str) -> Iterator[FieldError]:
    for rule in node.rules:
        if not rule.is_transition or old is not _MISSING:
            problem = _problem(node, rule, new, old, path)
            if problem is not None:
                yield problem
    if isinstance(new, dict):
        for name, value in new.items():
            before = old.get(name, _MISSING) if isinstance(old, dict) else _MISSING
            if name in node.properties:
                here = f"{path}.{name}" if path else name
                yield from _evaluate(node.properties[name], value, before, here)
            elif node.additional is not None:
                yield from _evaluate(node.additional, value, before, f"{path}[{name}]")
    elif isinstance(new, list) and node.items is not None:
        for index, item in enumerate(new):
            before = _predecessor(node.keys, item, old)
            yield from _evaluate(node.items, item, before, f"{path}[{index}]")


def _predecessor(keys: tuple[str, ...], item: Json, old: object) -> object:
    if keys and isinstance(old, list) and isinstance(item, dict):
        for candidate in old:
            if isinstance(candidate, dict) and all(
                candidate.get(key) == item.get(key) for key in keys
            ):
                return candidate
    return _MISSING


def _problem(node: _Node, rule: _Rule, new: Json, old: object, path: str) -> FieldError | None:
    bindings = {"self": new, "oldSelf": None if old is _MISSING else old}
    try:
        holds = rule.program.evaluate(bindings)
    except EvaluationError as error:
        words = rule.message.removeprefix("failed rule: ")
        return invalid(path, node.type, f"{error} evaluating rule: {words}")
    if holds is True:
        return None
    if holds is not False:
        return invalid(path, node.type, "cel expression must evaluate to a bool")
    message = rule.message
    if rule.message_program is not None:
        message = _message(rule.message_program, bindings) or message
    where = path + rule.field_path
    if rule.reason == "FieldValueForbidden":
        return forbidden(where, message)
    if rule.reason == "FieldValueRequired":
        return required(where, message)
    if rule.reason == "FieldValueDuplicate":
        return duplicate(where, new)
    shown = OMITTED if isinstance(new, dict | list) else new
    return invalid(where, shown, message)


def _message(program: Program, bindings: JsonObject) -> str:
    """What a message expression says; nothing if it fails, so that the message counts."""
    try:
        text = program.evaluate(bindings)
    except EvaluationError:
        return ""
    return text.strip() if isinstance(text, str) and "\n" not in text else ""
