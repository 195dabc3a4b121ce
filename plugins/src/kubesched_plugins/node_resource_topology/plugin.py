"""The plugin: rows of nodes in, verdicts and scores out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.framework import (
    MAX_NODE_SCORE,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    EnqueueExtensions,
    FilterPlugin,
    Handle,
    NodeColumns,
    PostBindPlugin,
    ReservePlugin,
    Resource,
    Rule,
    ScorePlugin,
    Verdicts,
    unschedulable,
)
from kubesched.framework.api import Pod
from kubesched_plugins.node_resource_topology.alignment import (
    CANNOT_ALIGN_CONTAINER,
    CANNOT_ALIGN_INIT,
    CANNOT_ALIGN_POD,
    CANNOT_ALIGN_SIDECAR,
    why_not,
)
from kubesched_plugins.node_resource_topology.args import NodeResourceTopologyMatchArgs
from kubesched_plugins.node_resource_topology.cache import INVALID, cache_for
from kubesched_plugins.node_resource_topology.scoring import score_of
from kubesched_plugins.node_resource_topology.topology import (
    Demand,
    NodeResourceTopology,
    demand_of,
)

INVALID_TOPOLOGY: Final = "invalid node topology data"
_REASONS: Final = (
    CANNOT_ALIGN_POD,
    CANNOT_ALIGN_CONTAINER,
    CANNOT_ALIGN_INIT,
    CANNOT_ALIGN_SIDECAR,
    INVALID_TOPOLOGY,
)
_STATUSES: Final = tuple(map(unschedulable, _REASONS))
_CODE_OF: Final = {"": 0} | {reason: at for at, reason in enumerate(_REASONS, start=1)}
_INVALID_CODE: Final = _CODE_OF[INVALID_TOPOLOGY]

log = logging.getLogger(__name__)


class NodeResourceTopologyMatch(
    FilterPlugin, ScorePlugin, ReservePlugin, PostBindPlugin, EnqueueExtensions
):
    """Keeps pods off nodes where they would not be aligned, and prefers nodes by their zones."""

    name = "NodeResourceTopologyMatch"
    args_type = NodeResourceTopologyMatchArgs
    args: NodeResourceTopologyMatchArgs
    lists = (NodeResourceTopology,)

    def __init__(self, args: NodeResourceTopologyMatchArgs | None, handle: Handle) -> None:
        args = args or NodeResourceTopologyMatchArgs()
        super().__init__(args, handle)
        self.topologies = cache_for(args, handle)
        strategy = args.scoring_strategy
        self._weights = {each.name: each.weight for each in strategy.resources or ()}
        if args.preemption_mode == "Enabled":
            log.warning("preemptionMode Enabled has no effect: victims free nothing in zones")

    def close(self) -> None:
        self.topologies.close()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        demand = self._demand(state, pod)
        if not demand.is_concerned:
            return None
        codes = [self._code(demand, row) for row in nodes.row_indices().tolist()]
        return Verdicts.numbered(np.array(codes, dtype=np.int8), _STATUSES) if any(codes) else None

    def _code(self, demand: Demand, row: int) -> int:
        table = self.handle.table
        topology, node = self.topologies.of(table.names[row]), table.nodes[row]
        if topology is INVALID:
            return _INVALID_CODE
        if topology is None or node is None or not topology.is_single_numa_node:
            return 0
        return _CODE_OF[why_not(demand, topology, node)]

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(self.topologies.scope)

    def score_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> npt.NDArray[np.int64] | int:
        demand = self._demand(state, pod)
        if demand.qos != "Guaranteed":
            return MAX_NODE_SCORE
        scores = [self._score(demand, row) for row in nodes.row_indices().tolist()]
        return np.array(scores, dtype=np.int64)

    def _score(self, demand: Demand, row: int) -> int:
        topology = self.topologies.of(self.handle.table.names[row])
        if topology is None or topology is INVALID:
            return 0
        return score_of(demand, topology, self.args.scoring_strategy.type, self._weights)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(self.topologies.scope)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.topologies.reserve(node_name, pod, self._demand(state, pod).pod_requests)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.topologies.unreserve(node_name, pod)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.topologies.post_bind(node_name, pod)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(Resource.POD, Action.DELETE)),
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
            ),
            ClusterEventWithHint(
                ClusterEvent(NodeResourceTopology.resource, Action.ADD | Action.UPDATE)
            ),
        ]

    def class_fields(self, pod: Pod) -> str:
        """The class of a pod that was admitted is in its status."""
        return pod.status.qos_class

    def _demand(self, state: CycleState, pod: Pod) -> Demand:
        demand: Demand = state.remember(self.name, lambda: demand_of(pod))
        return demand
