"""Incremental counts of pods by label selector and topology domain.

Pods on nodes fall into *label classes* (equal namespace, labels and terminating flag); selectors are matched once per
label class, never per pod. On top of the classes:

    Counter        pods per row that satisfy a predicate (a pending pod's spread constraint or affinity term)
    DomainCounter  the same pods per value of a topology label, over the eligible rows
    Term           an (anti-)affinity term of pods on nodes: how many pods carry it, per row

Adding or removing a pod updates the counters of its label class and the terms it carries, nothing else. That is where
spread constraints and inter-pod affinity get their speed: upstream recounts all pods for every pending pod.
A caller must not hold a counter beyond an attempt without checking `is_dropped`: the least recently used are dropped.

Invariant: every count equals a recount over the table's pods (`recount` in the tests, `check_invariants` here).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from kubesched.snapshot.columns import ABSENT, Ids, InternedColumn, Ints, Mask, Rows
from kubesched.snapshot.pods import PodInfo, label_key_of

if TYPE_CHECKING:
    from kubesched.api.affinity_terms import AffinityTerm
    from kubesched.snapshot.node_table import NodeTable

COUNTER_LIMIT: Final = 512
"""Maximum number of counters; the least recently used are dropped. One costs 4 bytes per row and some per domain."""
DOMAINS_LIMIT: Final = 16
"""Maximum number of domain counters a counter keeps. A single pod can name thousands of topology keys."""

EMPTY_LABELS: Final[Mapping[str, str]] = {}


class PodPredicate(Protocol):
    """Selects the pods to count. Equal keys mean equal predicates."""

    @property
    def key(self) -> Hashable: ...

    def matches(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool: ...


class Eligibility(Protocol):
    """Selects the rows whose pods count. Equal keys mean equal masks; a mask depends on node objects only."""

    @property
    def key(self) -> Hashable: ...

    def mask(self, table: NodeTable, rows: Rows) -> Mask: ...


class LabelClass:
    """Pods that no selector can tell apart, and the rows they are on."""

    __slots__ = ("counters", "key", "labels", "namespace", "rows", "terminating")

    def __init__(
        self, key: Hashable, namespace: str, labels: Mapping[str, str], terminating: bool
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating
        self.rows: dict[int, int] = {}
        self.counters: list[Counter] = []


class RowCounts(Protocol):
    """The per-row counts that a domain counter sums up."""

    def count_at(self, row: int) -> int: ...

    def held(self) -> Iterable[tuple[int, int]]:
        """(row, count) of every row with a count."""
        ...


class DomainCounter:
    """A counter's pods summed over the values of one topology label.

    `counts` is indexed by value id; its last slot stays 0, for rows without the label. `nodes` holds the number of
    eligible rows per domain: a domain exists while that is positive, even without pods.
    The row -> domain mapping is a copy as of the last sync. Pods must be subtracted from the domain they were added to,
    and by then the label column already has the new value.
    """

    def __init__(
        self, table: NodeTable, source: RowCounts, key: str, eligibility: Eligibility | None
    ) -> None:
        self._table = table
        self._source = source
        self._column: InternedColumn[str] = table.label_column(key)
        self._eligibility = eligibility
        self.version = 0
        """Increases whenever a count or the set of domains changes."""
        self.total = 0
        """Pods in all domains together."""
        self.domain_count = 0
        """Number of existing domains."""
        self._build()

    def _build(self) -> None:
        table = self._table
        self._cursor = table.node_log.end
        domain_of: Ids = np.full(table.capacity, ABSENT, dtype=np.int32)
        domain_of[: table.high_water] = self._domains(slice(0, table.high_water))
        self._follow_rows(domain_of)
        counts: Ints = np.zeros(self._slots(), dtype=np.int64)
        self.nodes: Ints = np.zeros(self._slots(), dtype=np.int64)
        np.add.at(self.nodes, domain_of[domain_of >= 0], 1)
        for row, count in self._source.held():
            domain = domain_of[row]
            if domain >= 0:
                counts[domain] += count
        self._hold(counts)
        self.total = int(counts.sum())
        self.domain_count = int(np.count_nonzero(self.nodes))
        self.version += 1

    def _hold(self, counts: Ints) -> None:
        self.counts = counts
        self._cells = memoryview(counts)  # type: ignore[arg-type]  # arrays offer the buffer protocol
        self._by_count: dict[int, int] | None = None
        """Pod count -> number of existing domains with it; None until `smallest` is first read."""
        self._smallest = 0

    def _follow_rows(self, domain_of: Ids) -> None:
        self._domain_of = domain_of
        self._domain_cells = memoryview(domain_of)  # type: ignore[arg-type]  # as above

    def _slots(self) -> int:
        return max(2 * len(self._column.values), 8) + 1

    def _widen(self) -> None:
        counts, nodes = (
            np.zeros(self._slots(), dtype=np.int64),
            np.zeros(self._slots(), dtype=np.int64),
        )
        counts[: len(self.counts) - 1] = self.counts[:-1]
        nodes[: len(self.nodes) - 1] = self.nodes[:-1]
        self.nodes = nodes
        self._hold(counts)

    def _domains(self, rows: Rows) -> Ids:
        ids = self._column.ids[rows]
        live = self._table.alive[rows]
        if self._eligibility is not None:
            live = live & self._eligibility.mask(self._table, rows)
        return np.where(live, ids, np.int32(ABSENT))

    def add(self, row: int, delta: int) -> None:
        domain = self._domain_cells[row]
        if domain >= 0:
            before = self._cells[domain]
            self._cells[domain] = before + delta
            self.total += delta
            self.version += 1
            if self._by_count is not None:
                self._recount(self._by_count, before, before + delta)

    def _recount(self, by_count: dict[int, int], before: int, after: int) -> None:
        """Update the smallest count after a domain's count changed."""
        by_count[after] = by_count.get(after, 0) + 1
        left = by_count[before] - 1
        if left:
            by_count[before] = left
        else:
            del by_count[before]
        if after < self._smallest or (not left and before == self._smallest):
            # The last domain at the minimum moved up by one pod: `after` is the new minimum without a search.
            self._smallest = after if after <= before + 1 else min(by_count)

    def grow(self, capacity: int) -> None:
        bigger = np.full(capacity, ABSENT, dtype=np.int32)
        bigger[: len(self._domain_of)] = self._domain_of
        self._follow_rows(bigger)

    def sync(self) -> DomainCounter:
        """Apply node changes since the last call. Call before reading."""
        table = self._table
        if self._cursor == table.node_log.end:
            return self
        changed = table.node_log.since(self._cursor)
        if changed is None or len(changed) > table.high_water // 4:
            self._build()
            return self
        self._cursor = table.node_log.end
        if len(self._column.values) >= len(self.counts):
            self._widen()
        for row in dict.fromkeys(changed):
            old, new = int(self._domain_of[row]), int(self._domains(np.array([row]))[0])
            if old != new:
                self._move(row, old, new)
        return self

    def _move(self, row: int, old: int, new: int) -> None:
        pods = self._source.count_at(row)
        for domain, sign in ((old, -1), (new, 1)):
            if domain >= 0:
                self.counts[domain] += sign * pods
                self.total += sign * pods
                self.nodes[domain] += sign
                if self.nodes[domain] == (1 if sign > 0 else 0):  # its first node, or its last
                    self.domain_count += sign
        self._by_count = None
        self._domain_of[row] = new
        self.version += 1

    def counts_row(self, row: int) -> bool:
        """Do pods on that row count? False for rows without the label and ineligible ones."""
        return bool(self._domain_of[row] >= 0)

    @property
    def column(self) -> InternedColumn[str]:
        """The topology label's values per row."""
        return self._column

    def at(self, rows: Rows) -> Ints:
        """Pods in each row's domain; 0 for rows without the label."""
        return self.counts[self._column.ids[rows]]

    def count_in_domain_of(self, row: int) -> int:
        """Pods in the row's domain; -1 if it lacks the label."""
        domain = int(self._column.ids[row])
        return ABSENT if domain < 0 else self._cells[domain]

    @property
    def smallest(self) -> int:
        """The lowest count over existing domains; 0 when there is none."""
        if self._by_count is None:
            existing = self.counts[self.nodes > 0]
            values, numbers = np.unique(existing, return_counts=True)
            self._by_count = dict(zip(values.tolist(), numbers.tolist(), strict=True))
            self._smallest = int(values[0]) if len(values) else 0
        return self._smallest


