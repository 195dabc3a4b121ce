"""The resources that take part in scoring a pod, and their usage on each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kubesched.api.resources import PodRequests, ResourceClass, classify
from kubesched.config.plugin_args import ResourceSpec
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.node_table import CPU, MEMORY, NodeTable
from kubesched.framework.nodes.views import NodeColumns

RESOURCES_NOT_FOUND = "resources not found"

_COUNTED = (
    ResourceClass.CPU,
    ResourceClass.MEMORY,
    ResourceClass.EPHEMERAL_STORAGE,
    ResourceClass.SCALAR,
)


class ScoredResource(NamedTuple):
    """One resource in the comparison of nodes, and the pod's request for it."""

    resource: int
    request: int
    weight: int


class ScoredResources:
    """The resources a plugin is configured to compare."""

    def __init__(self, specs: Sequence[ResourceSpec]) -> None:
        self._specs = [(s.name, classify(s.name), s.weight) for s in specs]
        self.extended = [name for name, kind, _ in self._specs if kind is ResourceClass.SCALAR]
        """Resources that devices may serve; usually none."""

    @property
    def is_empty(self) -> bool:
        return not self._specs

    def for_pod(self, requests: PodRequests, table: NodeTable) -> tuple[ScoredResource, ...]:
        """The resources that count for this pod, in configured order.

        An extended resource that the pod does not request is left out. One that no node has gets
        its column in the table here, so that the result stays correct when a node with it is added.
        """
        return tuple(
            [
                ScoredResource(table.compare_resource(name), requests.get(name), weight)
                for name, kind, weight in self._specs
                if kind in _COUNTED and (kind is not ResourceClass.SCALAR or requests.get(name))
            ]
        )


def nonzero_use(nodes: NodeColumns, resource: int) -> Ints:
    """Requested amounts, with defaults for containers that request no CPU or memory."""
    if resource == CPU:
        return nodes.nonzero_cpu
    return nodes.nonzero_memory if resource == MEMORY else nodes.requested(resource)


def nonzero_cells(table: NodeTable, resource: int) -> memoryview:
    """Like `nonzero_use`, by row."""
    if resource == CPU:
        return table.nonzero_cpu.cells
    return table.nonzero_memory.cells if resource == MEMORY else table.requested[resource].cells
