"""The pools of a node: which devices it can reach, in search order.

Slices that the node can reach are grouped by driver and pool; only the highest generation of each
group counts. A pool with missing slices is incomplete, one that contradicts itself is invalid.
Neither offers devices, but both are kept, because a request for all devices must reject them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kubesched.api import quantity
from kubesched.api.core_v1 import Node, NodeSelector, NodeSelectorRequirement
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.resource_v1 import CounterSet, Device, ResourceSlice
from kubesched.config.references import DEFAULT_REFERENCE, Reference
from kubesched.plugins.dynamic_resources.structured.allocated_state import DeviceID
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.helper.grouping import leave_group

PoolID = tuple[str, str]
"""Driver and pool name."""


CounterKey = tuple[str, str]
"""Counter set and counter."""


class PooledDevice:
    """A device and its slice and pool."""

    __slots__ = ("charges", "device", "id", "pool", "slice")

    def __init__(self, device: Device, slice_: ResourceSlice, pool: Pool) -> None:
        self.device = device
        self.slice = slice_
        self.pool = pool
        self.id = DeviceID(*pool.id, device.name)
        self.charges: dict[CounterKey, int] = {}
        """What the device consumes of the pool's counters, in nanos."""
        for consumed in device.consumes_counters or ():
            for name, counter in (consumed.counters or {}).items():
                key = (consumed.counter_set, name)
                self.charges[key] = self.charges.get(key, 0) + quantity.nanos(counter.value)


@dataclass(slots=True, eq=False)
class Pool:
    """Devices of one driver and pool that a node can reach."""

    id: PoolID
    devices: list[PooledDevice] = field(default_factory=list)
    elsewhere: list[PooledDevice] = field(default_factory=list)
    """Devices of the pool that only other nodes can reach; their counters count, too."""
    counter_sets: dict[str, CounterSet] = field(default_factory=dict)
    is_incomplete: bool = False
    invalid_reason: str = ""

    @property
    def is_usable(self) -> bool:
        return not self.is_incomplete and not self.invalid_reason

    @property
    def has_binding_conditions(self) -> bool:
        return any(pooled.device.binding_conditions is not None for pooled in self.devices)

    def __str__(self) -> str:
        return "/".join(self.id)


class Slices:
    """All slices of the cluster, indexed by node and by pool. Their order is not significant."""

    __slots__ = (
        "_by_node",
        "_by_pool",
        "_ignored",
        "_node_versions",
        "_reference",
        "_shared",
        "_shared_version",
        "version",
    )

    def __init__(
        self,
        slices: Iterable[ResourceSlice] = (),
        reference: Reference = DEFAULT_REFERENCE,
    ) -> None:
        self._reference = reference
        self._ignored: set[str] = set()
        """Names of slices that need a feature which is not supported."""
        self._by_node: dict[str, dict[str, ResourceSlice]] = {}
        self._shared: dict[str, ResourceSlice] = {}
        self._by_pool: dict[PoolID, dict[str, ResourceSlice]] = {}
        self.version = 0
        """Grows with every change."""
        self._node_versions: dict[str, int] = {}
        self._shared_version = 0
        for resource_slice in slices:
            self.add(resource_slice)

    def add(self, slice_: ResourceSlice) -> None:
        name, spec = slice_.metadata.name, slice_.spec
        if self._reference.alpha_device_fields_are_refused and _has_compatibility_groups(slice_):
            self._ignored.add(name)
        node_name = self._only_node(slice_)
        if node_name:
            self._by_node.setdefault(node_name, {})[name] = slice_
        else:
            self._shared[name] = slice_
        pool = (spec.driver, spec.pool.name)
        self._by_pool.setdefault(pool, {})[name] = slice_
        self._note_change(slice_, pool)

    def remove(self, slice_: ResourceSlice) -> None:
        name, spec = slice_.metadata.name, slice_.spec
        self._ignored.discard(name)
        node_name = self._only_node(slice_)
        if node_name:
            leave_group(self._by_node, node_name, name)
        else:
            self._shared.pop(name, None)
        pool = (spec.driver, spec.pool.name)
        leave_group(self._by_pool, pool, name)
        self._note_change(slice_, pool)

    def version_for(self, node_name: str) -> tuple[int, int]:
        """Changes with every change that may concern the node's pools."""
        return self._node_versions.get(node_name, 0), self._shared_version

    def _note_change(self, changed: ResourceSlice, pool: PoolID) -> None:
        """Invalidate nodes with slices of the pool, too: the change affects its completeness."""
        self.version += 1
        for resource_slice in (changed, *self.of_pool(pool)):
            node_name = self._only_node(resource_slice)
            if node_name:
                self._node_versions[node_name] = self.version
            else:
                self._shared_version = self.version

    def candidates(self, node_name: str) -> Iterator[ResourceSlice]:
        """Slices that may be relevant to a node: its own, and those not limited to one node."""
        yield from self._by_node.get(node_name, {}).values()
        yield from self._shared.values()

    def of_pool(self, pool: PoolID) -> Iterable[ResourceSlice]:
        return self._by_pool.get(pool, {}).values()

    def is_ignored(self, slice_: ResourceSlice) -> bool:
        """Does the slice count for nothing but its pool's generation?"""
        return slice_.metadata.name in self._ignored

    def _only_node(self, slice_: ResourceSlice) -> str:
        """The only node whose pools the slice is looked at for."""
        if slice_.spec.shared_counters and not self._reference.counter_slices_need_their_node:
            return ""
        return slice_.spec.node_name or ""


