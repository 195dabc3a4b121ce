"""The extension points of InterPodAffinity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from kubesched.api.affinity_terms import NO_TERMS, AffinityTerms, parse_affinity_terms
from kubesched.api.core_v1 import Pod
from kubesched.base.sized_cache import SizedCache
from kubesched.config.plugin_args import InterPodAffinityArgs
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
from kubesched.framework.nodes.namespaces import NamespaceLabels
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_index import (
    PREFERRED_AFFINITY,
    PREFERRED_ANTI_AFFINITY,
    REQUIRED_AFFINITY,
    REQUIRED_ANTI_AFFINITY,
    PodIndex,
    Term,
)
from kubesched.framework.nodes.pods import PodInfo, label_key_of
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unresolvable, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.inter_pod_affinity import hints
from kubesched.plugins.inter_pod_affinity.filtering import FilterState, counted_together
from kubesched.plugins.inter_pod_affinity.scoring import (
    Contribution,
    ScoreState,
    normalized,
    raw_scores,
    with_pods,
)
from kubesched.plugins.inter_pod_affinity.terms import (
    IncomingTerms,
    MatchingPods,
    resolve,
)

PRE_FILTER_STATE = "PreFilterInterPodAffinity"
PRE_SCORE_STATE = "PreScoreInterPodAffinity"

_FILTERING = (REQUIRED_ANTI_AFFINITY,)
"""The kinds of existing pods' terms that filter."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_RESOLVED_LIMIT: Final = 4096
"""Bound of the cache of terms with resolved namespaces."""
_TERMS_LIMIT: Final = 64
"""Pods with more terms are not cached: their terms are resolved at every attempt."""
_MATCHED_BYTES_LIMIT: Final = 8 * 1024 * 1024
"""Bound of a cache: labels of pods, and references to the existing pods' terms that match them."""

NOT_SIGNABLE = unschedulable("pods with InterPodAffinity are not signable")


