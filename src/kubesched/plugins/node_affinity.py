"""NodeAffinity: filters and scores nodes by the pod's nodeSelector and node affinity.

The profile's `addedAffinity` also applies to every pod. Mirrors upstream's
`nodeaffinity/node_affinity.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from kubesched.api.core_v1 import (
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PreferredSchedulingTerm,
)
from kubesched.api.core_v1 import NodeAffinity as NodeAffinitySpec
from kubesched.api.node_selectors import (
    NODE_NAME_FIELD,
    ParsedNodeSelector,
    PreferredNodeTerms,
    RequiredNodeAffinity,
    required_node_affinity,
)
from kubesched.api.selectors import SelectorError
from kubesched.config.plugin_args import NodeAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    SignPlugin,
    default_normalize,
)
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.helper.node_selector_columns import (
    admitted_by_affinity,
    admitted_by_terms,
    matched,
)

NOT_ADMITTED_BY_POD = unresolvable("node(s) didn't match Pod's node affinity/selector")
NOT_ADMITTED_BY_PROFILE = unresolvable("node(s) didn't match scheduler-enforced node affinity")
TERMS_CONFLICT = unresolvable("pod affinity terms conflict")

PRE_FILTER_STATE = "PreFilterNodeAffinity"
PRE_SCORE_STATE = "PreScoreNodeAffinity"


class NodeAffinity(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Filters on nodeSelector and required affinity; scores by the weights of preferred terms."""

    name = "NodeAffinity"
    answers_by_spec = True
    args_type = NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs | None, handle: Handle) -> None:
        args = checked_args(args, NodeAffinityArgs, handle)
        super().__init__(args, handle)
        added = args.added_affinity or NodeAffinitySpec()
        required = added.required_during_scheduling_ignored_during_execution
        self._added_required = None if required is None else ParsedNodeSelector(required)
        preferred = added.preferred_during_scheduling_ignored_during_execution
        # Terms of weight 0 are dropped, but PreScore does not skip if there are only such terms.
        self._adds_preferences = bool(preferred)
        self._added_preferred = PreferredNodeTerms(preferred)

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> PreFilterResult | Status | None:
        terms = _required_terms(pod)
        if terms is None and self._added_required is None and pod.spec.node_selector is None:
            return SKIP
        state.write(PRE_FILTER_STATE, required_node_affinity(pod))
        names = _only_nodes(terms or ())
        if names is None:
            return None
        return PreFilterResult(names) if names else TERMS_CONFLICT

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | None:
        required = state.get(PRE_FILTER_STATE) or required_node_affinity(pod)
        if self._added_required is None:
            if required.is_unrestricted:
                return None
            return Verdicts.reject(~admitted_by_affinity(nodes, required), NOT_ADMITTED_BY_POD)
        by_profile = admitted_by_terms(nodes, self._added_required)
        by_pod = admitted_by_affinity(nodes, required)
        codes = np.where(by_profile, (~by_pod).view(np.uint8) * np.uint8(2), np.uint8(1))
        return Verdicts(
            codes, lambda code: NOT_ADMITTED_BY_PROFILE if code == 1 else NOT_ADMITTED_BY_POD
        )

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    # -- score -------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        if _preferred_terms(pod) is None and not self._adds_preferences:
            return SKIP
        try:
            state.write(PRE_SCORE_STATE, PreferredNodeTerms(_preferred_terms(pod)))
        except SelectorError as error:
            return error_status(error)
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | Status:
        preferred: PreferredNodeTerms | None = state.get(PRE_SCORE_STATE)
        if preferred is None:
            try:
                preferred = PreferredNodeTerms(_preferred_terms(pod))
            except SelectorError as error:
                return error_status(error)
        scores = np.zeros(len(nodes), dtype=np.int64)
        for weight, term in (*self._added_preferred.terms, *preferred.terms):
            scores += matched(nodes, term) * np.int64(weight)
        return scores

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Ints:
        return default_normalize(scores)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        actions = Action.ADD | Action.UPDATE_NODE_LABEL
        return (on_event(Resource.NODE, actions, self.after_node_change),)

    @reads("spec")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        """Queue if a node newly satisfies the pod's own affinity.

        # Upstream: the profile's affinity is checked against the new node only, so a node that
        # changed from failing just that one to satisfying it does not bring the pod back.
        """
        if self._added_required is not None and not self._added_required.matches_node(new):
            return Hint.SKIP
        required = RequiredNodeAffinity(pod)
        if not _matches_or_raises(required, new):
            return Hint.SKIP
        return Hint.SKIP if old is not None and _matches_or_raises(required, old) else Hint.QUEUE

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return {
            "v1.Pod.Spec.Affinity.NodeAffinity": _affinity_fragment(pod),
            "v1.Pod.Spec.Affinity.NodeSelector": pod.spec.node_selector,
        }


def _node_affinity(pod: Pod) -> NodeAffinitySpec | None:
    return None if pod.spec.affinity is None else pod.spec.affinity.node_affinity


def _required_terms(pod: Pod) -> Sequence[NodeSelectorTerm] | None:
    """The terms of the required node affinity; None (unlike an empty list) if there is none."""
    affinity = _node_affinity(pod)
    required = (
        None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    )
    return None if required is None else required.node_selector_terms or ()


def _preferred_terms(pod: Pod) -> Sequence[PreferredSchedulingTerm] | None:
    affinity = _node_affinity(pod)
    return (
        None if affinity is None else affinity.preferred_during_scheduling_ignored_during_execution
    )


def _only_nodes(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """The union of the nodes named by the terms; None if some term names no node.

    # Upstream: every listed value counts here, although a requirement with several makes its term
    # match no node.
    """
    if not terms:
        return None
    union: set[str] = set()
    for term in terms:
        names: set[str] | None = None
        for requirement in term.match_fields or ():
            if requirement.key == NODE_NAME_FIELD and requirement.operator == "In":
                values = set(requirement.values or ())
                names = values if names is None else names & values
        if names is None:
            return None
        union |= names
    return frozenset(union)


def _matches_or_raises(required: RequiredNodeAffinity, node: Node) -> bool:
    """Does the node match? Malformed terms raise only if no other term matches."""
    if required.selector is not None and not required.selector.matches(node.metadata.labels):
        return False
    if required.affinity is None or required.affinity.matches_node(node):
        return True
    if required.affinity.error is not None:
        raise required.affinity.error
    return False


# -- signature: lists whose order does not matter are sorted ---------------------------------------


def _affinity_fragment(pod: Pod) -> dict[str, list[str]] | None:
    affinity = _node_affinity(pod)
    if affinity is None:
        return None
    return {
        "Required": sorted(_dump(_term_fragment(term)) for term in _required_terms(pod) or ()),
        "Preferred": sorted(
            _dump({"Weight": term.weight, "Preference": _term_fragment(term.preference)})
            for term in _preferred_terms(pod) or ()
        ),
    }


def _term_fragment(term: NodeSelectorTerm) -> dict[str, list[str]]:
    return {
        "MatchExpressions": _requirements_fragment(term.match_expressions),
        "MatchFields": _requirements_fragment(term.match_fields),
    }


def _requirements_fragment(requirements: Sequence[NodeSelectorRequirement] | None) -> list[str]:
    return sorted(
        _dump({**msgspec.to_builtins(requirement), "values": sorted(requirement.values or ())})
        for requirement in requirements or ()
    )


def _dump(value: object) -> str:
    return msgspec.json.encode(value).decode()
