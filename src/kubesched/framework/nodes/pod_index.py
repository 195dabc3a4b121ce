"""Incremental counts of pods by label selector and topology domain.

Pods on nodes fall into *label classes* (equal namespace, labels and terminating flag); selectors
are matched once per label class, never per pod. On top of the classes:

    Counter        pods per row that match a predicate (a spread constraint or affinity term)
    DomainCounter  the same pods per value of a topology label, over the eligible rows
    Term           an (anti-)affinity term of pods on nodes: how many pods carry it, per row

Adding or removing a pod updates only the counters of its label class and the terms it carries. This
makes spread constraints and inter-pod affinity fast: upstream recounts all pods for every pending
pod. Counters and label classes are matched by a label pair that the selector requires, so thousands
of each do not slow each other down. The least recently used counters are dropped: a caller that
keeps a counter beyond an attempt must check `is_dropped`.

Invariant: every count equals a recount over the table's pods (`recount` in the tests,
`check_invariants` here).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from kubesched.framework.nodes.columns import Ids
from kubesched.framework.nodes.domain_counter import DomainCounter, Domains, Eligibility
from kubesched.framework.nodes.pods import PodInfo, label_key_of

if TYPE_CHECKING:
    from kubesched.api.affinity_terms import AffinityTerm
    from kubesched.framework.nodes.node_table import NodeTable
    from kubesched.framework.nodes.pod_batch import PodBatch

COUNTER_LIMIT: Final = 8192
"""Maximum number of counters (LRU). An app with default spreading needs one."""
DENSE_LIMIT: Final = 512
"""Maximum number of counters with a column, which costs 4 bytes per row."""
DOMAINS_LIMIT: Final = 16
"""Maximum number of domain counters per counter. A pod can name thousands of topology keys."""

EMPTY_LABELS: Final[Mapping[str, str]] = {}


LabelPair = tuple[str, str]
"""A label's key and value."""


