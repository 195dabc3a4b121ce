"""NodeResourcesBalancedAllocation: prefers nodes whose usage the pod makes more even.

The score compares the balance with and without the pod. Mirrors upstream's
`noderesources/balanced_allocation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.api.core_v1 import Pod
from kubesched.api.resource_v1 import DeviceClass
from kubesched.api.resources import RequestOptions, filter_requests, pod_requests
from kubesched.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, RowRule
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import MAX_NODE_SCORE, PreScorePlugin, ScorePlugin, SignPlugin
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.node_resources import int64
from kubesched.plugins.node_resources.extended_resources import DeviceBackedResources
from kubesched.plugins.node_resources.fit import sign_requests
from kubesched.plugins.node_resources.scored_resources import (
    ScoredResource,
    ScoredResources,
)

PRE_SCORE_STATE = "PreScoreNodeResourcesBalancedAllocation"

_HALF_SCORE: Final = 50


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
        if not _asks(wanted):
            return SKIP
        state.write(PRE_SCORE_STATE, wanted)
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints:
        wanted: Sequence[ScoredResource] | None = state.get(PRE_SCORE_STATE)
        if wanted is None:
            wanted = self._scored.for_pod(pod_requests(pod, self._compared), nodes.table)
            if not _asks(wanted):
                return np.zeros(len(nodes), dtype=np.int64)
        if self._scored.extended and (backed := self._backed(wanted)):
            nodes = self._device_backed.with_devices(nodes, backed)
        return _scores(wanted, nodes)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """None if devices are counted: allocations change the count without a node change."""
        wanted: Sequence[ScoredResource] | None = state.get(PRE_SCORE_STATE)
        if self._scored.extended and wanted is not None and self._backed(wanted):
            return None
        if wanted is None or len(wanted) != 2:
            return Rule(Scope.ROW)
        return RowRule(at=self._score_row(wanted))

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        return sign_requests(filter_requests(pod, self._filtered), self._device_backed)

    def _backed(self, wanted: Sequence[ScoredResource]) -> dict[str, int]:
        return self._device_backed.scored(self._scored.extended, wanted)

    def _score_row(self, wanted: Sequence[ScoredResource]) -> Callable[[int], int]:
        """The score of one row, for the usual two resources.

        29 instead of 116 µs per decision, together with NodeResourcesFit's row form
        (benchmarks/decisions.py).
        """
        table = self.handle.table
        (used_a, request_a, offered_a), (used_b, request_b, offered_b) = (
            (table.requested[resource].cells, request, table.allocatable[resource].cells)
            for resource, request, _ in wanted
        )

        def score(row: int) -> int:
            a, of_a, b, of_b = used_a[row], offered_a[row], used_b[row], offered_b[row]
            with_a, with_b = a + request_a, b + request_b
            if not (0 <= a <= with_a <= of_a and 0 <= b <= with_b <= of_b and of_a and of_b):
                return int(_scores(wanted, NodeColumns(table, np.array([row])))[0])
            before = int((1 - abs((a / of_a - b / of_b) / 2)) * 100.0)
            after = int((1 - abs((with_a / of_a - with_b / of_b) / 2)) * 100.0)
            # Neither balance is below 50, so nothing is negative.
            return _HALF_SCORE + (_HALF_SCORE + after - before) // 2

        return score


def _scores(wanted: Sequence[ScoredResource], nodes: NodeColumns) -> Ints:
    capacity = np.array([nodes.allocatable(scored.resource) for scored in wanted])
    used = [(nodes.requested(resource), request) for resource, request, _ in wanted]
    offered = capacity != 0
    is_whole = np.count_nonzero(offered) == offered.size
    # Without and with the pod. Like Go's integers, the sums wrap around. Types are converted as a
    # whole: in operations of two types that takes three times as long.
    fractions = (
        np.array([number for amount, request in used for number in (amount, amount + request)])
        .astype(np.float64)
        .reshape(len(wanted), 2, len(nodes))
    )
    shares = capacity if is_whole else np.where(offered, capacity, 1)
    fractions /= shares.astype(np.float64).reshape(len(wanted), 1, len(nodes))
    np.minimum(fractions, 1.0, out=fractions)
    before, after = _balance_of(fractions) if is_whole else balances(fractions, offered)
    return _HALF_SCORE + int64.quotients(_HALF_SCORE + after - before, 2)


def _asks(wanted: Sequence[ScoredResource]) -> bool:
    return any(scored.request for scored in wanted)


Floats = npt.NDArray[np.float64]


def balances(fractions: Floats, offered: Mask) -> Ints:
    """The balance of each node, from the used fraction of each resource: (resources, ..., nodes).

    Only resources that a node offers count for it: (resources, nodes).
    """
    result = np.empty(fractions.shape[1:], dtype=np.int64)
    # Nodes with the same resources are judged together.
    patterns, numbers = np.unique(offered, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        nodes = numbers.reshape(-1) == number
        result[..., nodes] = _balance_of(fractions[pattern][..., nodes])
    return result


def _balance_of(fractions: Floats) -> Ints:
    """The balance of nodes that all have the same resources."""
    count = len(fractions)
    if count < 2:
        return np.full(fractions.shape[1:], MAX_NODE_SCORE, dtype=np.int64)
    if count == 2:
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
    else:
        distance = fractions - _sum_in_order(fractions) / count
        deviation = np.sqrt(_sum_in_order(distance * distance) / count)
    evenness: Floats = (1 - deviation) * float(MAX_NODE_SCORE)
    np.maximum(evenness, int64.MIN, out=evenness)  # as on x86-64
    return evenness.astype(np.int64)


def _sum_in_order(rows: Floats) -> Floats:
    """Adds row by row: NumPy's own sum may use another order."""
    total: Floats = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total
