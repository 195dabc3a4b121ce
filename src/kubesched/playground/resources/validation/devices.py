"""Validation shared by device classes, claims and slices."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from kubesched.api.field_errors import (
    duplicate,
    invalid,
    required,
    too_long,
    too_many,
)
from kubesched.api.names import (
    dns_1123_label_problems,
    dns_1123_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from kubesched.api.resource_v1 import MAX_SELECTORS
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.validation import Problems, numbered, one_of, refused
from kubesched.plugins.dynamic_resources.structured.selectors import (
    compile_selector,
    device_environment,
)

_MAX_TOLERATIONS = 16
_MAX_BINDING_CONDITIONS = 4
_MAX_DRIVER_NAME = 63
_MAX_POOL_NAME = 253
_MAX_IDENTIFIER = 32
_MAX_EXPRESSION = 10 * 1024
MAX_PARAMETERS = 10 * 1024
_OPERATORS = ("Equal", "Exists")
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_C_IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of"
    " alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for"
    " validation is '[A-Za-z_][A-Za-z0-9_]*')"
)

T = TypeVar("T")
Rule = Callable[[T, str], Problems]


# -- fields and lists -----------------------------------------------------------------------------


def fields(entry: JsonObject | None, path: str, **rules: Rule[Any]) -> Problems:
    """Problems of these fields, in this order; a missing field counts as empty."""
    for name, rule in rules.items():
        yield from rule((entry or {}).get(name) or "", f"{path}.{name}")


def items(limit: int, rule: Rule[T], key: Callable[[T], Json] | None = None) -> Rule[Sequence[T]]:
    """The rule for a list with a maximum length, reported first and alone, and unique keys."""

    def problems(entries: Sequence[T], path: str) -> Problems:
        if len(entries) > limit:
            yield too_many(path, len(entries), limit)
            return
        for here, entry in numbered(entries, path):
            yield from rule(entry, here)
        keys = [key(entry) for entry in entries] if key is not None else []
        for index, value in enumerate(keys):
            if value in keys[:index]:
                yield duplicate(f"{path}[{index}]", value)

    return problems


def chosen(*supported: str) -> Rule[str]:
    """The rule for a text that must be one of these."""
    return lambda value, path: one_of(value, supported, path) if value else [required(path)]


# -- names ----------------------------------------------------------------------------------------


def dns_label(value: str, path: str) -> Problems:
    return refused(path, value, dns_1123_label_problems(value))


def label_name(value: str, path: str) -> Problems:
    return refused(path, value, label_key_problems(value))


def _label_value(value: str, path: str) -> Problems:
    return refused(path, value, label_value_problems(value))


def driver_name(value: str, path: str) -> Problems:
    if not value:
        yield required(path)
        return
    if len(value) > _MAX_DRIVER_NAME:
        yield too_long(path, _MAX_DRIVER_NAME)
    yield from refused(path, value, dns_1123_subdomain_problems(value.lower()))


def pool_name(value: str, path: str) -> Problems:
    if not value:
        yield required(path)
        return
    if len(value) > _MAX_POOL_NAME:
        yield too_long(path, _MAX_POOL_NAME)
    for part in value.split("/"):
        yield from refused(path, part, dns_1123_subdomain_problems(part))


def qualified_name(value: str, path: str) -> Problems:
    """Problems of an attribute or capacity name: `id` or `domain/id`."""
    parts = value.split("/")
    if len(parts) == 1:
        yield from _identifier(value, path)
        return
    if len(parts) > 2:
        return  # Upstream: names with several slashes pass.
    domain, name = parts
    if domain:
        yield from driver_name(domain, path)
    else:
        yield invalid(path, "", "the domain must not be empty")
    if not name:
        yield invalid(path, "", "the name must not be empty")
        return
    yield from _identifier(name, path)


def fully_qualified_name(value: str, path: str) -> Problems:
    yield from qualified_name(value, path)
    if "/" not in value:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(path, value, detail)


def _identifier(value: str, path: str) -> Problems:
    if len(value) > _MAX_IDENTIFIER:
        yield too_long(path, _MAX_IDENTIFIER)
    if not _C_IDENTIFIER.fullmatch(value):
        yield invalid(path, value, _NOT_C_IDENTIFIER)


# -- selectors and configuration ------------------------------------------------------------------


def _selector(selector: JsonObject, path: str) -> Problems:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{path}.cel")]
    path = f"{path}.cel.expression"
    expression = cel.get("expression", "")
    if len(expression.encode()) > _MAX_EXPRESSION:
        return [too_long(path, _MAX_EXPRESSION)]
    problem = compile_problem(expression)
    return [invalid(path, expression, problem)] if problem else []


selectors = items(MAX_SELECTORS, _selector)


@lru_cache(maxsize=4096)
def compile_problem(expression: str) -> str:
    """Compile error of a selector, or "". Cached: selectors never change, claims often do."""
    try:
        compile_selector(expression, device_environment())
    except ValueError as error:
        return str(error)
    return ""


def device_configuration(config: JsonObject, path: str) -> Problems:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name(opaque.get("driver", ""), f"{path}.opaque.driver")
    yield from raw_object(opaque.get("parameters"), f"{path}.opaque.parameters")


def raw_object(value: Json, path: str) -> Problems:
    """Problems of opaque driver data: a JSON object of limited size."""
    if value is None:
        return [required(path)]
    if len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > MAX_PARAMETERS:
        return [too_long(path, MAX_PARAMETERS)]
    if not isinstance(value, dict):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    return []


# -- taints, tolerations, binding conditions ------------------------------------------------------


def device_taint(taint: JsonObject, path: str) -> Problems:
    yield from fields(taint, path, key=label_name, value=_label_value, effect=chosen(*_EFFECTS))


def _toleration(toleration: JsonObject, path: str) -> Problems:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        yield from label_name(key, f"{path}.key")
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from _label_value(value, f"{path}.value")
    else:
        yield from chosen(*_OPERATORS)(operator, f"{path}.operator")
    if effect:
        yield from one_of(effect, _EFFECTS, f"{path}.effect")


device_tolerations = items(_MAX_TOLERATIONS, _toleration)


def binding_conditions(device: JsonObject, path: str) -> Problems:
    """Problems of the binding conditions and binding failure conditions of a device."""
    wanted: list[str] = device.get("bindingConditions") or []
    failures: list[str] = device.get("bindingFailureConditions") or []
    at_wanted, at_failures = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    conditions = items(_MAX_BINDING_CONDITIONS, label_name)
    yield from fields(
        device, path, bindingConditions=conditions, bindingFailureConditions=conditions
    )
    yield from (
        duplicate(f"{at_wanted}[{index}]", condition)
        for index, condition in enumerate(wanted)
        if condition in wanted[:index]
    )
    for index, condition in enumerate(failures):
        here = f"{at_failures}[{index}]"
        if condition in failures[:index]:
            yield duplicate(here, condition)
        if condition in wanted:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(here, condition, detail)
    if failures and not wanted:
        detail = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(at_wanted, wanted or None, detail)
    if wanted and not failures:
        detail = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(at_failures, failures or None, detail)