class InterPodAffinity(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Filters on required terms and existing pods' required anti-affinity; scores preferred terms.

    Counts by topology domain come from the table's pod index, which keeps them up to date.
    """

    name = "InterPodAffinity"
    answers_by_spec = True
    args_type = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs | None, handle: Handle) -> None:
        args = checked_args(args, InterPodAffinityArgs, handle)
        super().__init__(args, handle)
        reference = handle.feature_gates.reference
        self._existing_namespaces_only = reference.namespace_selectors_are_expanded
        self._has_hostname_fast_path = handle.feature_gates.InterPodAffinityHostnameFastPath
        self._any_term_wakes = reference.any_anti_affinity_term_wakes
        self._hard_weight = args.hard_pod_affinity_weight
        self._scoring: tuple[str, ...] = (PREFERRED_AFFINITY, PREFERRED_ANTI_AFFINITY)
        if self._hard_weight > 0:
            self._scoring = (REQUIRED_AFFINITY, *self._scoring)
        self._resolved_for: tuple[NamespaceLabels, int] | None = None
        self._resolved: SizedCache[IncomingTerms] = SizedCache(_RESOLVED_LIMIT, _TERMS_LIMIT)
        self._matched_for: tuple[PodIndex, int, int] | None = None
        self._matched: SizedCache[tuple[Term, ...]] = SizedCache(_MATCHED_BYTES_LIMIT)
        self._ignores_existing_preferences = args.ignore_preferred_terms_of_existing_pods

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        parsed = self._parsed(state, pod)
        if parsed.problems:
            return unresolvable(f"parsing pod: {parsed.error}")
        table = nodes.table
        existing = [t for t in self._about(pod, table, _FILTERING) if t.domains.total]
        if not existing and not parsed.required_affinity and not parsed.required_anti_affinity:
            return SKIP
        terms = self._incoming(state, pod, table)
        # For affinity a pod must match all terms to count, for anti-affinity any of them.
        affinity = counted_together(table, terms.required_affinity)
        anti = [c for t in terms.required_anti_affinity for c in counted_together(table, (t,))]
        # Upstream's fast path reads such terms on each node instead of counting them by label.
        on_nodes = self._has_hostname_fast_path and all(
            term.topology_key == _HOSTNAME for term in terms.required_affinity
        )
        required = FilterState(pod, affinity, tuple(anti), tuple(existing), on_nodes)
        state.write(PRE_FILTER_STATE, required)
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        required: FilterState | None = state.get(PRE_FILTER_STATE)
        if required is None:
            return error_status(f'error reading "{PRE_FILTER_STATE}" from cycleState: not found')
        return required.verdicts(nodes)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        parsed = self._parsed(state, pod)
        has_own = parsed.problems or parsed.required_affinity or parsed.required_anti_affinity
        return Rule() if has_own else self._skipped_while_alone(pod, _FILTERING)

    def add_pod(self, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns) -> None:
        required: FilterState = state.read(PRE_FILTER_STATE)
        required.change(added, node, 1)

    def remove_pod(self, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns) -> None:
        required: FilterState = state.read(PRE_FILTER_STATE)
        required.change(removed, node, -1)

    def keys_affected_by(self, state: CycleState, pod: Pod, other: PodInfo) -> TopologyKeys:
        required: FilterState = state.read(PRE_FILTER_STATE)
        return required.keys_affected_by(other, self.handle.table)

    # -- score -------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        parsed = self._parsed(state, pod)
        if parsed.problems:
            return error_status(f"updating podInfo: {parsed.error}")
        if self._ignores_existing_preferences and not parsed.has_preferences:
            return SKIP
        existing = self._about(pod, nodes.table, self._scoring)
        if not existing and not parsed.has_preferences:
            return SKIP
        preferred = with_pods(self._contributions(state, pod, nodes.table, existing))
        if preferred is None:
            return SKIP
        state.write(PRE_SCORE_STATE, preferred)
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Levels | Status:
        preferred: ScoreState | None = state.get(PRE_SCORE_STATE)
        if preferred is None:
            return error_status(f'error reading "{PRE_SCORE_STATE}" from cycleState: not found')
        return raw_scores(preferred, nodes)

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Levels:
        return normalized(scores)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        parsed = self._parsed(state, pod)
        if parsed.problems or parsed.has_preferences:
            return Rule()
        kinds = () if self._ignores_existing_preferences else self._scoring
        return self._skipped_while_alone(pod, kinds)

    def _contributions(
        self, state: CycleState, pod: Pod, table: NodeTable, existing: Sequence[Term]
    ) -> Iterator[Contribution]:
        if self._parsed(state, pod).has_preferences:
            for weight, term in self._incoming(state, pod, table).preferred:
                counter = table.pod_index.counter(MatchingPods(term))
                yield Contribution(counter.by_domain(term.topology_key), weight)
        for carried in existing:
            kind, weight = carried.key.kind, carried.weight
            if kind == REQUIRED_AFFINITY:
                weight = self._hard_weight
            elif kind == PREFERRED_ANTI_AFFINITY:
                weight = -weight
            yield Contribution(carried.domains, weight)

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod_actions = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        node_actions = Action.ADD | Action.UPDATE_NODE_LABEL
        return (
            on_event(Resource.ASSIGNED_POD, pod_actions, self.after_pod_change),
            on_event(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
            on_event(Resource.NODE, node_actions, hints.after_node_change),
        )

    @reads("class")
    def after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        return hints.after_pod_change(pod, old, new, any_term=self._any_term_wakes)

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        if _has_own_terms(pod):
            return NOT_SIGNABLE
        return {} if self._ignores_existing_preferences else {"v1.Pod.Labels": pod.metadata.labels}

    # -- terms -------------------------------------------------------------------------------------

    def _parsed(self, state: CycleState, pod: Pod) -> AffinityTerms:
        if pod.spec.affinity is None:
            return NO_TERMS
        return state.remember((self.name, "parsed"), lambda: parse_affinity_terms(pod))

    def _incoming(self, state: CycleState, pod: Pod, table: NodeTable) -> IncomingTerms:
        """The pod's terms with resolved namespaces; resolved again after any namespace change."""
        namespaces = table.namespaces
        version = (namespaces, namespaces.version)
        if version != self._resolved_for:
            self._resolved_for = version
            self._resolved.clear()
        parsed = self._parsed(state, pod)
        terms = self._resolved.get(parsed)
        if terms is None:
            terms = resolve(parsed, namespaces, existing_only=self._existing_namespaces_only)
            self._resolved.keep(parsed, sum(map(len, parsed)), terms)
        return terms

    def _skipped_while_alone(self, pod: Pod, kinds: tuple[str, ...]) -> Rule:
        """For a pod without terms: most namespaces are not selected by terms of other pods."""
        premise = partial(self._is_meant, pod.metadata.namespace, kinds)
        return Rule() if premise() else Rule(Scope.NODE, premise)

    def _is_meant(self, namespace: str, kinds: tuple[str, ...]) -> bool:
        """True if terms of existing pods may match pods of the namespace."""
        table = self.handle.table
        return table.pod_index.has_terms and bool(self._about_any(namespace, table, kinds))

    def _about_any(
        self, namespace: str, table: NodeTable, kinds: tuple[str, ...]
    ) -> tuple[Term, ...]:
        """Existing pods' terms about pods of the namespace, kept while the terms are the same."""
        index = table.pod_index
        version = index, index.terms_version, table.namespaces.version
        if version != self._matched_for:
            self._matched_for = version
            self._matched.clear()
        terms = self._matched.get((kinds, namespace))
        if terms is None:
            labels = table.namespaces.labels_of(namespace)
            carried = [term for kind in kinds for term in index.terms(kind)]
            terms = tuple([t for t in carried if t.term.may_match(namespace, labels)])
            self._matched.keep((kinds, namespace), 128 + 8 * len(terms), terms)
        return terms

    def _about(self, pod: Pod, table: NodeTable, kinds: tuple[str, ...]) -> tuple[Term, ...]:
        """Existing pods' terms that match this pod, kept likewise."""
        if not table.pod_index.has_terms:
            return ()
        meta = pod.metadata
        possible, key = self._about_any(meta.namespace, table, kinds), (kinds, label_key_of(pod))
        terms = self._matched.get(key)
        if terms is None:
            terms = tuple([t for t in possible if t.term.selector.matches(meta.labels)])
            self._matched.keep(key, 128 * (1 + len(meta.labels or ())) + 8 * len(terms), terms)
        return terms


def _has_own_terms(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )
