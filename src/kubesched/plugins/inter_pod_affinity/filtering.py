"""Required terms: upstream's three maps as counters, and what-if changes to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.nodes.columns import ABSENT, Ids, Mask
from kubesched.framework.nodes.domain_counter import DomainCounter
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_index import Counter, Term
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import unresolvable, unschedulable
from kubesched.framework.verdicts import Codes, Verdicts
from kubesched.plugins.inter_pod_affinity.terms import IncomingTerm, MatchingPods

AFFINITY = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

_EXISTING, _ANTI, _AFFINITY = 1, 2, 3  # in reverse order of their checks
_STATUSES = {_AFFINITY: AFFINITY, _ANTI: ANTI_AFFINITY, _EXISTING: EXISTING_ANTI_AFFINITY}

Changes = dict[str, dict[str, int]]
"""Topology key -> value -> number of pods a what-if adds (positive) or removes."""


class CountedTerm(NamedTuple):
    """A term of the incoming pod and the pods that count for it, by domain."""

    term: IncomingTerm
    domains: DomainCounter
    counter: Counter


def counted_together(table: NodeTable, terms: Sequence[IncomingTerm]) -> tuple[CountedTerm, ...]:
    """The terms, each with the pods in its domains that match all terms."""
    if not terms:
        return ()
    counter = table.pod_index.counter(MatchingPods(*terms))
    return tuple([CountedTerm(t, counter.by_domain(t.topology_key), counter) for t in terms])


@dataclass(slots=True, eq=False)
class FilterState:
    """The PreFilter state; what-if changes are kept apart from shared counters (cheap clones)."""

    pod: Pod
    affinity: tuple[CountedTerm, ...]
    anti: tuple[CountedTerm, ...]
    existing: tuple[Term, ...]
    counts_every_node: bool = False
    """True if pods on nodes without the topology label are of the kind, too."""
    _changed_pods: int = 0
    _changed_affinity: Changes = field(default_factory=dict)
    _changed_anti: Changes = field(default_factory=dict)
    _changed_existing: Changes = field(default_factory=dict)

    def clone(self) -> FilterState:
        return replace(
            self,
            _changed_affinity=_copied(self._changed_affinity),
            _changed_anti=_copied(self._changed_anti),
            _changed_existing=_copied(self._changed_existing),
        )

    # -- verdicts ----------------------------------------------------------------------------------

    def verdicts(self, nodes: NodeColumns) -> Verdicts | None:
        """None if every node passes."""
        codes = self._codes(nodes)
        return Verdicts(codes, _STATUSES.__getitem__) if codes.any() else None

    def _codes(self, nodes: NodeColumns) -> Codes:
        """Affinity is checked first, then the pod's anti-affinity, then that of existing pods."""
        codes: Codes = np.zeros(len(nodes), dtype=np.int8)
        for code, rejected in (
            (_EXISTING, self._forbidden_by_existing(nodes)),
            (_ANTI, self._forbidden_by_anti(nodes)),
            (_AFFINITY, self._lacking_affinity(nodes) if self.affinity else None),
        ):
            if rejected is not None:
                np.maximum(codes, rejected * np.int8(code), out=codes)
        return codes

    def _lacking_affinity(self, nodes: NodeColumns) -> Mask:
        lacks_pod: Mask | None = None
        for counted in self.affinity:
            key = counted.term.topology_key
            changes = self._changed_affinity.get(key)
            if not changes and len(nodes) < len(counted.domains.counts):
                here: Mask = counted.domains.of_nodes(nodes) <= 0
            else:  # nodes without the label read the last slot, which is 0
                here = (_counts(counted.domains, changes) <= 0).take(nodes.label_ids(key))
            lacks_pod = here if lacks_pod is None else lacks_pod | here
        assert lacks_pod is not None, "asked only if there are terms"
        if lacks_pod.any() and self.is_first_of_its_kind():
            return self._lacking_key(nodes)
        return lacks_pod

    def _lacking_key(self, nodes: NodeColumns) -> Mask:
        """Nodes without the topology label of some term."""
        lacks_key = np.zeros(len(nodes), dtype=np.bool_)
        for counted in self.affinity:
            lacks_key |= nodes.label_ids(counted.term.topology_key) == ABSENT
        return lacks_key

    def is_first_of_its_kind(self) -> bool:
        """True if no pod but this one matches its terms: a group's first pod must be schedulable.

        # Upstream: matching pods on nodes without any of the topology labels are not counted.
        """
        if self.counts_every_node and self.affinity[0].counter.total + self._changed_pods > 0:
            return False
        if any(c.domains.total for c in self.affinity) and not self._changed_affinity:
            return False
        if self._changed_affinity and self._has_affinity_entry():
            return False
        meta = self.pod.metadata
        return all(c.term.matches(meta.namespace, meta.labels) for c in self.affinity)

    def _has_affinity_entry(self) -> bool:
        """Does the affinity map have an entry, changes included?"""
        for counted in self.affinity:
            changes = self._changed_affinity.get(counted.term.topology_key)
            if _counts(counted.domains, changes).any():
                return True
            if changes and any(
                counted.domains.column.id_of(v) == ABSENT and d for v, d in changes.items()
            ):
                return True
        return False

    def _forbidden_by_anti(self, nodes: NodeColumns) -> Mask | None:
        pairs = [(c.term.topology_key, c.domains) for c in self.anti]
        return _forbidden(nodes, pairs, self._changed_anti)

    def _forbidden_by_existing(self, nodes: NodeColumns) -> Mask | None:
        pairs = [(term.key.topology_key, term.domains) for term in self.existing]
        return _forbidden(nodes, pairs, self._changed_existing)

    # -- what-ifs ----------------------------------------------------------------------------------

    def change(self, other: PodInfo, node: NodeColumns, delta: int) -> None:
        """Apply a what-if change: a pod is added to or removed from a node."""
        labels = node.node_at(0).metadata.labels or {}
        meta = self.pod.metadata
        namespace_labels = node.table.namespaces.labels_of(meta.namespace)
        for term in other.affinity_terms.required_anti_affinity:
            if term.matches(meta.namespace, meta.labels, namespace_labels):
                _note(self._changed_existing, labels, term.topology_key, delta)
        other_labels = other.pod.metadata.labels
        if self.affinity and all(
            c.term.matches(other.namespace, other_labels) for c in self.affinity
        ):
            self._changed_pods += delta
            for key in dict.fromkeys(c.term.topology_key for c in self.affinity):
                _note(self._changed_affinity, labels, key, delta)
        for counted in self.anti:
            if counted.term.matches(other.namespace, other_labels):
                _note(self._changed_anti, labels, counted.term.topology_key, delta)

    def keys_affected_by(self, other: PodInfo, table: NodeTable) -> set[str] | None:
        """The topology keys in whose domains that pod affects verdicts; None if on any node."""
        meta, labels = self.pod.metadata, other.pod.metadata.labels
        anti = (c.term for c in self.anti if c.term.matches(other.namespace, labels))
        keys = {term.topology_key for term in anti}
        if self.affinity and all(c.term.matches(other.namespace, labels) for c in self.affinity):
            if all(c.term.matches(meta.namespace, meta.labels) for c in self.affinity):
                return None  # this pod may be the first of its kind only without the other
            keys |= {c.term.topology_key for c in self.affinity}
        namespace_labels = table.namespaces.labels_of(meta.namespace)
        for term in other.affinity_terms.required_anti_affinity:
            if term.matches(meta.namespace, meta.labels, namespace_labels):
                keys.add(term.topology_key)
        return keys