class Counter:
    """Pods per row that satisfy one predicate."""

    def __init__(self, table: NodeTable, predicate: PodPredicate) -> None:
        self._table = table
        self.predicate = predicate
        self._hold(np.zeros(table.capacity, dtype=np.int32))
        self.is_dropped = False
        """True once the index no longer updates this counter: request a new one."""
        self.total = 0
        self.version = 0
        self.last_used = 0
        self._domains: dict[Hashable, DomainCounter] = {}
        self._overflow: WeakValueDictionary[Hashable, DomainCounter] = WeakValueDictionary()
        """Those beyond the limit: kept current as long as something holds them."""

    def _hold(self, per_row: Ids) -> None:
        self.per_row = per_row
        self.cells = memoryview(per_row)  # type: ignore[arg-type]  # arrays offer the buffer protocol

    def add(self, row: int, delta: int) -> None:
        self.cells[row] += delta
        self.total += delta
        self.version += 1
        for domains in self._domains.values():
            domains.add(row, delta)
        if self._overflow:
            for domains in list(self._overflow.values()):
                domains.add(row, delta)

    def grow(self, capacity: int) -> None:
        bigger = np.zeros(capacity, dtype=np.int32)
        bigger[: len(self.per_row)] = self.per_row
        self._hold(bigger)
        for domains in (*self._domains.values(), *self._overflow.values()):
            domains.grow(capacity)

    def count_at(self, row: int) -> int:
        return self.cells[row]

    def held(self) -> Iterable[tuple[int, int]]:
        rows = np.flatnonzero(self.per_row)
        return zip(rows.tolist(), self.per_row[rows].tolist(), strict=True)

    def by_domain(self, key: str, eligibility: Eligibility | None = None) -> DomainCounter:
        """The counts per value of a topology label, up to date."""
        at = (key, None if eligibility is None else eligibility.key)
        domains = self._domains.get(at)
        if domains is None:
            domains = self._overflow.pop(at, None)
            if domains is None:
                domains = DomainCounter(self._table, self, key, eligibility)
            self._domains[at] = domains
            if len(self._domains) > DOMAINS_LIMIT:
                oldest = next(iter(self._domains))
                self._overflow[oldest] = self._domains.pop(oldest)
        return domains.sync()


