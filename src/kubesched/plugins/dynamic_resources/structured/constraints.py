"""matchAttribute and distinctAttribute: constraints across the devices of several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kubesched.api.resource_v1 import DeviceAttribute, DeviceConstraint
from kubesched.config.references import Reference
from kubesched.plugins.dynamic_resources.structured.pools import PooledDevice

AttributeValue = tuple[str, str | int | bool] | None
"""Type and value; None for a value that cannot be compared."""
_MISSING: Final = ("missing", "")


class Constraint(Protocol):
    """Tracks the devices picked for one claim. Each successful `add` has at most one `remove`."""

    def applies_to(self, request: str, sub_request: str) -> bool:
        """Does it cover the request? `request` covers its alternatives, `request/sub` only one."""
        ...

    def add(self, request: str, pooled: PooledDevice) -> bool:
        """Add the device, unless the constraint forbids it."""
        ...

    def remove(self, request: str) -> None:
        """Undo the last `add` for the request."""
        ...


class _Attribute:
    """An attribute of the devices of the requests that are named, or of all."""

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        self._requests = frozenset(requests or ())
        self._attribute = attribute
        self._known: dict[PooledDevice, AttributeValue] = {}

    def applies_to(self, request: str, sub_request: str) -> bool:
        return (
            not self._requests
            or request in self._requests
            or (bool(sub_request) and f"{request}/{sub_request}" in self._requests)
        )

    def _value_of(self, pooled: PooledDevice) -> AttributeValue:
        """The device's value, or `_MISSING`."""
        if pooled not in self._known:
            attribute = lookup_attribute(pooled, self._attribute)
            self._known[pooled] = _MISSING if attribute is None else value_of(attribute)
        return self._known[pooled]


class MatchAttribute(_Attribute):
    """All devices have the same value of the attribute; the first device sets it."""

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: AttributeValue = None
        self._count = 0

    def add(self, request: str, pooled: PooledDevice) -> bool:
        value = self._value_of(pooled)
        if value is _MISSING:
            return False
        if self._count == 0:
            self._value = value
        elif value is None or value != self._value:
            return False
        self._count += 1
        return True

    def remove(self, request: str) -> None:
        self._count -= 1


class DistinctAttribute(_Attribute):
    """No two devices share the attribute's value."""

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: list[AttributeValue] = []

    def add(self, request: str, pooled: PooledDevice) -> bool:
        value = self._value_of(pooled)
        if value is _MISSING or (self._values and (value is None or value in self._values)):
            return False
        self._values.append(value)
        return True

    def remove(self, request: str) -> None:
        self._values.pop()


class DistinctNeighbours(_Attribute):
    """No two devices share the attribute's value, as 1.36 sees it.

    # Upstream: one value is remembered per request. Each further device of a request replaces it,
    # and giving a device back forgets it, so within a request for three devices only neighbours are
    # compared.
    """

    def __init__(self, requests: Sequence[str] | None, attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, AttributeValue] = {}
        self._count = 0

    def add(self, request: str, pooled: PooledDevice) -> bool:
        value = self._value_of(pooled)
        if value is _MISSING:
            return False
        if self._count and self._values and (value is None or value in self._values.values()):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def remove(self, request: str) -> None:
        self._values.pop(request, None)
        self._count -= 1


def make_constraint(constraint: DeviceConstraint, reference: Reference) -> Constraint | None:
    """The constraint's implementation; None if its type is unknown."""
    if constraint.match_attribute is not None:
        return MatchAttribute(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        distinct = (
            DistinctAttribute if reference.distinct_attribute_counts_all else DistinctNeighbours
        )
        return distinct(constraint.requests, constraint.distinct_attribute)
    return None


def lookup_attribute(pooled: PooledDevice, name: str) -> DeviceAttribute | None:
    """The attribute by its full name, or by its bare name if the domain is the driver's."""
    attributes = pooled.device.attributes or {}
    attribute = attributes.get(name)
    if attribute is not None:
        return attribute
    domain, slash, identifier = name.partition("/")
    return attributes.get(identifier) if slash and domain == pooled.id.driver else None


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
