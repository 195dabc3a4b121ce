"""Pod (anti-)affinity terms in checked, comparable form.

The four lists of a pod are parsed independently: the first invalid selector empties its whole list
and leaves an error. The errors are ignored for pods already on nodes, and fail a pod to be
scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from kubesched.api import field_errors
from kubesched.api.core_v1 import (
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    WeightedPodAffinityTerm,
)
from kubesched.api.selectors import Selector, SelectorError, from_label_selector
from kubesched.base.sized_cache import SizedCache, by_spelling

T = TypeVar("T")
P = TypeVar("P")


class AffinityTerm(NamedTuple):
    """Selects pods by namespace and labels, within a topology."""

    namespaces: frozenset[str]
    selector: Selector
    topology_key: str
    namespace_selector: Selector

    def matches(
        self,
        namespace: str,
        labels: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None,
    ) -> bool:
        """True if the term selects a pod in `namespace`, which has `namespace_labels`."""
        if namespace not in self.namespaces and not self.namespace_selector.matches(
            namespace_labels
        ):
            return False
        return self.selector.matches(labels)

    def may_match(self, namespace: str, namespace_labels: Mapping[str, str] | None) -> bool:
        """True if the term selects pods in `namespace`, which has `namespace_labels`."""
        return namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)


class WeightedAffinityTerm(NamedTuple):
    """A preferred term and its weight."""

    weight: int
    term: AffinityTerm


class AffinityTerms(NamedTuple):
    """All (anti-)affinity terms of a pod, and their problems."""

    required_affinity: tuple[AffinityTerm, ...] = ()
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[WeightedAffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedAffinityTerm, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def has_preferences(self) -> bool:
        return bool(self.preferred_affinity or self.preferred_anti_affinity)

    @property
    def error(self) -> str:
        """All problems in one message, or the empty string."""
        return field_errors.aggregate(self.problems) if self.problems else ""


NO_TERMS = AffinityTerms()

_encode = msgspec.msgpack.Encoder().encode
_known: SizedCache[AffinityTerms] = by_spelling()
"""Equal terms share one object, so comparing them is fast."""


def parse_affinity_terms(pod: Pod) -> AffinityTerms:
    """Parses the terms of all four categories of a pod."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    namespace = pod.metadata.namespace
    spelling = _encode((affinity.pod_affinity, affinity.pod_anti_affinity))
    key = (namespace, spelling)
    known = _known.get(key)
    if known is None:
        known = _parse(
            namespace,
            affinity.pod_affinity or PodAffinity(),
            affinity.pod_anti_affinity or PodAntiAffinity(),
        )
        _known.keep(key, len(spelling), known)
    return known


def _parse(namespace: str, near: PodAffinity, apart: PodAntiAffinity) -> AffinityTerms:
    problems: list[str] = []

    def parsed(category: str, terms: Iterable[T] | None, parse: Callable[[T], P]) -> tuple[P, ...]:
        try:
            return tuple(map(parse, terms or ()))
        except SelectorError as error:
            problems.append(f"{category}: {error}")
            return ()

    def required(term: PodAffinityTerm) -> AffinityTerm:
        return parse_affinity_term(term, namespace)

    def preferred(term: WeightedPodAffinityTerm) -> WeightedAffinityTerm:
        return WeightedAffinityTerm(term.weight, required(term.pod_affinity_term))

    near_required = near.required_during_scheduling_ignored_during_execution
    apart_required = apart.required_during_scheduling_ignored_during_execution
    near_preferred = near.preferred_during_scheduling_ignored_during_execution
    apart_preferred = apart.preferred_during_scheduling_ignored_during_execution
    return AffinityTerms(
        parsed("requiredAffinityTerms", near_required, required),
        parsed("requiredAntiAffinityTerms", apart_required, required),
        parsed("preferredAffinityTerms", near_preferred, preferred),
        parsed("preferredAntiAffinityTerms", apart_preferred, preferred),
        tuple(problems),
    )


def parse_affinity_term(term: PodAffinityTerm, pod_namespace: str) -> AffinityTerm:
    """Parses one term of a pod in `pod_namespace`; raises SelectorError."""
    own_namespace_only = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        namespaces=frozenset((pod_namespace,) if own_namespace_only else term.namespaces or ()),
        selector=from_label_selector(term.label_selector),
        topology_key=term.topology_key,
        namespace_selector=from_label_selector(term.namespace_selector),
    )
