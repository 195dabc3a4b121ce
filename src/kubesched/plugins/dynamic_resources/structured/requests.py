"""A claim's requests, prepared for the search, and the checks made before it starts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kubesched.api.names import key_of
from kubesched.api.resource_v1 import (
    MAX_ALLOCATION_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from kubesched.plugins.dynamic_resources.structured.capacity import Requested
from kubesched.plugins.dynamic_resources.structured.constraints import Constraint, make_constraint
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import Pool, PooledDevice

EXACT_COUNT = "ExactCount"
ALL = "All"

ClassLookup = Callable[[str], DeviceClass | None]
Eligible = Callable[["Request", PooledDevice], bool]
"""Can the device serve the request, ignoring other picks? Raises AllocationError."""


@dataclass(slots=True, eq=False)
class Request:
    """Devices of one class: an exact request, or one alternative of a prioritized list."""

    claim: ResourceClaim
    name: str
    parent: str
    """The request that this is an alternative of; empty for an exact request."""
    device_class: DeviceClass
    mode: str
    count: int
    has_admin_access: bool
    selectors: Sequence[DeviceSelector]
    tolerations: Sequence[DeviceToleration]
    capacity: Requested
    all_devices: list[PooledDevice] = field(default_factory=list)
    """For mode All: the devices, determined before the search."""
    constraints: list[Constraint] = field(default_factory=list)
    """The claim's constraints that cover the request, in order."""

    @property
    def base_name(self) -> str:
        """The name of the claim's request."""
        return self.parent or self.name

    @property
    def sub_name(self) -> str:
        return self.name if self.parent else ""

    @property
    def full_name(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def wants_all(self) -> bool:
        return self.mode == ALL


@dataclass(slots=True, eq=False)
class ClaimRequests:
    """A claim's requests, each with its alternatives; an exact request has one."""

    claim: ResourceClaim
    requests: list[list[Request]]


class Checker:
    """Turns claims into `ClaimRequests`; raises AllocationError for unsupported claims."""

    def __init__(
        self, features: Features, classes: ClassLookup, pools: Sequence[Pool], is_eligible: Eligible
    ) -> None:
        self._features = features
        self._classes = classes
        self._pools = pools
        self._is_eligible = is_eligible

    def check(self, claim: ResourceClaim) -> ClaimRequests:
        requests = []
        fewest = 0
        for request in claim.spec.devices.requests or ():
            alternatives = self._alternatives(claim, request)
            requests.append(alternatives)
            fewest += min(alternative.count for alternative in alternatives)
        if fewest > MAX_ALLOCATION_RESULTS:
            raise AllocationError(
                f"claim {key_of(claim.metadata)}: number of requested devices {fewest} exceeds "
                f"the claim limit of {MAX_ALLOCATION_RESULTS}"
            )
        constraints = self._constraints(claim)
        for alternative in itertools.chain.from_iterable(requests):
            alternative.constraints = [
                constraint
                for constraint in constraints
                if constraint.applies_to(alternative.base_name, alternative.sub_name)
            ]
        return ClaimRequests(claim, requests)

    def _alternatives(self, claim: ResourceClaim, request: DeviceRequest) -> list[Request]:
        self._check_gates(claim, request)
        if request.first_available:
            return [self._request(claim, sub, request.name) for sub in request.first_available]
        return [self._request(claim, request.exactly or ExactDeviceRequest(), "", request.name)]

    def _check_gates(self, claim: ResourceClaim, request: DeviceRequest) -> None:
        features, subject = (
            self._features,
            f"claim {key_of(claim.metadata)}, request {request.name}",
        )
        if request.first_available and not features.prioritized_list:
            raise AllocationError(
                f"{subject}: has subrequests, but the DRAPrioritizedList feature is disabled"
            )
        if features.consumable_capacity:
            return
        disabled = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        if request.exactly is not None and request.exactly.capacity is not None:
            raise AllocationError(f"{subject}: {disabled}")
        for sub in request.first_available or ():
            if sub.capacity is not None:
                raise AllocationError(
                    f"claim {key_of(claim.metadata)}, subrequest {sub.name}: {disabled}"
                )

    def _request(
        self,
        claim: ResourceClaim,
        asked: ExactDeviceRequest | DeviceSubRequest,
        parent: str,
        name: str = "",
    ) -> Request:
        if isinstance(asked, DeviceSubRequest):
            name, admin_access = asked.name, None
        else:
            admin_access = asked.admin_access
        subject = f"claim {key_of(claim.metadata)}, request {name}"
        if asked.derived_attributes and self._features.reference.alpha_device_fields_are_refused:
            raise AllocationError(
                f"{subject}: cannot handle request with derived attributes, the feature is disabled"
            )
        for index, selector in enumerate(asked.selectors or ()):
            if selector.cel is None:
                raise AllocationError(
                    f"{subject}, selector #{index}: CEL expression empty "
                    "(unsupported selector type?)"
                )
        if admin_access is not None and not self._features.admin_access:
            raise AllocationError(
                f"{subject}: admin access is requested, but the feature is disabled"
            )
        request = Request(
            claim=claim,
            name=name,
            parent=parent,
            device_class=self._class(asked.device_class_name, subject),
            mode=asked.allocation_mode,
            count=asked.count,
            has_admin_access=bool(admin_access),
            selectors=asked.selectors or (),
            tolerations=asked.tolerations or (),
            capacity=(asked.capacity.requests if asked.capacity is not None else None) or {},
        )
        if request.wants_all:
            request.all_devices = self._all_devices(request, subject)
            request.count = len(request.all_devices)
        elif request.mode != EXACT_COUNT:
            raise AllocationError(f"{subject}: unsupported count mode {request.mode}")
        return request

    def _class(self, name: str, subject: str) -> DeviceClass:
        if not name:
            raise AllocationError(
                f"{subject}: missing device class name (unsupported request type?)"
            )
        device_class = self._classes(name)
        if device_class is None:
            raise AllocationError(
                f"{subject}: could not retrieve device class {name}: "
                f'deviceclass.resource.k8s.io "{name}" not found'
            )
        return device_class

    def _all_devices(self, request: Request, subject: str) -> list[PooledDevice]:
        """Every eligible device; an incomplete pool of any driver is an error."""
        devices = []
        for pool in self._pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"{subject}: asks for all devices, "
                    f"but resource pool {pool} is currently {state}"
                )
            devices += [pooled for pooled in pool.devices if self._is_eligible(request, pooled)]
        return devices

    def _constraints(self, claim: ResourceClaim) -> list[Constraint]:
        constraints = []
        for index, constraint in enumerate(claim.spec.devices.constraints or ()):
            made = make_constraint(constraint, self._features.reference)
            if made is None:
                raise AllocationError(
                    f"claim {key_of(claim.metadata)}, constraint #{index}: empty constraint "
                    "(unsupported constraint type?)"
                )
            constraints.append(made)
        return constraints
