"""The pools of every node, cached between attempts, and node signatures.

Two nodes have the same *signature* if their pools differ in names only: same drivers, devices of
the same content in the same order, the same devices in use. The search then takes the same steps on
both, so one node is searched and the solution is applied to the other by position.

Gathering a node's pools reads every slice it may use, and building a signature reads every device.
Both are repeated only after a change: pools are cached until a slice relevant to the node changes,
the signature until a device of its pools is allocated or freed.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from kubesched.api.core_v1 import Node
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import (
    Pool,
    PooledDevice,
    Slices,
    gather_pools,
    node_matches,
)

_SWEEP_FROM: Final = 1024
"""At this many nodes, and then at every doubling, entries not used recently are dropped."""
_NUMBERS_LIMIT: Final = 1 << 16
"""Maximum number of known signatures, shapes and device shapes each; beyond it, equal ones get new
numbers.
"""

_encode = msgspec.msgpack.Encoder().encode
K = TypeVar("K")


class NodePools:
    """The allocator's data about one node."""

    __slots__ = (
        "devices",
        "is_recent",
        "labels",
        "node_version",
        "pools",
        "shape",
        "signature",
        "slices_version",
        "usage_versions",
    )

    def __init__(self, pools: list[Pool], shape: int, labels: dict[str, str] | None) -> None:
        self.pools = pools
        self.shape = shape
        self.labels = labels
        self.devices = [p for pool in pools if pool.is_usable for p in pool.devices]
        """Devices of all usable pools, in the order in which they are tried."""
        self.slices_version = -1
        self.node_version: Any = None
        self.usage_versions: list[int] = []
        self.signature = -1
        """Equal for equivalent nodes."""
        self.is_recent = True


class PoolIndex:
    """Finds the pools of a node."""

    def __init__(self, slices: Slices, allocated: AllocatedState, features: Features) -> None:
        self._slices = slices
        self._allocated = allocated
        self._features = features
        self._nodes: dict[str, NodePools] = {}
        self._sweep_at = _SWEEP_FROM
        self._shapes: dict[tuple[Any, ...], int] = {}
        self._device_shapes: dict[bytes, int] = {}
        self._signatures: dict[tuple[Any, ...], int] = {}
        self._last_number = 0

    def of(self, node: Node) -> NodePools:
        """The current pools of a node; raises AllocationError."""
        name = node.metadata.name
        known = self._nodes.get(name)
        if known is None or not self._is_current(known, node):
            known = self._nodes[name] = self._gather(node)
            if len(self._nodes) >= self._sweep_at:
                self._sweep()
        known.is_recent = True
        versions = [self._allocated.pool_version(pool.id) for pool in known.pools]
        if versions != known.usage_versions or known.signature < 0:
            known.usage_versions = versions
            known.signature = self._sign(known)
        return known

    def _is_current(self, known: NodePools, node: Node) -> bool:
        slices = self._slices
        if known.slices_version != slices.version:
            if known.node_version != slices.version_for(node.metadata.name):
                return False
            known.slices_version = slices.version
        labels = node.metadata.labels
        return known.labels is labels or known.labels == labels

    def _gather(self, node: Node) -> NodePools:
        pools = gather_pools(self._slices, node, self._features)
        gathered = NodePools(pools, self._shape(pools, node), node.metadata.labels)
        gathered.slices_version = self._slices.version
        gathered.node_version = self._slices.version_for(node.metadata.name)
        return gathered

    def _sweep(self) -> None:
        self._nodes = {name: pools for name, pools in self._nodes.items() if pools.is_recent}
        for pools in self._nodes.values():
            pools.is_recent = False
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._nodes))

    # -- signatures --------------------------------------------------------------------------------

    def _shape(self, pools: list[Pool], node: Node) -> int:
        """A number for the content of the pools, independent of names and allocations."""
        shape = tuple(
            (
                pool.id[0],
                pool.is_incomplete,
                bool(pool.invalid_reason),
                tuple(self._device_shape(pooled, node) for pooled in pool.devices),
                _encode(pool.counter_sets),
                tuple(self._device_shape(pooled, None) for pooled in pool.elsewhere),
            )
            for pool in pools
        )
        return self._number(self._shapes, shape)

    def _device_shape(self, pooled: PooledDevice, node: Node | None) -> int:
        device, spec = pooled.device, pooled.slice.spec
        reach: object = None
        if node is not None:
            reach = (spec.node_name is not None, spec.node_selector, spec.per_device_node_selection)
            if spec.per_device_node_selection:
                reach = (*reach, self._matches(node, pooled))
        content = msgspec.structs.replace(device, name="", node_name=None)
        return self._number(self._device_shapes, _encode((spec.driver, content, reach)))

    @staticmethod
    def _matches(node: Node, pooled: PooledDevice) -> object:
        device = pooled.device
        try:
            return node_matches(node, device.node_name, device.all_nodes, device.node_selector)
        except AllocationError as error:
            return str(error)

    def _sign(self, known: NodePools) -> int:
        usage = tuple([self._usage(pool) for pool in known.pools])
        return self._number(self._signatures, (known.shape, usage))

    def _usage(self, pool: Pool) -> tuple[Any, ...]:
        """Allocated devices, by position."""
        allocated = self._allocated
        usage = []
        for position, pooled in enumerate((*pool.devices, *pool.elsewhere)):
            device = pooled.id
            if allocated.is_allocated(device):
                amounts = allocated.capacity.get(device)
                usage.append(
                    (
                        position,
                        device in allocated.exclusive,
                        None if amounts is None else tuple(sorted(amounts.items())),
                    )
                )
        return tuple(usage)

    def _number(self, numbers: dict[K, int], key: K) -> int:
        number = numbers.get(key)
        if number is None:
            if len(numbers) >= _NUMBERS_LIMIT:
                numbers.clear()
            self._last_number = number = numbers[key] = self._last_number + 1
        return number
