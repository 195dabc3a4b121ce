"""Extended resources backed by device classes, which dynamic resource allocation handles."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from kubesched.framework.handle import Handle
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.dynamic_resources.device_totals import device_totals
from kubesched.plugins.dynamic_resources.manager import manager_of
from kubesched.plugins.node_resources.scored_resources import ScoredResource


class DeviceBackedResources:
    """Names of extended resources that some device class maps."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.is_enabled = handle.feature_gates.DRAExtendedResource and handle.listers is not None

    def __contains__(self, name: object) -> bool:
        return self.is_enabled and name in manager_of(self._handle).extended_resources.by_resource

    def current_version(self) -> Hashable:
        """Changes whenever the mapping may have changed."""
        return manager_of(self._handle).extended_resources.version if self.is_enabled else None

    def scored(self, names: Sequence[str], resources: Sequence[ScoredResource]) -> dict[str, int]:
        """The pod's scored resources that devices may serve, with their indices in the table."""
        if not self.is_enabled:
            return {}
        indices = self._handle.table.resource_index
        wanted = {scored.resource for scored in resources}
        return {
            name: indices[name] for name in names if indices.get(name) in wanted and name in self
        }

    def with_devices(self, nodes: NodeColumns, scored: dict[str, int]) -> NodeColumns:
        """The view, counting devices for resources that no device plugin on the node offers."""
        dra = manager_of(self._handle)
        columns: dict[int, tuple[Ints, Ints]] = {}
        for name, resource in scored.items():
            device_class = dra.extended_resources.by_resource.get(name)
            assert device_class is not None, "only backed resources are asked for"
            offered, used = nodes.allocatable(resource).copy(), nodes.requested(resource).copy()
            for index in np.flatnonzero((offered == 0) & nodes.alive).tolist():
                capacity, taken = device_totals(nodes.node_at(index), device_class, dra)
                if capacity:
                    offered[index], used[index] = capacity, taken
            columns[resource] = offered, used
        return _DeviceColumns(nodes, columns)


class _DeviceColumns(NodeColumns):
    """A view that counts some resources in devices."""

    def __init__(self, nodes: NodeColumns, columns: dict[int, tuple[Ints, Ints]]) -> None:
        super().__init__(nodes.table, nodes.rows)
        self._columns = columns

    def allocatable(self, resource: int) -> Ints:
        own = self._columns.get(resource)
        return super().allocatable(resource) if own is None else own[0]

    def requested(self, resource: int) -> Ints:
        own = self._columns.get(resource)
        return super().requested(resource) if own is None else own[1]
