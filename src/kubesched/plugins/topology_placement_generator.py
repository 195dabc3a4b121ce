"""TopologyPlacementGenerator: a group is placed within one topology domain.

Mirrors `topologyaware/topology_placement.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubesched.framework.groups.states import GroupStates
from kubesched.framework.groups.tree import GroupNode, Placement
from kubesched.framework.interfaces import PlacementGeneratePlugin
from kubesched.framework.status import Status, error_status

_UNKNOWN = "cannot determine domain for already scheduled pods: "


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    """One placement per value of the constraint's node label."""

    name = "TopologyPlacementGenerator"

    @property
    def _groups(self) -> GroupStates:
        groups = self.handle.groups
        assert groups is not None, "placements need the gate GenericWorkload"
        return groups

    def generate_placements(
        self, group: GroupNode, parent: Placement
    ) -> Sequence[Placement] | Status:
        constraints = group.group.spec.scheduling_constraints
        topology = None if constraints is None else constraints.topology
        if not topology or not topology[0].key:
            return [parent]
        key = topology[0].key
        domain = self._domain_in_use(group, key)
        if isinstance(domain, Status):
            return domain
        column = self.handle.table.label_column(key)
        ids = column.ids[parent.rows]
        found, first = np.unique(ids, return_index=True)
        return [
            Placement(value, parent.rows[ids == at])
            for at in found[first.argsort()].tolist()  # in the order of their first nodes
            if at >= 0 and domain in (None, value := column.values[at])
        ]

    def _domain_in_use(self, group: GroupNode, key: str) -> str | Status | None:
        """The domain of the pods that are placed already; they may be in one only."""
        table, domains = self.handle.table, dict[str, None]()
        for pod in self._groups.scheduled_pods_below(group.key):
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            row = table.row_of.get(pod.spec.node_name)
            node = None if row is None else table.nodes[row]
            if node is None:
                missing = f'nodeinfo not found for node name "{pod.spec.node_name}"'
                return error_status(f"{_UNKNOWN}getting node for pod {name}: {missing}")
            value = (node.metadata.labels or {}).get(key)
            if value is None:
                return error_status(f"{_UNKNOWN}no topology domain found for pod {name}")
            domains[value] = None
        if len(domains) > 1:
            listed = ", ".join(domains)
            return error_status(f"{_UNKNOWN}more than 1 domain found for pod group: {listed}")
        return next(iter(domains), None)
