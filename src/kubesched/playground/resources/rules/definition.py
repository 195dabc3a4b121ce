"""Validates rules of a definition, like `ValidateCustomResourceDefinitionOpenAPISchema`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kubesched.api.field_errors import (
    FieldError,
    forbidden,
    internal_error,
    invalid,
    not_supported,
    required,
)
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.schema.structural import EMBEDDED, RULES
from kubesched.playground.resources.rules.compilation import (
    SELF_TYPE,
    CompiledRule,
    compile_rules,
)
from kubesched.playground.resources.rules.declarations import MAX_REQUEST_BYTES, declare
from kubesched.playground.resources.rules.field_paths import normalize

RULE_COST_LIMIT = 10_000_000
DEFINITION_COST_LIMIT = 100_000_000
_MAX_UINT64 = 2**64 - 1
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a schema in the definition."""

    path: str
    is_root: bool = True
    most_values: int | None = 1
    """Maximum number of values of this schema in one object; None if unbounded."""
    uncorrelatable: str = ""
    """Path of an enclosing list whose items cannot be correlated with their old values."""


class _TotalCost:
    """Total cost of all rules of a schema, and the most expensive ones."""

    def __init__(self) -> None:
        self.total = 0
        self._dear: list[tuple[int, str]] = []

    def add(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, _MAX_UINT64)
        if cost >= DEFINITION_COST_LIMIT // 100:
            self._dear.append((cost, path))

    def problems(self, path: str) -> Iterator[FieldError]:
        if self.total <= DEFINITION_COST_LIMIT:
            return
        for _, dear in sorted(self._dear, key=lambda item: -item[0])[:4]:
            yield forbidden(
                dear,
                "contributed to estimated rule cost total exceeding cost limit for entire"
                " OpenAPIv3 schema",
            )
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden(path, _too_expensive(name, self.total, DEFINITION_COST_LIMIT))


def rule_problems(schema: JsonObject, path: str) -> list[FieldError]:
    """Problems of the rules in a version's schema."""
    total = _TotalCost()
    wrong, unfit = _walk(schema, _Place(path), total)
    return [*wrong, *unfit, *total.problems(path)]


_Problems = tuple[list[FieldError], list[FieldError]]
"""Problems of the schema, and of expressions; the latter are checked only without the former."""


def _walk(schema: JsonObject, place: _Place, total: _TotalCost) -> _Problems:
    wrong: list[FieldError] = []
    unfit: list[FieldError] = []
    for member, below in _members(schema, place):
        more_wrong, more_unfit = _walk(member, below, total)
        wrong += more_wrong
        unfit += more_unfit
    for index, rule in enumerate(schema.get(RULES) or ()):
        wrong += _shape_problems(rule, schema, f"{place.path}.{RULES}[{index}]")
    if schema.get(RULES) and not wrong:
        unfit += _expression_problems(schema, place, total)
    return wrong, unfit


def _members(schema: JsonObject, place: _Place) -> Iterator[tuple[JsonObject, _Place]]:
    most = _times(place.most_values, _most_elements(schema))
    below = replace(place, most_values=most, is_root=False)

    def member(
        value: Json, path: str, above: _Place = below
    ) -> Iterator[tuple[JsonObject, _Place]]:
        if isinstance(value, dict):
            yield (
                value,
                replace(above, path=f"{place.path}.{path}", is_root=bool(value.get(EMBEDDED))),
            )

    yield from member(schema.get("additionalProperties"), "additionalProperties")
    for name, value in (schema.get("properties") or {}).items():
        yield from member(value, f"properties[{name}]")
    items = below
    if schema.get("x-kubernetes-list-type") != "map":
        items = replace(below, uncorrelatable=place.uncorrelatable or place.path)
    yield from member(schema.get("items"), "items", items)


def _most_elements(schema: JsonObject) -> int | None:
    limit: int | None = 1
    if schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    elif schema.get("type") == "array":
        limit = schema.get("maxItems")
    return None if limit is None else max(limit, 0)


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one * other, _MAX_UINT64)


def _shape_problems(rule: JsonObject, schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Problems of a rule's fields, apart from its expressions."""
    message, source = rule.get("message") or "", (rule.get("rule") or "").strip()
    if not source:
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _has_line_breaks(message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_line_breaks(source) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = rule.get("messageExpression") or ""
    if expression and not expression.strip():
        yield required(
            f"{path}.messageExpression", "messageExpression must be non-empty if specified"
        )
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)
    field_path = rule.get("fieldPath") or ""
    if field_path and not field_path.strip():
        yield invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified")
    if _has_line_breaks(field_path):
        yield invalid(f"{path}.fieldPath", field_path, "must not contain line breaks")
    if field_path and normalize(field_path, schema) is None:
        yield invalid(f"{path}.fieldPath", field_path, "must be a valid path")


def _expression_problems(
    schema: JsonObject, place: _Place, total: _TotalCost
) -> Iterator[FieldError]:
    declaration = declare(schema, SELF_TYPE, is_root=place.is_root)
    if declaration is None:
        detail = (
            "internal error: failed to construct type information for x-kubernetes-validations"
            " rules: unable to convert structural schema to CEL declarations"
        )
        yield internal_error(f"{place.path}.{RULES}", detail)
        return
    most = place.most_values
    if most is None:
        most = MAX_REQUEST_BYTES // (declaration.smallest_bytes + 1)
    stated = schema[RULES]
    for index, compiled in enumerate(compile_rules(schema, declaration)):
        path = f"{place.path}.{RULES}[{index}]"
        cost = min(compiled.worst_cost * most, _MAX_UINT64)
        if cost > RULE_COST_LIMIT:
            yield forbidden(
                f"{path}.rule", _too_expensive("estimated rule cost", cost, RULE_COST_LIMIT)
            )
        total.add(f"{path}.rule", cost)
        if compiled.error:
            yield invalid(f"{path}.rule", _shown(stated[index]), compiled.error)
        yield from _message_problems(compiled, stated[index], path, total)
        yield from _old_self_problems(compiled, stated[index], path, place)


def _message_problems(
    compiled: CompiledRule, rule: JsonObject, path: str, total: _TotalCost
) -> Iterator[FieldError]:
    where, cost = f"{path}.messageExpression", compiled.message_worst_cost
    if compiled.message_error:
        yield invalid(where, _shown(rule), compiled.message_error)
    elif compiled.message_program is not None:
        if cost > RULE_COST_LIMIT:
            yield forbidden(
                where, _too_expensive("estimated messageExpression cost", cost, RULE_COST_LIMIT)
            )
        total.add(where, cost)


def _old_self_problems(
    compiled: CompiledRule, rule: JsonObject, path: str, place: _Place
) -> Iterator[FieldError]:
    if compiled.is_transition:
        if place.uncorrelatable:
            detail = (
                "oldSelf cannot be used on the uncorrelatable portion of the schema within"
                f" {place.uncorrelatable}"
            )
            yield invalid(f"{path}.rule", rule["rule"], detail)
    elif rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{path}.optionalOldSelf", rule["optionalOldSelf"], detail)


def _shown(rule: JsonObject) -> JsonObject:
    """A rule as upstream's messages show it: with the field names of its Go type."""
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _has_line_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _too_expensive(what: str, cost: int, limit: int) -> str:
    factor = float(cost) / float(limit)
    if factor > 100:
        shown = "more than 100x"
    elif factor < 1.5:
        shown = f"{factor:f}x"
    else:
        shown = f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems,"
        " maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
