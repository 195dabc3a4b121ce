"""TaintToleration: rejects nodes with untolerated taints; soft ones lower the score.

Mirrors upstream's `tainttoleration/taint_toleration.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from kubesched.api.core_v1 import Node, Pod, Taint
from kubesched.api.tolerations import PREFER_NO_SCHEDULE, first_untolerated_taint, is_tolerated
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignPlugin,
    default_normalize,
)
from kubesched.framework.nodes.columns import InternedColumn, Ints
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import Status, error_status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.value_tables import ValueTable

UNTOLERATED = unresolvable("node(s) had untolerated taint(s)")
PRE_SCORE_STATE = "PreScoreTaintToleration"

TaintSet = tuple[Taint, ...]


class TaintToleration(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Filters on NoSchedule and NoExecute taints; scores by untolerated PreferNoSchedule ones."""

    name = "TaintToleration"
    answers_by_spec = True

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # takes none
        super().__init__(args, handle)
        self._comparison_operators = handle.feature_gates.TaintTolerationComparisonOperators
        taint_column(handle.table)  # filled as nodes are added, not all at once

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        """Nothing to prepare; upstream has this point for resizes."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        column = taint_column(nodes.table)
        if not column.values:
            return None
        rejected = state.remember(
            self.name, lambda: ValueTable(column, partial(self._repels, pod), absent=False)
        )
        rejected.update()
        return None if rejected.is_trivial else Verdicts.reject(rejected.over(nodes), UNTOLERATED)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    # -- score -------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        rule, column = partial(self._count_disliked, pod), taint_column(nodes.table)
        disliked = state.remember(
            PRE_SCORE_STATE, lambda: ValueTable(column, rule, absent=0, dtype=np.int64)
        )
        state.write(PRE_SCORE_STATE, disliked)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | int | Status:
        disliked: ValueTable[TaintSet] | None = state.get(PRE_SCORE_STATE)
        if disliked is None:
            return error_status(f'failed to read "{PRE_SCORE_STATE}" from cycleState: not found')
        disliked.update()
        return 0 if disliked.is_trivial else disliked.over(nodes)

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Ints:
        return default_normalize(scores, reverse=True)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        actions = Action.ADD | Action.UPDATE_NODE_TAINT
        return (
            on_event(Resource.NODE, actions, self.after_node_change),
            on_event(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
        )

    @reads("spec")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        repelled = old is None or self._repels(pod, old.spec.taints)
        return Hint.QUEUE if repelled and not self._repels(pod, new.spec.taints) else Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return tolerations_fragment(pod)

    # -- rules -------------------------------------------------------------------------------------

    def _repels(self, pod: Pod, taints: Sequence[Taint] | None) -> bool:
        untolerated = first_untolerated_taint(
            taints, pod.spec.tolerations, comparison_operators=self._comparison_operators
        )
        return untolerated is not None

    def _count_disliked(self, pod: Pod, taints: TaintSet) -> int:
        # Tolerations of other effects cannot match a PreferNoSchedule taint and need no filtering.
        return sum(
            taint.effect == PREFER_NO_SCHEDULE
            and not is_tolerated(
                taint, pod.spec.tolerations, comparison_operators=self._comparison_operators
            )
            for taint in taints
        )


def tolerations_fragment(pod: Pod) -> dict[str, Any]:
    """The signature fragment of plugins that read tolerations, in upstream's format."""
    ordered = sorted(pod.spec.tolerations or (), key=lambda each: (each.key, each.value))
    return {"v1.Pod.Spec.Tolerations": [msgspec.to_builtins(each) for each in ordered]}


def taint_column(table: NodeTable) -> InternedColumn[TaintSet]:
    """Each node's taints, without their timestamps; no value for nodes without taints."""
    return table.interned("taints", _taint_set)


def _taint_set(node: Node) -> TaintSet | None:
    taints = node.spec.taints
    if not taints:
        return None
    return tuple(Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in taints)
