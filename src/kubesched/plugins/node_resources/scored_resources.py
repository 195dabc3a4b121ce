"""Which resources take part in scoring a pod, and how much of them nodes have given away already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kubesched.api.resources import PodRequests, ResourceClass, classify
from kubesched.config.plugin_args import ResourceSpec
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import CPU, MEMORY, NodeTable
from kubesched.snapshot.views import NodeColumns

RESOURCES_NOT_FOUND = "resources not found"

_COUNTED = (
    ResourceClass.CPU,
    ResourceClass.MEMORY,
    ResourceClass.EPHEMERAL_STORAGE,
    ResourceClass.SCALAR,
)


class ScoredResource(NamedTuple):
    """One resource in the comparison of nodes, and what the pod would add to it."""

    line: int
    request: int
    weight: int


class ScoredResources:
    """The resources a plugin is configured to compare."""

    __slots__ = ("_specs",)

    def __init__(self, specs: Sequence[ResourceSpec]) -> None:
        self._specs = [(s.name, classify(s.name), s.weight) for s in specs]

    @property
    def is_empty(self) -> bool:
        return not self._specs

    def any_requested(self, requests: PodRequests) -> bool:
        return any(requests.get(name) for name, _, _ in self._specs)

    def for_pod(self, requests: PodRequests, table: NodeTable) -> list[ScoredResource]:
        """The resources that count for this pod, in configured order.

        An extended resource the pod does not ask for is left out. One that no node has yet gets its line in the
        table here, so that the answer stays right when a node with it comes.
        """
        found = []
        for name, kind, weight in self._specs:
            request = requests.get(name)
            if kind in _COUNTED and (request or kind is not ResourceClass.SCALAR):
                found.append(ScoredResource(table.line(name), request, weight))
        return found


def nonzero_use(nodes: NodeColumns, line: int) -> Ints:
    """What is given away, with defaults for containers that request no CPU or memory."""
    if line == CPU:
        return nodes.nonzero_cpu
    return nodes.nonzero_memory if line == MEMORY else nodes.requested(line)


def nonzero_use_at(table: NodeTable, line: int, row: int) -> int:
    """The same for one row."""
    if line == CPU:
        return table.nonzero_cpu.cells[row]
    return table.nonzero_memory.cells[row] if line == MEMORY else table.requested[line].cells[row]