class TermKey(NamedTuple):
    """Identity of a term: terms of different pods with equal keys are counted as one."""

    kind: str
    weight: int
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Hashable
    selector: Hashable


class Term:
    """An (anti-)affinity term carried by pods on nodes."""

    __slots__ = ("_domains", "_table", "key", "rows", "term", "total", "weight")

    def __init__(self, table: NodeTable, key: TermKey, term: AffinityTerm) -> None:
        self._table = table
        self.key = key
        self.term = term
        self.weight = key.weight
        self.rows: dict[int, int] = {}
        self.total = 0
        self._domains: DomainCounter | None = None

    def add(self, row: int, delta: int) -> None:
        count = self.rows.get(row, 0) + delta
        if count:
            self.rows[row] = count
        else:
            self.rows.pop(row, None)
        self.total += delta
        if self._domains is not None:
            self._domains.add(row, delta)

    def count_at(self, row: int) -> int:
        return self.rows.get(row, 0)

    def held(self) -> Iterable[tuple[int, int]]:
        return self.rows.items()

    def grow(self, capacity: int) -> None:
        if self._domains is not None:
            self._domains.grow(capacity)

    @property
    def domains(self) -> DomainCounter:
        """How many pods carry the term, per value of its topology label."""
        if self._domains is None:
            self._domains = DomainCounter(self._table, self, self.key.topology_key, None)
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
        self._counters: dict[Hashable, Counter] = {}
        self._terms: dict[str, dict[TermKey, Term]] = {kind: {} for kind in TERM_KINDS}
        self.terms_version = 0
        """Increases when a term appears or disappears: lists of matching terms made before are stale."""
        self._tick = 0

    # -- pods added and removed ------------------------------------------------------------------------------------

    def add(self, pod: PodInfo, row: int) -> None:
        label_class = self._label_class(pod)
        pod.label_class = label_class
        label_class.rows[row] = label_class.rows.get(row, 0) + 1
        for counter in label_class.counters:
            counter.add(row, 1)
        if pod.pod.spec.affinity is not None:
            self._count_terms(pod, row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        label_class = pod.label_class
        assert label_class is not None, f"pod {pod.key} is not in the index"
        left = label_class.rows[row] - 1
        if left:
            label_class.rows[row] = left
        else:
            del label_class.rows[row]
            if not label_class.rows:
                del self._classes[label_class.key]
        for counter in label_class.counters:
            counter.add(row, -1)
        pod.label_class = None
        if pod.pod.spec.affinity is not None:
            self._count_terms(pod, row, -1)

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
                for counter in self._counters.values()
                if counter.predicate.matches(label_class.namespace, label_class.labels, terminating)
            ]
        return label_class

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
            carried = known[key] = Term(self._table, key, term)
            self.terms_version += 1
        carried.add(row, delta)
        if not carried.total:
            del known[key]
            self.terms_version += 1

    # -- lookup ----------------------------------------------------------------------------------------------------

    def counter(self, predicate: PodPredicate) -> Counter:
        """The counter of a predicate; a new one is filled from the label classes."""
        self._tick += 1
        key = predicate.key
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= COUNTER_LIMIT:
                self._drop_least_recently_used()
            counter = self._counters[key] = self._build_counter(predicate)
        counter.last_used = self._tick
        return counter

    def keep(self, counter: Counter) -> None:
        """Mark a counter as used, so that it is not the next to be dropped."""
        self._tick += 1
        counter.last_used = self._tick

    def _build_counter(self, predicate: PodPredicate) -> Counter:
        counter = Counter(self._table, predicate)
        for label_class in self._classes.values():
            if predicate.matches(
                label_class.namespace, label_class.labels, label_class.terminating
            ):
                label_class.counters.append(counter)
                for row, count in label_class.rows.items():
                    counter.add(row, count)
        return counter

    def _drop_least_recently_used(self) -> None:
        key = min(self._counters, key=lambda k: self._counters[k].last_used)
        dropped = self._counters.pop(key)
        dropped.is_dropped = True
        for label_class in self._classes.values():
            if dropped in label_class.counters:
                label_class.counters.remove(dropped)

    def terms(self, kind: str) -> Collection[Term]:
        return self._terms[kind].values()

    def grow(self, capacity: int) -> None:
        for counter in self._counters.values():
            counter.grow(capacity)
        for terms in self._terms.values():
            for term in terms.values():
                term.grow(capacity)

    def check_invariants(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Assert that every count equals a recount over the given (row, pod) pairs."""
        on_rows = list(pods)
        for key, counter in self._counters.items():
            expected: dict[int, int] = {}
            for row, pod in on_rows:
                meta = pod.pod.metadata
                if counter.predicate.matches(
                    pod.namespace, meta.labels or {}, meta.deletion_timestamp is not None
                ):
                    expected[row] = expected.get(row, 0) + 1
            assert dict(counter.held()) == expected, f"counter {key!r} drifted"
            assert counter.total == sum(expected.values()), f"total of counter {key!r} drifted"
            for at, domains in (*counter._domains.items(), *counter._overflow.items()):
                _check_domains(domains, expected, at)
        for kind in TERM_KINDS:
            for term in self._terms[kind].values():
                assert term.total == sum(term.rows.values()) > 0, f"term {term.key!r} drifted"
                if term._domains is not None:
                    _check_domains(term._domains, term.rows, term.key)


def _check_domains(domains: DomainCounter, rows: Mapping[int, int], name: object) -> None:
    domains.sync()
    table = domains._table
    expected = np.zeros_like(domains.counts)
    existing = np.zeros_like(domains.nodes)
    current = domains._domains(slice(0, table.high_water))
    for row, domain in enumerate(current.tolist()):
        if domain >= 0:
            existing[domain] += 1
            expected[domain] += rows.get(row, 0)
    assert (domains.counts == expected).all(), f"domain counts of {name!r} drifted"
    assert (domains.nodes == existing).all(), f"domains of {name!r} drifted"
    assert domains.total == expected.sum(), f"total of {name!r} drifted"
    assert domains.domain_count == np.count_nonzero(existing), f"domains of {name!r} drifted"
    smallest = int(expected[existing > 0].min()) if existing.any() else 0
    assert domains.smallest == smallest, f"smallest of {name!r} drifted"
