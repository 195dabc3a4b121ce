"""Queueing hints of InterPodAffinity.

# Upstream: hints do not know the labels of namespaces, so pods selected only through a namespace
# selector do not requeue the pod, unless the selector matches a namespace without labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.affinity_terms import AffinityTerm, parse_affinity_terms
from kubesched.api.core_v1 import Node, Pod
from kubesched.framework.engine import reads
from kubesched.framework.events import Hint


def after_pod_change(pod: Pod, old: Pod | None, new: Pod | None, *, any_term: bool = True) -> Hint:
    """Another pod was added, deleted or relabelled. Hot path: called for every waiting pod.

    Anti-affinity kept them apart if any term matches, or, without `any_term`, if all do.
    """
    if old is None:
        assert new is not None, "a pod event carries at least one version"
        came = _is_placed(new) and _all_match(parse_affinity_terms(pod).required_affinity, new)
        return Hint.QUEUE if came else Hint.SKIP
    if not _is_placed(old) or (new is not None and not _is_placed(new)):
        return Hint.SKIP
    terms = parse_affinity_terms(pod)
    affinity, anti = terms.required_affinity, terms.required_anti_affinity
    repels = _any_matches if any_term else _all_match
    if new is not None:
        begins = not _all_match(affinity, old) and _all_match(affinity, new)
        stops = repels(anti, old) and not repels(anti, new)
        return Hint.QUEUE if begins or stops else Hint.SKIP
    theirs = parse_affinity_terms(old).required_anti_affinity
    return Hint.QUEUE if repels(anti, old) or repels(theirs, pod) else Hint.SKIP


def _is_placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _all_match(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    """Do all terms match the pod? False without terms."""
    meta = pod.metadata
    namespace, labels = meta.namespace, meta.labels
    for term in terms:  # a generator costs as much as the term itself
        if not term.matches(namespace, labels, None):
            return False
    return bool(terms)


def _any_matches(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    meta = pod.metadata
    namespace, labels = meta.namespace, meta.labels
    for term in terms:  # noqa: SIM110  # as above
        if term.matches(namespace, labels, None):
            return True
    return False


@reads("class")
def after_node_change(pod: Pod, old: Node | None, new: Node) -> Hint:
    """A node was added or relabelled."""
    after = new.metadata.labels or {}
    terms = parse_affinity_terms(pod)
    if not terms.required_affinity and not terms.required_anti_affinity:
        # The pod was rejected because of other pods' terms, whose topology keys are not known here.
        # Upstream skips the pod, which then waits for the five-minute flush even if a node would
        # fit.
        return Hint.QUEUE if old is None or (old.metadata.labels or {}) != after else Hint.SKIP
    if old is None:
        near = any(term.topology_key in after for term in terms.required_affinity)
        return Hint.QUEUE if near or terms.required_anti_affinity else Hint.SKIP
    before = old.metadata.labels or {}
    for term in terms.required_affinity:
        key = term.topology_key
        if key in after and before.get(key) != after[key]:
            return Hint.QUEUE
    for term in terms.required_anti_affinity:
        key = term.topology_key
        if key in before and before[key] != after.get(key):
            return Hint.QUEUE
    return Hint.SKIP
