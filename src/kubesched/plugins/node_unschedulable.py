"""NodeUnschedulable: rejects cordoned nodes, unless the pod tolerates the unschedulable taint.

Mirrors upstream's `nodeunschedulable/node_unschedulable.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesched.api.core_v1 import Node, Pod, Taint
from kubesched.api.tolerations import NO_SCHEDULE, is_tolerated
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import ABSENT
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.taint_toleration import tolerations_fragment

UNSCHEDULABLE = unresolvable("node(s) were unschedulable")

# Upstream: tolerations are matched with this synthetic taint; the node's actual taints are not
# read.
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable(PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin):
    """Rejects nodes with `spec.unschedulable`."""

    name = "NodeUnschedulable"
    answers_by_spec = True

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # takes none
        super().__init__(args, handle)
        self._comparison_operators = handle.feature_gates.TaintTolerationComparisonOperators
        handle.table.interned(self.name, _cordoned)  # filled as nodes are added, not all at once

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        """Nothing to prepare; upstream has this point for resizes."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        column = nodes.interned(self.name, _cordoned)
        if not column.values or self._tolerates(pod):
            return None
        return Verdicts.reject(column.ids[nodes.rows] != ABSENT, UNSCHEDULABLE)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node, pod = Action.ADD | Action.UPDATE_NODE_TAINT, Action.UPDATE_POD_TOLERATION
        return (
            on_event(Resource.NODE, node, self.after_node_change),
            on_event(Resource.TARGET_POD, pod, self.after_toleration_change),
        )

    @reads("spec")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        was_closed = old is None or old.spec.unschedulable
        return Hint.QUEUE if was_closed and not new.spec.unschedulable else Hint.SKIP

    @reads("class")
    def after_toleration_change(self, pod: Pod, old: Pod | None, new: Pod) -> Hint:
        return Hint.QUEUE if self._tolerates(new) else Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return tolerations_fragment(pod)

    def _tolerates(self, pod: Pod) -> bool:
        return is_tolerated(
            UNSCHEDULABLE_TAINT,
            pod.spec.tolerations,
            comparison_operators=self._comparison_operators,
        )


def _cordoned(node: Node) -> bool | None:
    return True if node.spec.unschedulable else None
