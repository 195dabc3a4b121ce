"""The extension points of PodTopologySpread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubesched.api.core_v1 import Node, Pod, TopologySpreadConstraint
from kubesched.api.selectors import SelectorError
from kubesched.config.plugin_args import SYSTEM_DEFAULTING, PodTopologySpreadArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, TopologyKeys, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import Ints, Levels
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.helper.default_selector import (
    SOURCE_KINDS,
    DefaultSelectors,
    sources_of,
)
from kubesched.plugins.pod_topology_spread import hints
from kubesched.plugins.pod_topology_spread.constraints import (
    HARD,
    SOFT,
    SYSTEM_DEFAULTS,
    Constraint,
    Counted,
    count,
    defaulted_constraints,
    own_constraints,
)
from kubesched.plugins.pod_topology_spread.filtering import FilterState, HardConstraint
from kubesched.plugins.pod_topology_spread.scoring import (
    ALL_IGNORED,
    ScoreState,
    normalized,
    raw_scores,
    weigh,
)

PRE_FILTER_STATE = "PreFilterPodTopologySpread"
PRE_SCORE_STATE = "PreScorePodTopologySpread"
MANY_CONSTRAINTS: Final = 64
"""For pods with more constraints, first check whether any node takes part in scoring."""

NOT_SIGNABLE = unschedulable("pods with topology constraints are not signable")
NOT_SIGNABLE_BY_DEFAULT = unschedulable("pods with default topology constraints are not signable")


class PodTopologySpread(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Filters on DoNotSchedule constraints, scores on ScheduleAnyway ones.

    The counts come from the table's pod index, which keeps them up to date.
    """

    name = "PodTopologySpread"
    answers_by_spec = True
    lists = SOURCE_KINDS
    args_type = PodTopologySpreadArgs

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        args = checked_args(args, PodTopologySpreadArgs, handle)
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._match_label_keys = gates.MatchLabelKeysInPodTopologySpread
        self._comparison_operators = gates.TaintTolerationComparisonOperators
        self._is_system_default = args.defaulting_type == SYSTEM_DEFAULTING
        self._defaults: Sequence[TopologySpreadConstraint] = (
            SYSTEM_DEFAULTS if self._is_system_default else tuple(args.default_constraints)
        )
        self._defaulted_actions = frozenset(
            constraint.when_unsatisfiable for constraint in self._defaults
        )
        self._selectors = None if handle.listers is None else DefaultSelectors(handle.listers)
        for constraint in self._defaults:
            # Made now, to be filled as nodes are added, not all at once for the first pod.
            handle.table.label_column(constraint.topology_key)

    def close(self) -> None:
        if self._selectors is not None:
            self._selectors.close()

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        try:
            constraints = self._constraints(state, pod, HARD)
        except SelectorError as error:
            return error_status(
                "get constraints from pod: "
                f"obtaining pod's hard topology spread constraints: {error}"
            )
        if not constraints:
            return SKIP
        labels = pod.metadata.labels
        hard = [
            HardConstraint(counted, int(counted.constraint.selector.matches(labels)), {})
            for counted in self._counted(pod, constraints, nodes, requires_all=True)
        ]
        state.write(PRE_FILTER_STATE, FilterState(tuple(hard)))
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        hard: FilterState | None = state.get(PRE_FILTER_STATE)
        if hard is None:
            return error_status(f'reading "{PRE_FILTER_STATE}" from cycleState: not found')
        return hard.verdicts(nodes)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule() if self._may_have(pod, HARD) else Rule(Scope.NODE)

    def add_pod(self, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns) -> None:
        hard: FilterState = state.read(PRE_FILTER_STATE)
        hard.change(pod, added, node, 1)

    def remove_pod(self, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns) -> None:
        hard: FilterState = state.read(PRE_FILTER_STATE)
        hard.change(pod, removed, node, -1)

    def keys_affected_by(self, state: CycleState, pod: Pod, other: PodInfo) -> TopologyKeys:
        hard: FilterState = state.read(PRE_FILTER_STATE)
        return None if hard.is_about(pod, other) else ()  # the smallest count may be anywhere

    # -- score -------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        try:
            constraints = self._constraints(state, pod, SOFT)
        except SelectorError as error:
            return error_status(
                "calculating preScoreState: obtaining pod's soft topology spread constraints: "
                f"{error}"
            )
        if not constraints:
            return SKIP
        requires_all = self._requires_all(pod)
        if len(constraints) > MANY_CONSTRAINTS and requires_all:
            keys = {constraint.topology_key for constraint in constraints}
            if not nodes.table.has_label_keys(keys):
                state.write(PRE_SCORE_STATE, ALL_IGNORED)
                return None
        kept: list[Any] = state.remember((self.name, "counted"), lambda: [None, ()])
        if kept[0] is not constraints or any(soft.counter.is_dropped for soft in kept[1]):
            counted = self._counted(pod, constraints, nodes, requires_all=requires_all)
            kept[:] = [constraints, counted]
        else:
            counted = kept[1]
            for soft in counted:
                nodes.table.pod_index.keep(soft.counter)
                soft.domains.sync()
        state.write(PRE_SCORE_STATE, weigh(counted, nodes, requires_all=requires_all))
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Levels | Status:
        soft: ScoreState | None = state.get(PRE_SCORE_STATE)
        if soft is None:
            return error_status(f'error reading "{PRE_SCORE_STATE}" from cycleState: not found')
        return raw_scores(soft, nodes)

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Levels:
        soft: ScoreState = state.read(PRE_SCORE_STATE)
        return normalized(soft, scores, nodes)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule() if self._may_have(pod, SOFT) else Rule(Scope.NODE)

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod_actions = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        target_actions = Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
        node_actions = (
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        )
        return (
            on_event(Resource.ASSIGNED_POD, pod_actions, self.after_pod_change),
            on_event(Resource.TARGET_POD, target_actions, self.after_target_change),
            on_event(Resource.NODE, node_actions, self.after_node_change),
        )

    @reads("class")
    def after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        return hints.after_pod_change(pod, old, new, self._constraints(None, pod, HARD))

    @reads("class")
    def after_target_change(self, pod: Pod, old: Pod, new: Pod) -> Hint:
        return hints.after_target_change(old, new, self._constraints(None, pod, HARD))

    @reads("class")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        return hints.after_node_change(old, new, self._constraints(None, pod, HARD))

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        if pod.spec.topology_spread_constraints:
            return NOT_SIGNABLE
        return NOT_SIGNABLE_BY_DEFAULT if self._defaults else {}

    # -- constraints -------------------------------------------------------------------------------

    def _may_have(self, pod: Pod, action: str) -> bool:
        """False if no pod with this spec has such constraints: all of them skip that phase."""
        own = pod.spec.topology_spread_constraints
        if own:
            return any(constraint.when_unsatisfiable == action for constraint in own)
        return action in self._defaulted_actions and self._selectors is not None

    def _constraints(
        self, state: CycleState | None, pod: Pod, action: str
    ) -> tuple[Constraint, ...]:
        """The constraints that apply. A pod with any of its own gets no defaults.

        Raises:
            SelectorError: a selector cannot be built.
        """
        if pod.spec.topology_spread_constraints:
            return self._own(state, pod, action)
        if action not in self._defaulted_actions:
            return ()
        selectors, listers = self._selectors, self.handle.listers
        if selectors is None or listers is None:
            return ()
        if state is None or state.class_memo is None:
            return defaulted_constraints(pod, self._defaults, action, selectors)
        # One slot per class, not one per version: old versions are never used again.
        kept: list[Any] = state.remember(
            (self.name, action, "defaults"),
            lambda: [sources_of(listers, pod), None, ()],
        )
        sources, known, constraints = kept
        version = [lister.version for lister in sources]
        if known != version:
            current = defaulted_constraints(pod, self._defaults, action, selectors)
            # Workloads change often, but their selectors rarely do: then the old constraints are
            # kept.
            constraints = constraints if current == constraints else current
            kept[1:] = version, constraints
        unchanged: tuple[Constraint, ...] = constraints
        return unchanged

    def _own(self, state: CycleState | None, pod: Pod, action: str) -> tuple[Constraint, ...]:
        def make() -> tuple[Constraint, ...]:
            return own_constraints(pod, action, match_label_keys=self._match_label_keys)

        return make() if state is None else state.remember((self.name, action), make)

    def _counted(
        self,
        pod: Pod,
        constraints: tuple[Constraint, ...],
        nodes: NodeColumns,
        *,
        requires_all: bool,
    ) -> tuple[Counted, ...]:
        keys = frozenset(c.topology_key for c in constraints) if requires_all else frozenset()
        return tuple(
            [
                count(nodes.table, pod, c, keys, comparison_operators=self._comparison_operators)
                for c in constraints
            ]
        )

    def _requires_all(self, pod: Pod) -> bool:
        """False for the built-in defaults, which include nodes without a zone."""
        return bool(pod.spec.topology_spread_constraints) or not self._is_system_default