def _has_compatibility_groups(slice_: ResourceSlice) -> bool:
    return any(
        consumed.compatibility_groups
        for device in slice_.spec.devices or ()
        for consumed in device.consumes_counters or ()
    )


def gather_pools(slices: Slices, node: Node, features: Features) -> list[Pool]:
    """The pools of a node, by driver and name; those with binding conditions come last.

    Raises:
        AllocationError: a node selector cannot be read.
    """
    groups: dict[PoolID, list[ResourceSlice]] = {}
    for resource_slice in slices.candidates(node.metadata.name):
        if not slices.is_ignored(resource_slice) and _is_relevant(resource_slice, node, features):
            _add_to_group(groups, resource_slice)
    pools = []
    for pool_id, group in groups.items():
        pool = _pool_of(pool_id, group, slices, features)
        if pool is not None:
            pools.append(pool)
    pools.sort(key=lambda pool: (pool.has_binding_conditions, *_bytewise(*pool.id)))
    return pools


def node_matches(
    node: Node, node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None
) -> bool:
    """Does the node selection of a slice or device include this node? Raises AllocationError."""
    if node_name:
        return node_name == node.metadata.name
    if all_nodes:
        return True
    if selector is None:
        return False
    parsed = ParsedNodeSelector(selector)
    if parsed.error is not None:
        raise AllocationError(f"failed to parse node selector {_go_text(selector)}: {parsed.error}")
    return parsed.matches_node(node)


def _is_relevant(slice_: ResourceSlice, node: Node, features: Features) -> bool:
    spec = slice_.spec
    if not features.partitionable_devices and (
        spec.per_device_node_selection is not None or spec.shared_counters
    ):
        return False
    if spec.shared_counters and not features.reference.counter_slices_need_their_node:
        return True
    where = ""
    try:
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            where = f"slice {slice_.metadata.name}"
            return node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
        if spec.per_device_node_selection:
            for device in spec.devices or ():
                where = f"device {device.name} in slice {slice_.metadata.name}"
                if node_matches(node, device.node_name, device.all_nodes, device.node_selector):
                    return True
    except AllocationError as error:
        raise AllocationError(
            f"gather pool information: failed to perform node selection for {where}: {error}"
        ) from error
    return False


def _add_to_group(groups: dict[PoolID, list[ResourceSlice]], slice_: ResourceSlice) -> None:
    pool_id = (slice_.spec.driver, slice_.spec.pool.name)
    group = groups.get(pool_id)
    generation = slice_.spec.pool.generation
    if group is None or generation > group[0].spec.pool.generation:
        groups[pool_id] = [slice_]
    elif generation == group[0].spec.pool.generation:
        group.append(slice_)


