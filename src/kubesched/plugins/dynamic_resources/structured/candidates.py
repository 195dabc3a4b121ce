"""Candidates: a device considered for a request, with all that does not change during the search.

Class, selectors, request policy, taints and what claims already hold are looked at once for each
pair, when the search first comes to it; a step of the search only compares numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api import quantity
from kubesched.api.core_v1 import Node
from kubesched.api.names import key_of
from kubesched.api.quantity import Quantity
from kubesched.api.resource_v1 import Device, DeviceSelector, DeviceTaint, DeviceToleration
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState, Amounts
from kubesched.plugins.dynamic_resources.structured.capacity import CapacityError, Demand, Policies
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import PooledDevice, node_matches
from kubesched.plugins.dynamic_resources.structured.requests import Request
from kubesched.plugins.dynamic_resources.structured.selectors import (
    DeviceContent,
    DeviceSelectors,
    SelectorFailure,
)

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


class Candidate:
    """A device that a request selects. While it is picked, also what the pick has taken."""

    __slots__ = (
        "amounts",
        "consumed",
        "has_charged",
        "is_charged_already",
        "is_refused",
        "pooled",
        "request",
        "room",
        "was_shared",
    )

    def __init__(
        self,
        request: Request,
        pooled: PooledDevice,
        demand: Demand,
        allocated: AllocatedState,
        features: Features,
    ) -> None:
        device = pooled.device
        self.request = request
        self.pooled = pooled
        self.amounts: Amounts = {name: amount.nanos for name, amount in demand.items()}
        """What the request takes of each capacity."""
        offered = device.capacity or {}
        self.room: Amounts = {name: quantity.nanos(offered[name].value) for name in offered}
        """What claims leave of each capacity."""
        for name, amount in (allocated.capacity.get(pooled.id) or {}).items():
            if name in self.room:
                self.room[name] -= amount
        self.consumed: dict[str, Quantity] | None = None
        """For a shareable device: what a share consumes."""
        if features.consumable_capacity and device.allow_multiple_allocations:
            self.consumed = demand
        self.is_refused = bool(
            (features.device_taints and is_repelled(device, request.tolerations))
            or (pooled.charges and not features.partitionable_devices)
        )
        """Can never be taken: a taint, or counters that are not supported."""
        self.is_charged_already = self.consumed is not None and (
            pooled.id in allocated.capacity
            or (features.reference.shared_counters_charged_once and pooled.id in allocated.shares)
        )
        """Another claim has a share of the device and pays for its counters."""
        self.has_charged = False
        """While picked: whether the pick pays for the device's counters."""
        self.was_shared = False
        """While picked: whether the attempt had picked a share of the device before."""

    def has_room(self, picked: Amounts | None) -> bool:
        """Is enough left, given what this attempt has already picked?"""
        room = self.room
        for name, amount in self.amounts.items():
            if amount + (picked.get(name, 0) if picked else 0) > room[name]:
                return False
        return True


class Candidates:
    """The candidates on one node."""

    def __init__(
        self,
        selectors: DeviceSelectors,
        node: Node,
        allocated: AllocatedState,
        features: Features,
    ) -> None:
        self._selectors = selectors
        self._node = node
        self._allocated = allocated
        self._features = features
        self._policies = Policies(features)
        self._names_the_device = features.reference.cel_errors_name_the_device
        self._known: dict[tuple[Request, PooledDevice], Candidate | None] = {}

    def of(self, request: Request, pooled: PooledDevice, called: str = "") -> Candidate | None:
        """The candidate; None if the request does not select the device.

        Raises AllocationError, in which a device whose capacity is the problem is `called` so.
        """
        key = (request, pooled)
        if key in self._known:
            return self._known[key]
        candidate = self._known[key] = self._make(request, pooled, called)
        return candidate

    def for_all(self, request: Request, pooled: PooledDevice) -> bool:
        """Does the device belong to all devices that the request asks for? Raises like `of`."""
        candidate = self.of(request, pooled, pooled.id.device)
        if candidate is None:
            return False
        if not self._features.reference.full_devices_fail_all:
            return candidate.has_room(None)
        values = pooled.device.capacity or {}
        return all(
            amount <= quantity.nanos(values[name].value)
            for name, amount in candidate.amounts.items()
        )

    def _make(self, request: Request, pooled: PooledDevice, called: str) -> Candidate | None:
        if not self._is_selected(request, pooled):
            return None
        demand: Demand | None = {}
        if self._features.consumable_capacity:
            try:
                demand = self._policies.demand(pooled.device, request.capacity)
            except CapacityError as error:
                raise AllocationError(
                    f"claim {key_of(request.claim.metadata)}, request {request.name}: "
                    f"checking capacity for device {called or pooled.id}: {error}"
                ) from error
        if demand is None:
            return None
        return Candidate(request, pooled, demand, self._allocated, self._features)

    def _is_selected(self, request: Request, pooled: PooledDevice) -> bool:
        device = pooled.device
        if not self._features.binding_conditions and device.binding_conditions:
            return False
        content = DeviceContent(pooled.id.driver, device)
        device_class = request.device_class
        subject = f"class {device_class.metadata.name}"
        if not self._all_match(device_class.spec.selectors or (), pooled, content, subject):
            return False
        subject = f"claim {key_of(request.claim.metadata)}"
        if not self._all_match(request.selectors, pooled, content, subject):
            return False
        if pooled.slice.spec.per_device_node_selection:
            return node_matches(
                self._node, device.node_name, device.all_nodes, device.node_selector
            )
        return True

    def _all_match(
        self,
        selectors: Sequence[DeviceSelector],
        pooled: PooledDevice,
        content: DeviceContent,
        subject: str,
    ) -> bool:
        for index, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel is not None else ""
            try:
                if not self._selectors.matches(expression, content):
                    return False
            except SelectorFailure as failure:
                where = f"{subject}: selector #{index}"
                if self._names_the_device and failure.is_at_run_time:
                    raise AllocationError(
                        f"{where} on device {pooled.id}: {failure}{_hint(failure)}"
                    ) from failure
                raise AllocationError(f"{where}: {failure}") from failure
        return True


def _hint(failure: SelectorFailure) -> str:
    """What to do about an attribute that not every device has."""
    if "no such key:" not in str(failure):
        return ""
    return (
        ". consider using CEL optional chaining (.? followed by orValue()) "
        "or guarding the check with has() for optional fields"
    )


def is_repelled(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Does the device have an untolerated blocking taint? Unknown effects never block."""
    return any(
        taint.effect in _BLOCKING
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in device.taints or ()
    )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and (toleration.value or "") == (taint.value or "")
