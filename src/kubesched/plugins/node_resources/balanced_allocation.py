"""NodeResourcesBalancedAllocation: prefers nodes whose usage the pod makes more even.

The score compares the balance with and without the pod. Mirrors upstream's
`noderesources/balanced_allocation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.api.resource_v1 import DeviceClass
from kubesched.api.resources import RequestOptions, filter_requests, pod_requests
from kubesched.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import MAX_NODE_SCORE, PreScorePlugin, ScorePlugin, SignPlugin
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.node_resources import int64
from kubesched.plugins.node_resources.balance import Balances, balance_change, balances
from kubesched.plugins.node_resources.extended_resources import DeviceBackedResources
from kubesched.plugins.node_resources.fit import sign_requests
from kubesched.plugins.node_resources.resource_matrix import Amounts, resource_amounts
from kubesched.plugins.node_resources.scored_resources import (
    EXACT_BELOW,
    ScoredRequests,
    ScoredResource,
    ScoredResources,
)

PRE_SCORE_STATE = "PreScoreNodeResourcesBalancedAllocation"

_HALF_SCORE: Final = 50
_UNCHANGED: Final = _HALF_SCORE + _HALF_SCORE // 2


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin, SignPlugin, InTreePlugin):
    """Scores how the pod changes a node's balance: 75 if unchanged, 100 at best, 50 at worst."""

    name = "NodeResourcesBalancedAllocation"
    answers_by_spec = True
    lists = (DeviceClass,)
    args_type = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        args = checked_args(args, NodeResourcesBalancedAllocationArgs, handle)
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._filtered = RequestOptions(skip_pod_level=not gates.PodLevelResources)
        self._compared = RequestOptions(
            use_status=gates.InPlacePodVerticalScaling,
            pod_level_status=gates.InPlacePodLevelResourcesVerticalScaling,
            skip_pod_level=not gates.PodLevelResources,
        )
        self._scored = ScoredResources(args.resources)
        self._device_backed = DeviceBackedResources(handle)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        wanted = self._scored.for_pod(pod_requests(pod, self._compared), nodes.table)
        if not wanted.any_requested:
            return SKIP
        state.write(PRE_SCORE_STATE, wanted)
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints:
        length = len(nodes)
        wanted: ScoredRequests | None = state.get(PRE_SCORE_STATE)
        if wanted is None:
            wanted = self._scored.for_pod(pod_requests(pod, self._compared), nodes.table)
            if not wanted.any_requested:
                return np.zeros(length, dtype=np.int64)
        if self._scored.extended and (backed := self._backed(wanted)):
            view = self._device_backed.with_devices(nodes, backed)
            return self._score_one_by_one(wanted.resources, view)
        return self._score_nodes(wanted, nodes)

    def _score_nodes(self, wanted: ScoredRequests, nodes: NodeColumns) -> Ints:
        length = len(nodes)
        if not wanted.resources:
            return np.full(length, _UNCHANGED, dtype=np.int64)
        amounts = resource_amounts(nodes, wanted.indices)
        if not (amounts.is_exact and wanted.is_exact):
            return self._score_one_by_one(wanted.resources, nodes)
        return amounts.scored(length, lambda part: _score_block(part, wanted))

    def score_rule(self, state: CycleState, pod: Pod) -> Rule[int] | None:
        """None if devices are counted: allocations change the count without a node change."""
        wanted: ScoredRequests | None = state.get(PRE_SCORE_STATE)
        if self._scored.extended and wanted is not None and self._backed(wanted):
            return None
        if wanted is None:
            return Rule(Scope.ROW)
        return Rule(Scope.ROW, at=self._score_row(wanted))

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        return sign_requests(filter_requests(pod, self._filtered), self._device_backed)

    def _backed(self, wanted: ScoredRequests) -> dict[str, int]:
        return self._device_backed.scored(self._scored.extended, wanted)

    def _score_one_by_one(self, resources: Sequence[ScoredResource], nodes: NodeColumns) -> Ints:
        """The scalar formula for every node, used if amounts are too large for doubles."""
        capacities = np.stack([nodes.allocatable(scored.resource) for scored in resources], axis=1)
        used = np.stack([nodes.requested(scored.resource) for scored in resources], axis=1)
        requests = [scored.request for scored in resources]
        return np.array(
            [
                _score(list(zip(taken, requests, offered, strict=True)))
                for taken, offered in zip(used.tolist(), capacities.tolist(), strict=True)
            ],
            dtype=np.int64,
        )

    def _score_row(self, wanted: ScoredRequests) -> Callable[[int], int]:
        """The score of one row; columns are looked up once for the usual two resources.

        29 instead of 116 µs per decision, together with NodeResourcesFit's row form
        (benchmarks/decisions.py).
        """
        table = self.handle.table

        def exactly(row: int) -> int:
            return _score(
                [
                    (
                        table.requested[resource].cells[row],
                        request,
                        table.allocatable[resource].cells[row],
                    )
                    for resource, request, _ in wanted.resources
                ]
            )

        if len(wanted.resources) != 2:
            return exactly
        (resource_a, request_a, _), (resource_b, request_b, _) = wanted.resources
        used_a, offered_a = table.requested[resource_a].cells, table.allocatable[resource_a].cells
        used_b, offered_b = table.requested[resource_b].cells, table.allocatable[resource_b].cells
        full = float(MAX_NODE_SCORE)

        def score(row: int) -> int:
            use_a, capacity_a = used_a[row], offered_a[row]
            use_b, capacity_b = used_b[row], offered_b[row]
            with_a, with_b = use_a + request_a, use_b + request_b
            if not (
                0 <= use_a <= with_a <= capacity_a < EXACT_BELOW
                and 0 <= use_b <= with_b <= capacity_b < EXACT_BELOW
                and capacity_a
                and capacity_b
            ):
                return exactly(row)
            before = int((1 - abs((use_a / capacity_a - use_b / capacity_b) / 2)) * full)
            after = int((1 - abs((with_a / capacity_a - with_b / capacity_b) / 2)) * full)
            # Neither balance is below 50, so this is never negative, and the fraction is dropped as
            # in upstream.
            return _HALF_SCORE + (_HALF_SCORE + after - before) // 2

        return score


def _score_block(amounts: Amounts, wanted: ScoredRequests) -> Balances:
    capacity, used, absent = amounts.capacity, amounts.used, amounts.absent
    amount = used + wanted.amounts
    scores = balances(amount, capacity, absent)
    before = amount[:, : used.shape[1]]  # the same memory; usage is the same for all pods
    np.copyto(before, used)
    scores -= balances(before, capacity, absent)
    return _from_change(scores)


def _from_change(change: Balances) -> Balances:
    """Scores from balances with the pod minus balances without it; overwrites its argument."""
    # Twice the score, 50 + (50 + with - without) / 2: never negative, so shifting divides as in
    # upstream.
    change += 3 * _HALF_SCORE
    change >>= 1
    return change


def _score(demands: Sequence[tuple[int, int, int]]) -> int:
    before, after = balance_change(demands)
    return _HALF_SCORE + int64.divide(int64.wrap(_HALF_SCORE + after - before), 2)