def _pool_of(
    pool_id: PoolID, group: list[ResourceSlice], slices: Slices, features: Features
) -> Pool | None:
    """Builds a pool from the node's slices of it; None if a newer generation replaces it."""
    # Upstream: every slice says how many there are; the first one seen is believed.
    count = group[0].spec.pool.resource_slice_count
    if len(group) == count:
        return _build(pool_id, group, (), features)
    generation = group[0].spec.pool.generation
    everywhere = slices.of_pool(pool_id)
    if any(resource_slice.spec.pool.generation > generation for resource_slice in everywhere):
        return None
    same = [
        resource_slice
        for resource_slice in everywhere
        if resource_slice.spec.pool.generation == generation
        and not slices.is_ignored(resource_slice)
    ]
    if len(same) != count:
        return Pool(pool_id, is_incomplete=True)
    names = {resource_slice.metadata.name for resource_slice in group}
    rest = [resource_slice for resource_slice in same if resource_slice.metadata.name not in names]
    return _build(pool_id, group, rest, features)


def _build(
    pool_id: PoolID, group: list[ResourceSlice], rest: Sequence[ResourceSlice], features: Features
) -> Pool:
    pool = Pool(pool_id)
    ordered = sorted(group, key=lambda resource_slice: _bytewise(resource_slice.metadata.name))
    with_counters = [
        resource_slice
        for resource_slice in (*ordered, *rest)
        if resource_slice.spec.shared_counters
    ]
    if features.partitionable_devices:
        offering = [
            resource_slice for resource_slice in ordered if not resource_slice.spec.shared_counters
        ]
    else:
        offering = ordered
    devices = _pooled(offering, pool)
    elsewhere = _pooled((s for s in rest if not s.spec.shared_counters), pool)
    reason = _duplicate_device(devices)
    if not reason and features.partitionable_devices:
        reason = _collect_counter_sets(with_counters, pool.counter_sets)
        # Upstream: devices in a slice that also has counters are never offered, but in 1.36 they
        # are validated.
        is_all_checked = not features.reference.counter_slices_need_their_node
        checked = _pooled(ordered, pool) if with_counters and is_all_checked else devices
        reason = reason or _unknown_counter([*checked, *elsewhere], pool.counter_sets)
    if reason:
        return Pool(pool_id, invalid_reason=reason)
    pool.devices = devices
    if features.partitionable_devices:
        pool.elsewhere = elsewhere
    return pool


def _pooled(slices: Iterable[ResourceSlice], pool: Pool) -> list[PooledDevice]:
    return [
        PooledDevice(device, resource_slice, pool)
        for resource_slice in slices
        for device in resource_slice.spec.devices or ()
    ]


def _duplicate_device(devices: Iterable[PooledDevice]) -> str:
    seen: set[str] = set()
    for pooled in devices:
        if pooled.device.name in seen:
            return f"duplicate device name {pooled.device.name}"
        seen.add(pooled.device.name)
    return ""


def _collect_counter_sets(slices: Iterable[ResourceSlice], sets: dict[str, CounterSet]) -> str:
    for resource_slice in slices:
        for counter_set in resource_slice.spec.shared_counters or ():
            if counter_set.name in sets:
                return f"duplicate counter set name {counter_set.name}"
            sets[counter_set.name] = counter_set
    return ""


def _unknown_counter(devices: Iterable[PooledDevice], sets: dict[str, CounterSet]) -> str:
    for pooled in devices:
        for consumed in pooled.device.consumes_counters or ():
            counter_set = sets.get(consumed.counter_set)
            if counter_set is None:
                return f"counter set {consumed.counter_set} not found"
            for name in consumed.counters or ():
                if name not in (counter_set.counters or {}):
                    return f"counter {name} not found in counter set {counter_set.name}"
    return ""


def _bytewise(*names: str) -> tuple[bytes, ...]:
    """A key that sorts text as Go does."""
    return tuple(name.encode() for name in names)


def _go_text(selector: NodeSelector) -> str:
    """The selector as Go's generated `String` methods print it."""
    terms = "".join(
        "NodeSelectorTerm{"
        f"MatchExpressions:{_go_requirements(term.match_expressions)},"
        f"MatchFields:{_go_requirements(term.match_fields)},}},"
        for term in selector.node_selector_terms or ()
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _go_requirements(requirements: Sequence[NodeSelectorRequirement] | None) -> str:
    inner = "".join(
        f"NodeSelectorRequirement{{Key:{requirement.key},Operator:{requirement.operator},"
        f"Values:[{' '.join(requirement.values or ())}],}},"
        for requirement in requirements or ()
    )
    return f"[]NodeSelectorRequirement{{{inner}}}"
