"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod would bring closer to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import PodRequests, RequestOptions, filter_requests, pod_requests
from kubesched.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import PreScorePlugin, RowScorePlugin, SignPlugin
from kubesched.framework.status import SKIP, Status
from kubesched.plugins.args import checked_args
from kubesched.plugins.feature_gates import gates_of
from kubesched.plugins.node_resources.allocatable_columns import AllocatableColumns
from kubesched.plugins.node_resources.balance import CurrentBalance, balance_at, balances
from kubesched.plugins.node_resources.extended_resources import DeviceBackedResources
from kubesched.plugins.node_resources.scored_resources import ScoredResource, ScoredResources
from kubesched.plugins.node_resources_fit import sign_requests
from kubesched.plugins.value_tables import remember
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns, WhatIfColumns

PRE_SCORE_STATE = "PreScoreNodeResourcesBalancedAllocation"

_HALF_SCORE: Final = 50
_BALANCES_LIMIT: Final = 8
"""Combinations of resources whose current balance is kept."""


class NodeResourcesBalancedAllocation(PreScorePlugin, RowScorePlugin, SignPlugin):
    """Scores how the pod changes a node's balance: 75 for not at all, 100 for the best, 50 for the worst."""

    name = "NodeResourcesBalancedAllocation"
    args_type = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        args = checked_args(args, NodeResourcesBalancedAllocationArgs, handle)
        super().__init__(args, handle)
        gates = gates_of(handle)
        self._filtered = RequestOptions(skip_pod_level=not gates.PodLevelResources)
        self._compared = RequestOptions(
            use_status=gates.InPlacePodVerticalScaling,
            pod_level_status=gates.InPlacePodLevelResourcesVerticalScaling,
            skip_pod_level=not gates.PodLevelResources,
        )
        self._scored = ScoredResources(args.resources)
        self._device_backed = DeviceBackedResources(handle)
        self._allocatable = AllocatableColumns()
        self._current: dict[tuple[int, ...], CurrentBalance] = {}

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        requests = self._requests(state, pod)
        if not self._scored.any_requested(requests):
            return SKIP
        state.write(PRE_SCORE_STATE, self._scored.for_pod(requests, nodes.table))
        return None

    def _requests(self, state: CycleState, pod: Pod) -> PodRequests:
        return remember(state, self.name, lambda: pod_requests(pod, self._compared))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints:
        resources: Sequence[ScoredResource] | None = state.get(PRE_SCORE_STATE)
        if resources is None:
            requests = self._requests(state, pod)
            if not self._scored.any_requested(requests):
                return np.zeros(len(nodes), dtype=np.int64)
            resources = self._scored.for_pod(requests, nodes.table)
        if not resources:
            return np.full(len(nodes), _HALF_SCORE + _HALF_SCORE // 2, dtype=np.int64)
        divisors = [self._allocatable.over(nodes, each.line) for each in resources]
        scores = balances(
            [nodes.requested(line) + request for line, request, _ in resources], divisors
        )
        lines = tuple(each.line for each in resources)
        if isinstance(nodes, WhatIfColumns):
            scores -= balances([nodes.requested(line) for line in lines], divisors)
        else:
            scores -= self._current_balance(nodes.table, lines).over(nodes)
        # The sum is not negative, so that shifting divides as upstream does.
        scores += _HALF_SCORE
        scores >>= 1
        scores += _HALF_SCORE
        return scores

    def _current_balance(self, table: NodeTable, lines: tuple[int, ...]) -> CurrentBalance:
        found = self._current.get(lines)
        if found is None or not found.belongs_to(table):
            if len(self._current) >= _BALANCES_LIMIT:
                self._current.clear()
            found = self._current[lines] = CurrentBalance(table, lines, self._allocatable)
        return found

    def row_score(self, state: CycleState, pod: Pod, table: NodeTable, row: int) -> int:
        resources: Sequence[ScoredResource] = state.read(PRE_SCORE_STATE)
        lines = [each.line for each in resources]
        with_pod = balance_at(table, lines, row, [each.request for each in resources])
        return _HALF_SCORE + (_HALF_SCORE + with_pod - balance_at(table, lines, row)) // 2

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        return sign_requests(filter_requests(pod, self._filtered), self._device_backed)
