"""Matches the incoming pod's affinity terms against existing pods, and theirs against it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from kubesched.api.affinity_terms import AffinityTerm, AffinityTerms
from kubesched.api.selectors import Selector
from kubesched.framework.nodes.namespaces import NamespaceLabels


class IncomingTerm(NamedTuple):
    """A term of the incoming pod, with resolved namespaces."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    any_namespace: bool

    def matches(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        return (self.any_namespace or namespace in self.namespaces) and self.selector.matches(
            labels
        )


class WeightedIncomingTerm(NamedTuple):
    """A preferred term; anti-affinity has a negative weight."""

    weight: int
    term: IncomingTerm


class IncomingTerms(NamedTuple):
    """All terms of the incoming pod."""

    required_affinity: tuple[IncomingTerm, ...]
    required_anti_affinity: tuple[IncomingTerm, ...]
    preferred: tuple[WeightedIncomingTerm, ...]


def resolve(
    terms: AffinityTerms, namespaces: NamespaceLabels, *, existing_only: bool = True
) -> IncomingTerms:
    """Resolve the namespaces of every term against the current namespace labels.

    A namespace selector selects among the namespaces that exist; `{}` selects all. Without
    `existing_only`, so does every selector that matches a namespace without labels, such as one
    made of NotIn and DoesNotExist.
    """

    def resolved(term: AffinityTerm) -> IncomingTerm:
        return _resolve(term, namespaces, existing_only=existing_only)

    return IncomingTerms(
        tuple(map(resolved, terms.required_affinity)),
        tuple(map(resolved, terms.required_anti_affinity)),
        (
            *(WeightedIncomingTerm(w.weight, resolved(w.term)) for w in terms.preferred_affinity),
            *(
                WeightedIncomingTerm(-w.weight, resolved(w.term))
                for w in terms.preferred_anti_affinity
            ),
        ),
    )


def _resolve(
    term: AffinityTerm, namespaces: NamespaceLabels, *, existing_only: bool
) -> IncomingTerm:
    selector = term.namespace_selector
    any_namespace = selector.is_empty() if existing_only else selector.matches(None)
    named = term.namespaces
    if not any_namespace and not selector.selects_nothing:
        named = named.union(name for name, labels in namespaces.items() if selector.matches(labels))
    return IncomingTerm(term.topology_key, term.selector, named, any_namespace)


class MatchingPods:
    """Pods on nodes that satisfy all of some terms. Terminating pods count."""

    __slots__ = ("_terms", "anchor", "key")

    def __init__(self, *terms: IncomingTerm) -> None:
        self._terms = terms
        pairs = [term.selector.required_pair for term in terms]
        self.anchor = next((pair for pair in pairs if pair is not None), None)
        self.key: Hashable = (
            "affinity",
            *((t.selector, t.namespaces, t.any_namespace) for t in terms),
        )

    def matches(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool:
        return all(term.matches(namespace, labels) for term in self._terms)
