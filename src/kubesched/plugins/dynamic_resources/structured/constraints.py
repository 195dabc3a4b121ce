"""matchAttribute and distinctAttribute: constraints across the devices of several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubesched.api.resource_v1 import Device, DeviceAttribute, DeviceConstraint

AttributeValue = tuple[str, str | int | bool] | None
"""Type and value; None for a value that cannot be compared."""


class Constraint(Protocol):
    """Tracks the devices picked for one claim. Each successful `add` has at most one `remove`."""

    def add(self, request: str, sub_request: str, device: Device, driver: str) -> bool:
        """Add the device, unless the constraint forbids it."""
        ...

    def remove(self, request: str, sub_request: str) -> None: ...


class _Scoped:
    """A constraint on the requests it names, or on all."""

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        self._requests = frozenset(requests or ())
        self._attribute = attribute
        self._count = 0

    def _applies(self, request: str, sub_request: str) -> bool:
        """`request` covers all its alternatives, `request/sub` only that one."""
        return (
            not self._requests
            or request in self._requests
            or (bool(sub_request) and f"{request}/{sub_request}" in self._requests)
        )


class MatchAttribute(_Scoped):
    """All devices have the same value of the attribute; the first device sets it."""

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: AttributeValue = None

    def add(self, request: str, sub_request: str, device: Device, driver: str) -> bool:
        if not self._applies(request, sub_request):
            return True
        attribute = lookup_attribute(device, driver, self._attribute)
        if attribute is None:
            return False
        value = value_of(attribute)
        if self._count == 0:
            self._value = value
        elif value is None or value != self._value:
            return False
        self._count += 1
        return True

    def remove(self, request: str, sub_request: str) -> None:
        if self._applies(request, sub_request):
            self._count -= 1


class DistinctAttribute(_Scoped):
    """No two devices share the attribute's value.

    # Upstream: one value is remembered per request. Each further device of a request replaces it,
    # and giving a device back forgets it, so within a request for three devices only neighbours are
    # compared.
    """

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, AttributeValue] = {}

    def add(self, request: str, sub_request: str, device: Device, driver: str) -> bool:
        if not self._applies(request, sub_request):
            return True
        attribute = lookup_attribute(device, driver, self._attribute)
        if attribute is None:
            return False
        value = value_of(attribute)
        if self._count and self._values and (value is None or value in self._values.values()):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def remove(self, request: str, sub_request: str) -> None:
        if self._applies(request, sub_request):
            self._values.pop(request, None)
            self._count -= 1


def make_constraint(constraint: DeviceConstraint) -> Constraint | None:
    """The constraint's implementation; None if its type is unknown."""
    if constraint.match_attribute is not None:
        return MatchAttribute(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return DistinctAttribute(constraint.requests, constraint.distinct_attribute)
    return None


def lookup_attribute(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """The attribute by its full name, or by its bare name if the domain is the driver's."""
    attributes = device.attributes or {}
    attribute = attributes.get(name)
    if attribute is not None:
        return attribute
    domain, slash, identifier = name.partition("/")
    return attributes.get(identifier) if slash and domain == driver else None


def value_of(attribute: DeviceAttribute) -> AttributeValue:
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return None