def _forbidden(
    nodes: NodeColumns, pairs: list[tuple[str, DomainCounter]], changed: Changes
) -> Mask | None:
    """Where any pair of a topology key and the node's value has a positive count.

    # Upstream keeps one map: terms with the same key share their pairs, so changes apply to the sum
    # over them.
    """
    forbidden: Mask | None = None
    for key in dict.fromkeys(key for key, _ in pairs if key not in changed):
        hit: Mask = _any_pods([domains for other, domains in pairs if other == key], nodes)
        forbidden = hit if forbidden is None else forbidden | hit
    for key, changes in changed.items():
        column = nodes.label_column(key)
        sums = np.zeros(len(column.values) + 1, dtype=np.int64)
        for other, domains in pairs:
            if other == key:
                sums[:-1] += domains.counts[: len(column.values)]
        for value, delta in changes.items():
            at = column.id_of(value)
            if at != ABSENT:
                sums[at] += delta
        hit = (sums > 0).take(nodes.label_ids(key))
        forbidden = hit if forbidden is None else forbidden | hit
    return forbidden


def _any_pods(counters: list[DomainCounter], nodes: NodeColumns) -> Mask:
    """Where any count is positive in the node's domain; all counts are over the same label."""
    column = counters[0].column
    values = len(column.values)
    if counters[0].is_by_row or len(nodes) < values:
        any_pods: Mask = np.logical_or.reduce([c.of_nodes(nodes) > 0 for c in counters])
        return any_pods
    has_pods = np.zeros(values + 1, dtype=np.bool_)  # the last slot is for nodes without the label
    for counter in counters:
        has_pods[:-1] |= counter.counts[:values] > 0
    return has_pods.take(nodes.part_of(column.ids))


def _note(changes: Changes, node_labels: dict[str, str], key: str, delta: int) -> None:
    value = node_labels.get(key)
    if value is None:
        return
    by_value = changes.setdefault(key, {})
    by_value[value] = by_value.get(value, 0) + delta


def _copied(changes: Changes) -> Changes:
    return {key: dict(values) for key, values in changes.items()}


def _counts(domains: DomainCounter, changes: dict[str, int] | None) -> Ids:
    if not changes:
        return domains.counts
    counts = domains.counts.copy()
    for value, delta in changes.items():
        at = domains.column.id_of(value)
        if at != ABSENT:
            counts[at] += delta
    return counts
