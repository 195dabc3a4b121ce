"""DeferredPodScheduling: a bound pod with a deferred resize is tried on its own node only.

With the gate InPlacePodVerticalScalingSchedulerPreemption such pods are queued, so that preemption
makes room for their resize; the kubelet carries it out. Mirrors upstream's
`deferredpodscheduling/deferred_pod_scheduling.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.resources import is_resize_deferred
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    PreFilterPlugin,
)
from kubesched.framework.nodes.columns import ABSENT
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.node_selector_columns import named

DIFFERENT_NODE: Final = unresolvable("pod assigned to different node")
DISABLED: Final = unresolvable("node had resize preemption disabled")
FITS: Final = unresolvable("pod resize fits, waiting for Kubelet actuation")


class DeferredPodScheduling(
    PreFilterPlugin, FilterPlugin, PermitPlugin, EnqueueExtensions, InTreePlugin
):
    """Rejects other nodes, and nodes whose `podPreemptionPolicy` disables preemption."""

    name = "DeferredPodScheduling"
    answers_by_spec = True

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # takes none
        super().__init__(args, handle)
        self._is_on = handle.feature_gates.InPlacePodVerticalScalingSchedulerPreemption

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return None if self._concerns(pod) else SKIP

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        if not self._concerns(pod):
            return None
        disables = nodes.interned(self.name, _disables).ids[nodes.rows] != ABSENT
        codes = np.where(disables, 2, 0).astype(np.int32)
        if pod.spec.node_name:
            codes[~named(nodes, pod.spec.node_name)] = 1
        return Verdicts.numbered(codes, [DIFFERENT_NODE, DISABLED])

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        """Upstream: never asked about a bound pod, which cannot be assumed a second time."""
        return FITS if self._concerns(pod) else None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        actions = Action.UPDATE_NODE_PREEMPTION_POLICY, Action.ADD
        return [on_event(Resource.NODE, action, self.after_node_change) for action in actions]

    @reads("class")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        """The pod's node was added, or its policy changed: it must allow preemption now."""
        was_disabled = old is None or _disables(old)
        is_own = self._concerns(pod) and new.metadata.name == pod.spec.node_name
        return Hint.QUEUE if is_own and was_disabled and not _disables(new) else Hint.SKIP

    def class_fields(self, pod: Pod) -> Hashable:
        """A resize depends on what the pod has already, so it shares no answers."""
        return pod.metadata.uid if self._concerns(pod) else None

    def _concerns(self, pod: Pod) -> bool:
        return self._is_on and is_resize_deferred(pod)


def _disables(node: Node) -> bool | None:
    policy = node.spec.pod_preemption_policy
    return True if policy is not None and policy.disable_resize_preemption else None
