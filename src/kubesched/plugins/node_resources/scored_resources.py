"""The resources that take part in scoring a pod, and their usage on each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.resources import PodRequests, ResourceClass, classify
from kubesched.config.plugin_args import ResourceSpec
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.node_table import CPU, MEMORY, NodeTable
from kubesched.framework.nodes.views import NodeColumns

RESOURCES_NOT_FOUND = "resources not found"

EXACT_BELOW: Final = 2**45
"""For amounts below this, `amount * 100 / capacity` in doubles truncates to the exact quotient.

Both numbers are exact doubles (100 * 2**45 < 2**53), and a quotient below an integer n <= 100 stays
at least 1 / capacity below it, which is more than a double's rounding error there. Above it, and
below zero, where sums have overflowed, scores are computed from integers, node by node.
"""
_KNOWN_LIMIT: Final = 256
"""Maximum number of cached combinations of amounts."""
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


class ScoredRequests:
    """All resources that count for a pod, as columns; shared by pods with equal requests."""

    def __init__(self, resources: Sequence[ScoredResource], *, any_requested: bool) -> None:
        self.resources = tuple(resources)
        self.any_requested = any_requested
        """Does the pod request any of the configured resources?"""
        self.indices = tuple([scored.resource for scored in resources])
        self.weights = [scored.weight for scored in resources]
        self.is_exact = all(0 <= scored.request < EXACT_BELOW for scored in resources)
        requests = [[float(scored.request)] for scored in resources]
        self.amounts: np.ndarray[Any, np.dtype[np.float64]] = np.array(requests)
        """Of shape (resources, 1)."""
        self.hundredfold = self.amounts * 100.0


class ScoredResources:
    """The resources a plugin is configured to compare."""

    def __init__(self, specs: Sequence[ResourceSpec]) -> None:
        self._specs = [(s.name, classify(s.name), s.weight) for s in specs]
        self.extended = [name for name, kind, _ in self._specs if kind is ResourceClass.SCALAR]
        """Resources that devices may serve; usually none."""
        self._table: NodeTable | None = None
        self._known: dict[tuple[int, ...], ScoredRequests] = {}

    @property
    def is_empty(self) -> bool:
        return not self._specs

    def for_pod(self, requests: PodRequests, table: NodeTable) -> ScoredRequests:
        """The resources that count for this pod, in configured order.

        An extended resource that the pod does not request is left out. One that no node has gets
        its column in the table here, so that the result stays correct when a node with it is added.
        """
        wanted = tuple([requests.get(name) for name, _, _ in self._specs])
        if table is not self._table or len(self._known) > _KNOWN_LIMIT:
            self._table, self._known = table, {}
        known = self._known.get(wanted)
        if known is None:
            scored = [
                ScoredResource(table.compare_resource(name), request, weight)
                for (name, kind, weight), request in zip(self._specs, wanted, strict=True)
                if kind in _COUNTED and (request or kind is not ResourceClass.SCALAR)
            ]
            known = self._known[wanted] = ScoredRequests(scored, any_requested=any(wanted))
        return known


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
