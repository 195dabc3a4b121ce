"""resource.k8s.io/v1: devices offered by drivers, and claims of pods to them."""

from __future__ import annotations

from typing import Any

from msgspec import field

from kubesched.api.core_v1 import NodeSelector, Taint, Toleration
from kubesched.api.meta import Condition, ObjectMeta, RawQuantity, Record, constant

FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
POD_CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
DEVICE_CLASS_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"

# Limits enforced by the API server.
MAX_ALLOCATION_RESULTS = 32
MAX_RESERVED_FOR = 256
MAX_FIRST_AVAILABLE = 8
MAX_SELECTORS = 32
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32

# -- offers of drivers -----------------------------------------------------------------------------


class DeviceAttribute(Record):
    """A property of a device: exactly one of the values is set."""

    int_value: int | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string_value: str | None = field(name="string", default=None)
    version_value: str | None = field(name="version", default=None)
    int_values: list[int] | None = field(name="ints", default=None)
    bool_values: list[bool] | None = field(name="bools", default=None)
    string_values: list[str] | None = field(name="strings", default=None)
    version_values: list[str] | None = field(name="versions", default=None)


class CapacityRequestPolicyRange(Record):
    """Bounds and step of a capacity request."""

    min: RawQuantity | None = None
    max: RawQuantity | None = None
    step: RawQuantity | None = None


class CapacityRequestPolicy(Record):
    """How a request for part of a capacity is rounded and bounded."""

    default: RawQuantity | None = None
    valid_values: list[RawQuantity] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Record):
    """A capacity of a device."""

    value: RawQuantity = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Record):
    """An amount that partitions of a device draw from."""

    value: RawQuantity = 0


class CounterSet(Record):
    """Counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(Record):
    """Consumption from a counter set when a device is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: list[str] | None = None


class DeviceTaint(Taint):
    """A mark on a device that repels claims without a matching toleration."""


class NodeAllocatableResourceMapping(Record):
    """How much of a node resource an allocated device represents."""

    capacity_key: str | None = None
    allocation_multiplier: RawQuantity | None = None


class Device(Record):
    """One device, or one possible partition of a device."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] | None = None


class ResourcePool(Record):
    """The pool of a slice; it is complete when all slices of a generation are present."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Record):
    """Devices of one driver that are reachable from the same nodes."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Record):
    """Part of a driver's pool of devices."""

    kind: str = constant("ResourceSlice")
    api_version: str = constant("resource.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# -- taints set by administrators ------------------------------------------------------------------


class DeviceTaintSelector(Record):
    """Selects devices; an absent field matches all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record):
    """A taint and the devices it applies to."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(Record):
    """Progress of the eviction."""

    conditions: list[Condition] | None = None


class DeviceTaintRule(Record):
    """Adds a taint to every device it selects."""

    kind: str = constant("DeviceTaintRule")
    api_version: str = constant("resource.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()


# -- requests of pods ------------------------------------------------------------------------------


class CELDeviceSelector(Record):
    """A CEL expression over `device`."""

    expression: str = ""


class DeviceSelector(Record):
    """A condition a device must meet."""

    cel: CELDeviceSelector | None = None


class DeviceToleration(Toleration):
    """Which device taints a request tolerates."""


class CapacityRequirements(Record):
    """How much of a shared device's capacity is requested."""

    requests: dict[str, RawQuantity] | None = None


class DeviceDerivedAttribute(Record):
    """An attribute that a request computes from a device's own ones."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(Record):
    """A number of devices of one class, or all of them."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] | None = None


class DeviceSubRequest(Record):
    """One of several alternatives, best first."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] | None = None


class DeviceRequest(Record):
    """The requested devices: exactly this, or the first available alternative."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceConstraint(Record):
    """An attribute that devices of several requests must, or must not, share."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Record):
    """Settings interpreted only by the driver."""

    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(Record):
    """Settings for some of a claim's requests, or all."""

    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Record):
    """Requests, constraints between them, and settings."""

    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceClaimConfiguration] | None = None


class ResourceClaimSpec(Record):
    """The requested devices."""

    devices: DeviceClaim = DeviceClaim()


# -- allocations -----------------------------------------------------------------------------------


class DeviceRequestAllocationResult(Record):
    """A device allocated for a request (`request`, or `request/sub-request`)."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = None
    consumed_capacity: dict[str, RawQuantity] | None = None
    skip_node_operations: list[str] | None = None


class DeviceAllocationConfiguration(Record):
    """Settings of the allocation, from the class or from the claim."""

    source: str = ""
    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Record):
    """The allocated devices and their settings."""

    results: list[DeviceRequestAllocationResult] | None = None
    config: list[DeviceAllocationConfiguration] | None = None


class AllocationResult(Record):
    """The allocated devices and the nodes that can use them."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Record):
    """A consumer that may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(Record):
    """Addresses of an allocated network device."""

    interface_name: str = ""
    ips: list[str] | None = None
    hardware_address: str = ""


class AllocatedDeviceStatus(Record):
    """What the driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = None
    conditions: list[Condition] | None = None
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Record):
    """The allocation of the claim and its consumers."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ResourceClaim(Record):
    """A claim to devices, used by one or more pods."""

    kind: str = constant("ResourceClaim")
    api_version: str = constant("resource.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Record):
    """The claim to create for each pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Record):
    """Template for claims of pods."""

    kind: str = constant("ResourceClaimTemplate")
    api_version: str = constant("resource.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassConfiguration(Record):
    """Settings for every claim of a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Record):
    """Which devices belong to a class."""

    selectors: list[DeviceSelector] | None = None
    config: list[DeviceClassConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Record):
    """A kind of device that claims request by name."""

    kind: str = constant("DeviceClass")
    api_version: str = constant("resource.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
