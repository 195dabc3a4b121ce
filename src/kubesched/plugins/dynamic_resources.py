"""DynamicResources: for now, pods that claim devices are turned away with a clear word instead of being misplaced.

Allocation of devices is not implemented. Pods without claims are treated exactly as upstream's plugin treats them,
down to its share in the messages of pods that fit nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreBindPreFlightResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    SignPlugin,
)
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import (
    SKIP,
    NodeToStatus,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)
from kubesched.snapshot.views import NodeColumns

PRE_FILTER_STATE = "PreFilterDynamicResources"
UNSUPPORTED = unresolvable("resource claims are not supported by this scheduler yet")
NOT_SIGNABLE = unschedulable("pods with resource claims are not signable")
NOTHING_TO_DEALLOCATE = unschedulable("no new claims to deallocate")


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    EnqueueExtensions,
    SignPlugin,
):
    """Takes part at every point upstream's does; acts at none for pods without claims."""

    name = "DynamicResources"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node_actions = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        return (ClusterEventWithHint(ClusterEvent(Resource.NODE, node_actions)),)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        state.write(PRE_FILTER_STATE, True)
        return UNSUPPORTED if pod.spec.resource_claims else SKIP

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        return None

    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> tuple[PostFilterResult | None, Status | None]:
        if state.get(PRE_FILTER_STATE) is None:
            # Upstream: a PreFilter rejection before this plugin's own PreFilter surfaces as this error's text.
            return None, error_status("not found")
        return None, NOTHING_TO_DEALLOCATE

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule[bool]:
        return Rule(Scope.NODE)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> int:
        return 0

    def score_rule(self, state: CycleState, pod: Pod) -> Rule[int]:
        return Rule(traits=())

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> PreBindPreFlightResult:
        return PreBindPreFlightResult(allow_parallel=True, skip=True)

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        return NOT_SIGNABLE if pod.spec.resource_claims else {}

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None
