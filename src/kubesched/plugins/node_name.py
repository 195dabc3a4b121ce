"""NodeName: a pod with `spec.nodeName` only fits that node.

Mirrors upstream's `nodename/node_name.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.events import Action, ClusterEventWithHint, Resource, on_event
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    SignPlugin,
)
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.node_selector_columns import named

WRONG_NODE = unresolvable("node(s) didn't match the requested node name")


class NodeName(PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin):
    """Rejects every node but the one in `spec.nodeName`."""

    name = "NodeName"
    answers_by_spec = True

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> PreFilterResult | None:
        node_name = pod.spec.node_name
        return PreFilterResult(frozenset((node_name,))) if node_name else None

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        if not pod.spec.node_name:
            return None
        return Verdicts.reject(~named(nodes, pod.spec.node_name), WRONG_NODE)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (on_event(Resource.NODE, Action.ADD),)

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return {"v1.Pod.Spec.NodeName": pod.spec.node_name}