class PodPredicate(Protocol):
    """Selects the pods to count. Equal keys mean equal predicates."""

    @property
    def key(self) -> Hashable: ...

    @property
    def anchor(self) -> LabelPair | None:
        """A label that every selected pod has, or None. Pods without it are skipped."""
        ...

    def matches(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool: ...


class LabelClass:
    """Pods that no selector can tell apart, and the rows they are on."""

    __slots__ = ("counters", "key", "labels", "namespace", "out", "rows", "terminating")

    def __init__(
        self, key: Hashable, namespace: str, labels: Mapping[str, str], terminating: bool
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating
        self.rows: dict[int, int] = {}
        self.out = 0
        """Number of pods temporarily out of the table; the class is kept for them."""
        self.counters: list[Counter] = []


class PodsPerRow:
    """Some pods, counted by row."""

    def __init__(self, index: PodIndex) -> None:
        self._index = index
        self.rows: dict[int, int] = {}
        """The nonzero pod counts by row."""
        self.total = 0
        self._dense: Ids | None = None

    def add(self, row: int, delta: int) -> int:
        """Count pods; returns how many the row has now."""
        self.total += delta
        count = self.rows.get(row, 0) + delta
        if count:
            self.rows[row] = count
        else:
            self.rows.pop(row, None)
        if self._dense is not None:
            self._dense[row] = count
        return count

    def held(self) -> Iterable[tuple[int, int]]:
        """(row, count) of every row with a nonzero count."""
        return self.rows.items()

    @property
    def per_row(self) -> Ids:
        """The counts as a column, for evaluations over all rows."""
        dense = self._dense
        if dense is None:
            dense = self._dense = np.zeros(self._index.capacity, dtype=np.int32)
            if self.rows:
                dense[list(self.rows)] = list(self.rows.values())
        self._index.keep_dense(self)
        return dense

    def forget_dense(self) -> None:
        """Free the column; it is rebuilt on demand."""
        self._dense = None

    def check_column(self, name: Hashable) -> None:
        """Assert that the column, if there is one, equals the counts."""
        if self._dense is not None:
            rows = np.flatnonzero(self._dense)
            column = dict(zip(rows.tolist(), self._dense[rows].tolist(), strict=True))
            assert column == self.rows, f"column of counter {name!r} drifted"


class Counter(PodsPerRow):
    """Pods per row that satisfy one predicate."""

    def __init__(self, index: PodIndex, predicate: PodPredicate) -> None:
        super().__init__(index)
        self.predicate = predicate
        self.is_dropped = False
        """True once the index stopped updating this counter: request a new one."""
        self._domains: dict[Hashable, DomainCounter] = {}
        self._overflow: WeakValueDictionary[Hashable, DomainCounter] = WeakValueDictionary()
        """Domain counters beyond the limit: weakly held, updated while in use."""

    def add(self, row: int, delta: int) -> int:
        for domains in self._domains.values():
            domains.add(row, delta)
        if self._overflow:
            for domains in list(self._overflow.values()):
                domains.add(row, delta)
        return super().add(row, delta)

    def by_domain(self, key: str, eligibility: Eligibility | None = None) -> DomainCounter:
        """The counts per value of a topology label, up to date."""
        at = (key, None if eligibility is None else eligibility.key)
        domains = self._domains.get(at)
        if domains is None:
            domains = self._overflow.pop(at, None)
            if domains is None:
                domains = DomainCounter(self._index.domains(key, eligibility), self)
            self._domains[at] = domains
            if len(self._domains) > DOMAINS_LIMIT:
                oldest = next(iter(self._domains))
                self._overflow[oldest] = self._domains.pop(oldest)
        return domains.sync()

    def check_invariants(self, expected: dict[int, int]) -> None:
        """Assert that the counts per row equal the expected ones."""
        key = self.predicate.key
        assert self.rows == expected, f"counter {key!r} drifted"
        assert self.total == sum(expected.values()), f"total of counter {key!r} drifted"
        self.check_column(key)
        for at, domains in (*self._domains.items(), *self._overflow.items()):
            domains.check_invariants(expected, at)


class TermKey(NamedTuple):
    """Identity of a term: terms of different pods with equal keys are counted as one."""

    kind: str
    weight: int
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Hashable
    selector: Hashable


class Term(PodsPerRow):
    """An (anti-)affinity term carried by pods on nodes."""

    def __init__(self, index: PodIndex, key: TermKey, term: AffinityTerm) -> None:
        super().__init__(index)
        self.key = key
        self.term = term
        self.weight = key.weight
        self._domains: DomainCounter | None = None

    def add(self, row: int, delta: int) -> int:
        if self._domains is not None:
            self._domains.add(row, delta)
        return super().add(row, delta)

    @property
    def domains(self) -> DomainCounter:
        """Number of pods that carry the term, per value of its topology label."""
        if self._domains is None:
            self._domains = DomainCounter(self._index.domains(self.key.topology_key, None), self)
        return self._domains.sync()


REQUIRED_AFFINITY: Final = "required affinity"
REQUIRED_ANTI_AFFINITY: Final = "required anti-affinity"
PREFERRED_AFFINITY: Final = "preferred affinity"
PREFERRED_ANTI_AFFINITY: Final = "preferred anti-affinity"
TERM_KINDS: Final = (
    REQUIRED_AFFINITY,
    REQUIRED_ANTI_AFFINITY,
    PREFERRED_AFFINITY,
    PREFERRED_ANTI_AFFINITY,
)


def _term_keys(pod: PodInfo) -> tuple[tuple[TermKey, AffinityTerm], ...]:
    """The terms a pod carries, with their keys."""
    terms = pod.affinity_terms
    weighted = [
        *((REQUIRED_AFFINITY, 0, term) for term in terms.required_affinity),
        *((REQUIRED_ANTI_AFFINITY, 0, term) for term in terms.required_anti_affinity),
        *((PREFERRED_AFFINITY, w.weight, w.term) for w in terms.preferred_affinity),
        *((PREFERRED_ANTI_AFFINITY, w.weight, w.term) for w in terms.preferred_anti_affinity),
    ]
    return tuple(
        (
            TermKey(kind, weight, t.topology_key, t.namespaces, t.namespace_selector, t.selector),
            t,
        )
        for kind, weight, t in weighted
    )


class PodIndex:
    """All label classes, counters and terms of a table."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._classes: dict[Hashable, LabelClass] = {}
        self._classes_by_pair: dict[LabelPair, dict[LabelClass, None]] = {}
        self._counters: OrderedDict[Hashable, Counter] = OrderedDict()
        """Least recently used first."""
        self._counters_by_pair: dict[LabelPair | None, dict[Counter, None]] = {}
        """Counters by anchor label pair; None for those without an anchor."""
        self._dense: OrderedDict[PodsPerRow, None] = OrderedDict()
        self._domains: WeakValueDictionary[Hashable, Domains] = WeakValueDictionary()
        self._terms: dict[str, dict[TermKey, Term]] = {kind: {} for kind in TERM_KINDS}
        self.has_terms = False
        """True if any pod on a node has an affinity term."""
        self.terms_version = 0
        """Increases when a term appears or disappears, to invalidate lists of matching terms."""

    @property
    def capacity(self) -> int:
        return self._table.capacity

    # -- pods added and removed --------------------------------------------------------------------

    def add(self, pod: PodInfo, row: int) -> None:
        pod.label_class = self._label_class(pod)
        self._count(pod.label_class, row, 1)
        if pod.pod.spec.affinity is not None:
            self._count_terms(pod, row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        label_class = pod.label_class
        assert label_class is not None, f"pod {pod.key} is not in the index"
        self._count(label_class, row, -1)
        if not label_class.rows and not label_class.out:
            self._drop_class(label_class)
        pod.label_class = None
        if pod.pod.spec.affinity is not None:
            self._count_terms(pod, row, -1)

    def add_batch(self, batch: PodBatch, sign: int) -> None:
        """Pods return (1) or leave temporarily (-1); their classes are kept meanwhile."""
        for (label_class, row), number in batch.by_class.items():
            assert label_class is not None, "a pod of the batch is not on a node"
            self._count(label_class, row, sign * number)
            label_class.out -= sign * number
        for pod, row in batch.with_terms:
            self._count_terms(pod, row, sign)

    @staticmethod
    def _count(label_class: LabelClass, row: int, delta: int) -> None:
        left = label_class.rows.get(row, 0) + delta
        if left:
            label_class.rows[row] = left
        else:
            del label_class.rows[row]
        for counter in label_class.counters:
            counter.add(row, delta)

    def _label_class(self, pod: PodInfo) -> LabelClass:
        meta = pod.pod.metadata
        terminating = meta.deletion_timestamp is not None
        key = (pod.label_key or label_key_of(pod.pod), terminating)
        label_class = self._classes.get(key)
        if label_class is None:
            label_class = self._classes[key] = LabelClass(
                key, pod.namespace, meta.labels or EMPTY_LABELS, terminating
            )
            label_class.counters = [
                counter
                for counter in self._candidates(label_class.labels)
                if counter.predicate.matches(label_class.namespace, label_class.labels, terminating)
            ]
            for pair in label_class.labels.items():
                self._classes_by_pair.setdefault(pair, {})[label_class] = None
        return label_class

    def _candidates(self, labels: Mapping[str, str]) -> Iterable[Counter]:
        """The counters that may match pods with these labels."""
        by_pair = self._counters_by_pair
        for pair in (None, *labels.items()):
            yield from by_pair.get(pair, ())

    def _drop_class(self, label_class: LabelClass) -> None:
        del self._classes[label_class.key]
        for pair in label_class.labels.items():
            classes = self._classes_by_pair[pair]
            del classes[label_class]
            if not classes:
                del self._classes_by_pair[pair]

    def _count_terms(self, pod: PodInfo, row: int, delta: int) -> None:
        keys = pod.derived.term_keys
        if keys is None:
            keys = pod.derived.term_keys = _term_keys(pod)
        for key, term in keys:
            self._count_term(key, term, row, delta)

    def _count_term(self, key: TermKey, term: AffinityTerm, row: int, delta: int) -> None:
        known = self._terms[key.kind]
        carried = known.get(key)
        if carried is None:
            carried = known[key] = Term(self, key, term)
            self.terms_version += 1
            self.has_terms = True
        carried.add(row, delta)
        if not carried.total:
            del known[key]
            self._dense.pop(carried, None)
            self.terms_version += 1
            self.has_terms = any(self._terms.values())

    # -- lookup ------------------------------------------------------------------------------------

    def counter(self, predicate: PodPredicate) -> Counter:
        """The counter of a predicate; a new one is filled from the label classes."""
        key = predicate.key
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= COUNTER_LIMIT:
                self._drop(next(iter(self._counters.values())))
            counter = self._counters[key] = self._build_counter(predicate)
        else:
            self._counters.move_to_end(key)
        return counter

    def keep(self, counter: Counter) -> None:
        """Mark a counter as recently used."""
        self._counters.move_to_end(counter.predicate.key)

    def keep_dense(self, counter: PodsPerRow) -> None:
        """Mark a counter's column as recently used. The number of columns is limited."""
        dense = self._dense
        dense[counter] = None
        dense.move_to_end(counter)
        if len(dense) > DENSE_LIMIT:
            dense.popitem(last=False)[0].forget_dense()

    def domains(self, key: str, eligibility: Eligibility | None) -> Domains:
        """The domains of a topology label over the eligible rows."""
        at = (key, None if eligibility is None else eligibility.key)
        domains = self._domains.get(at)
        if domains is None:
            domains = self._domains[at] = Domains(self._table, key, eligibility)
        return domains

    def _classes_for(self, anchor: LabelPair | None) -> Iterable[LabelClass]:
        if anchor is None:
            return self._classes.values()
        return self._classes_by_pair.get(anchor, ())

    def _build_counter(self, predicate: PodPredicate) -> Counter:
        counter = Counter(self, predicate)
        self._counters_by_pair.setdefault(predicate.anchor, {})[counter] = None
        for label_class in self._classes_for(predicate.anchor):
            if predicate.matches(
                label_class.namespace, label_class.labels, label_class.terminating
            ):
                label_class.counters.append(counter)
                for row, count in label_class.rows.items():
                    counter.add(row, count)
        return counter

    def _drop(self, counter: Counter) -> None:
        predicate = counter.predicate
        del self._counters[predicate.key]
        self._dense.pop(counter, None)
        neighbours = self._counters_by_pair[predicate.anchor]
        del neighbours[counter]
        if not neighbours:
            del self._counters_by_pair[predicate.anchor]
        counter.is_dropped = True
        for label_class in self._classes_for(predicate.anchor):
            if counter in label_class.counters:
                label_class.counters.remove(counter)

    def terms(self, kind: str) -> Collection[Term]:
        return self._terms[kind].values()

    def grow(self, capacity: int) -> None:
        for domains in self._domains.values():
            domains.grow(capacity)
        for counter in self._dense:
            counter.forget_dense()
        self._dense.clear()

    def check_invariants(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Assert that every count equals a recount over the given (row, pod) pairs."""
        on_rows = list(pods)
        for counter in self._counters.values():
            expected: dict[int, int] = {}
            for row, pod in on_rows:
                meta = pod.pod.metadata
                if counter.predicate.matches(
                    pod.namespace, meta.labels or {}, meta.deletion_timestamp is not None
                ):
                    expected[row] = expected.get(row, 0) + 1
            counter.check_invariants(expected)
        assert self.has_terms == any(self._terms.values()), "has_terms drifted"
        for kind in TERM_KINDS:
            for term in self._terms[kind].values():
                assert term.total == sum(term.rows.values()) > 0, f"term {term.key!r} drifted"
                term.check_column(term.key)
                if term._domains is not None:
                    term._domains.check_invariants(term.rows, term.key)
        for label_class in self._classes.values():
            assert label_class.rows or label_class.out, f"class {label_class.key} has no pods"
        indexed = {c for classes in self._classes_by_pair.values() for c in classes}
        assert indexed == {c for c in self._classes.values() if c.labels}, "label pairs drifted"
