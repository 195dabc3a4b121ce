"""Devices of a class that a node can use, and how many of them are allocated, for scoring.

As in upstream, simpler than the allocator's view: slices of any generation count, taints are
ignored, and selectors treat every device as not shareable.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from kubesched.api.core_v1 import Node
from kubesched.api.resource_v1 import Device, DeviceClass, ResourceSlice
from kubesched.plugins.dynamic_resources.manager import DRAManager
from kubesched.plugins.dynamic_resources.structured.allocated_state import DeviceID
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.pools import node_matches
from kubesched.plugins.dynamic_resources.structured.selectors import (
    DeviceContent,
    DeviceSelectors,
    SelectorFailure,
)


def device_totals(node: Node, device_class: DeviceClass, dra: DRAManager) -> tuple[int, int]:
    """Total and allocated devices of the class on the node; both 0 if they cannot be determined."""
    allocated = dra.claims.allocated
    capacity = taken = 0
    try:
        for slice_ in dra.slices.slices.candidates(node.metadata.name):
            spec = slice_.spec
            for device in _reachable(slice_, node):
                if _is_of_class(spec.driver, device, device_class, dra.selectors):
                    capacity += 1
                    taken += allocated.is_allocated(
                        DeviceID(spec.driver, spec.pool.name, device.name)
                    )
    except (AllocationError, SelectorFailure):
        return 0, 0
    return capacity, taken


def _reachable(slice_: ResourceSlice, node: Node) -> Sequence[Device]:
    spec = slice_.spec
    devices = spec.devices or []
    if spec.per_device_node_selection:
        return [
            device
            for device in devices
            if node_matches(node, device.node_name, device.all_nodes, device.node_selector)
        ]
    is_reached = node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
    return devices if is_reached else ()


def _is_of_class(
    driver: str, device: Device, device_class: DeviceClass, selectors: DeviceSelectors
) -> bool:
    wanted = [
        selector.cel.expression for selector in device_class.spec.selectors or () if selector.cel
    ]
    if not wanted:
        return True
    content = DeviceContent(driver, structs.replace(device, allow_multiple_allocations=None))
    return all(selectors.matches(expression, content) for expression in wanted)
