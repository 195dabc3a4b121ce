"""Selectors: CEL expressions over the variable `device`.

`device` has the fields `driver`, `attributes` and `capacity` (maps by domain, then by name) and,
with consumable capacity, `allowMultipleAllocations`. A name without a domain belongs to the
driver's. A domain that the device does not have is an empty map; an unknown name within a domain is
an error.

A result depends only on the expression and the device's content, so it is cached by both: clusters
have few distinct devices and fewer expressions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from kubesched.api import cel, quantity
from kubesched.api.cel import types
from kubesched.api.resource_v1 import Device, DeviceAttribute

COST_LIMIT: Final = 1_000_000
"""Run-time cost at which the evaluation of a selector is cancelled."""

_ANSWERS_LIMIT: Final = 1 << 17
"""Maximum number of cached results; beyond it, all are dropped."""
_EXPRESSIONS_LIMIT: Final = 256
"""Maximum number of cached expressions; beyond it, all are dropped. An expression as long as the
API allows takes 0.7 MB when compiled, and claims may bring any number of them.
"""

_CAPACITY: Final = types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY))

_encode = msgspec.msgpack.Encoder().encode


class SelectorFailure(Exception):
    """The expression does not compile, or cannot be evaluated for this device."""

    def __init__(self, text: str, *, is_at_run_time: bool = False) -> None:
        super().__init__(text)
        self.is_at_run_time = is_at_run_time


class DeviceSelectors:
    """Evaluates selector expressions."""

    def __init__(
        self, *, consumable_capacity: bool = True, dynamic_attributes: bool = False
    ) -> None:
        self._environment = device_environment(
            consumable_capacity=consumable_capacity, dynamic_attributes=dynamic_attributes
        )
        self._dynamic_attributes = dynamic_attributes
        self._known: dict[str, _Known] = {}
        self._answer_count = 0

    def matches(self, expression: str, content: DeviceContent) -> bool:
        """Does the expression select a device with this content? Raises SelectorFailure."""
        known = self._known.get(expression)
        answer = None if known is None else known.answers.get(content.key)
        if answer is None:
            answer = self._evaluate(expression, content)
        if isinstance(answer, SelectorFailure):
            raise answer.with_traceback(None)
        return answer

    def _evaluate(self, expression: str, content: DeviceContent) -> bool | SelectorFailure:
        is_full = expression not in self._known and len(self._known) >= _EXPRESSIONS_LIMIT
        if is_full or self._answer_count >= _ANSWERS_LIMIT:
            self._known.clear()
            self._answer_count = 0
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = _Known(self._compile(expression))
        answer = known.answers[content.key] = self._evaluated(known.program, content)
        self._answer_count += 1
        return answer

    def _compile(self, expression: str) -> cel.Program | SelectorFailure:
        try:
            return compile_selector(expression, self._environment)
        except ValueError as error:
            return SelectorFailure(f"CEL compile error: {error}")

    def _evaluated(
        self, program: cel.Program | SelectorFailure, content: DeviceContent
    ) -> bool | SelectorFailure:
        if isinstance(program, SelectorFailure):
            return program
        try:
            device = content.variable(has_lists=self._dynamic_attributes)
            return _as_bool(program.evaluate({"device": device}))
        except (cel.EvaluationError, ValueError) as error:
            return SelectorFailure(f"CEL runtime error: {error}", is_at_run_time=True)


class _Known:
    """A compiled expression, and its results by content of the device."""

    __slots__ = ("answers", "program")

    def __init__(self, program: cel.Program | SelectorFailure) -> None:
        self.program = program
        self.answers: dict[bytes, bool | SelectorFailure] = {}


class DeviceContent:
    """The parts of a device that selectors can read."""

    __slots__ = ("_device", "_driver", "key")

    def __init__(self, driver: str, device: Device) -> None:
        self._driver = driver
        self._device = device
        capacity = device.capacity or {}
        amounts = {name: amount.value for name, amount in capacity.items()}
        shared = bool(device.allow_multiple_allocations)
        self.key = _encode((driver, device.attributes, amounts, shared))
        """Equal for devices that no expression can distinguish."""

    def variable(self, *, has_lists: bool = False) -> dict[str, Any]:
        """The value of `device`; raises ValueError for an attribute without a usable value.

        `has_lists`: attributes with several values are usable.
        """
        attributes: dict[str, dict[str, Any]] = {}
        for name, attribute in (self._device.attributes or {}).items():
            domain, identifier = self._qualified(name)
            value = _list_value(name, attribute) if has_lists else None
            if value is None:
                value = _attribute_value(name, attribute)
            attributes.setdefault(domain, {})[identifier] = value
        capacities: dict[str, dict[str, Any]] = {}
        for name, capacity in (self._device.capacity or {}).items():
            domain, identifier = self._qualified(name)
            capacities.setdefault(domain, {})[identifier] = quantity.parse(capacity.value)
        return {
            "driver": self._driver,
            "attributes": cel.DefaultMap(attributes, {}),
            "capacity": cel.DefaultMap(capacities, {}),
            "allowMultipleAllocations": bool(self._device.allow_multiple_allocations),
        }

    def _qualified(self, name: str) -> tuple[str, str]:
        domain, slash, identifier = name.partition("/")
        return (domain, identifier) if slash else (self._driver, name)


@lru_cache(maxsize=4)
def device_environment(
    *, consumable_capacity: bool = True, dynamic_attributes: bool = False
) -> cel.Environment:
    """The CEL environment of selectors in classes and claims.

    `dynamic_attributes`: they may have several values, which `includes` looks at. API servers still
    compile new expressions without.
    """
    attribute = types.DYN if dynamic_attributes else types.ANY
    by_domain = types.map_of(types.STRING, types.map_of(types.STRING, attribute))
    fields = {"driver": types.STRING, "attributes": by_domain, "capacity": _CAPACITY}
    if consumable_capacity:
        fields["allowMultipleAllocations"] = types.BOOL
    return cel.Environment(
        variables={"device": types.object_type("kubernetes.DRADevice", fields)},
        libraries=(*cel.KUBERNETES, cel.INCLUDES) if dynamic_attributes else cel.KUBERNETES,
        cost_limit=COST_LIMIT,
    )


def compile_selector(expression: str, environment: cel.Environment) -> cel.Program:
    """Compiles a selector expression; raises ValueError with upstream's text."""
    try:
        program = cel.compile(expression, environment)
    except cel.CompileError as error:
        raise ValueError(f"compilation failed: {error}") from error
    except cel.InstantiationError as error:
        raise ValueError(f"program instantiation failed: {error}") from error
    dynamic = types.DYN if cel.INCLUDES in environment.libraries else types.ANY
    if program.output_type not in (types.BOOL, dynamic):
        raise ValueError(f"must evaluate to bool or the unknown type, not {program.output_type}")
    return program


def _attribute_value(name: str, attribute: DeviceAttribute) -> Any:  # noqa: ANN401  # any CEL value
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is not None:
        try:
            return cel.parse_semver(attribute.version_value)
        except cel.EvaluationError as error:
            raise ValueError(f"attribute {name}: parse semantic version: {error}") from error
    raise ValueError(f"attribute {name}: unsupported attribute value")


def _list_value(name: str, attribute: DeviceAttribute) -> list[Any] | None:
    for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if values is not None:
            return list(values)
    if attribute.version_values is None:
        return None
    return [
        _attribute_value(name, DeviceAttribute(version_value=version))
        for version in attribute.version_values
    ]


_CONVERSIONS: Final = {
    "int": "unsupported type conversion from 'int' to bool",
    "string": "unsupported native conversion from string to 'bool'",
    "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
}


def _as_bool(value: Any) -> bool:  # noqa: ANN401  # any CEL value
    if isinstance(value, bool):
        return value
    name = cel.type_of(value).name
    problem = _CONVERSIONS.get(name, f"unsupported native conversion from {name} to 'bool'")
    raise ValueError(f"CEL result of type {name} could not be converted to bool: {problem}")
