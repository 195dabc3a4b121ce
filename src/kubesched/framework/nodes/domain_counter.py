"""Pods per value of a topology label, over the eligible rows.

    Domains        the domain of each row; shared by all counters of one label and eligibility
    DomainCounter  the pods of one counter summed by domain

```
 Domains zone, all rows   domain_of [0 1 0 2 ..]   nodes [12 11 12]   version 17
                                   |
 DomainCounter app=web        counts [3 2 0]     for version 17
 DomainCounter app=db         counts [0 0 1]     for version 16: summed up again on the next read
```

A pod must be subtracted from the domain it was added to, but by then the label column may have a
new value. So rows move between domains only in `Domains.sync`, and a counter whose sums are for
another version adds nothing to them. A cluster with thousands of apps has thousands of counters
over one zone label, each with only a few numbers of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kubesched.framework.nodes.columns import ABSENT, Ids, Indices, InternedColumn, Ints, Mask, Rows

if TYPE_CHECKING:
    from kubesched.framework.nodes.node_table import NodeTable
    from kubesched.framework.nodes.pod_index import PodsPerRow
    from kubesched.framework.nodes.views import NodeColumns


class Eligibility(Protocol):
    """Selects the rows whose pods count. Equal keys mean equal masks over the node objects."""

    @property
    def key(self) -> Hashable: ...

    def mask(self, table: NodeTable, rows: Rows) -> Mask: ...


class Domains:
    """The domain of every row, and the number of eligible rows per domain.

    A domain exists while it has rows, even without pods. Arrays over domains are indexed by value
    id; their last slot stays 0, for rows without the label.
    """

    __slots__ = (
        "__weakref__",
        "_cursor",
        "_eligibility",
        "_generation",
        "_table",
        "cells",
        "column",
        "count",
        "domain_of",
        "nodes",
        "version",
    )

    def __init__(self, table: NodeTable, key: str, eligibility: Eligibility | None) -> None:
        self._table = table
        self.column: InternedColumn[str] = table.label_column(key)
        """The topology label's values per row."""
        self._eligibility = eligibility
        self.version = 0
        """Increases with every change."""
        self._build()

    def _build(self) -> None:
        table = self._table
        self._cursor, self._generation = table.node_log.end, self.column.generation
        domain_of: Ids = np.full(table.capacity, ABSENT, dtype=np.int32)
        domain_of[: table.high_water] = self.domains(slice(0, table.high_water))
        self._hold(domain_of)
        self.nodes: Ints = np.zeros(self._slots(), dtype=np.int64)
        in_domain = domain_of[domain_of >= 0]
        self.nodes[:-1] = np.bincount(in_domain, minlength=len(self.nodes) - 1)
        self.count = int(np.count_nonzero(self.nodes))
        """Number of existing domains."""
        self.version += 1

    @property
    def is_each_node(self) -> bool:
        """True if every node has a value of its own, as with host names."""
        column, nodes = self.column, self._table.node_count
        return self._eligibility is None and column.in_use == column.present == nodes

    def _hold(self, domain_of: Ids) -> None:
        self.domain_of = domain_of
        self.cells = memoryview(domain_of)  # type: ignore[arg-type]  # buffer protocol

    def _slots(self) -> int:
        return max(2 * len(self.column.values), 8) + 1

    def domains(self, rows: Rows) -> Indices:
        """The current domains of rows."""
        ids = self.column.ids[rows]
        live = self._table.alive[rows]
        if self._eligibility is not None:
            live = live & self._eligibility.mask(self._table, rows)
        return np.where(live, ids, ABSENT)

    def grow(self, capacity: int) -> None:
        bigger = np.full(capacity, ABSENT, dtype=np.int32)
        bigger[: len(self.domain_of)] = self.domain_of
        self._hold(bigger)

    def sync(self) -> None:
        """Apply the node changes since the last call."""
        table = self._table
        if self._cursor == table.node_log.end:
            return
        changed = table.node_log.since(self._cursor)
        if (
            changed is None
            or len(changed) > table.high_water // 4
            or self._generation != self.column.generation
        ):
            self._build()
            return
        self._cursor = table.node_log.end
        if len(self.column.values) >= len(self.nodes):
            wider = np.zeros(self._slots(), dtype=np.int64)
            wider[: len(self.nodes) - 1] = self.nodes[:-1]
            self.nodes = wider
        rows = list(dict.fromkeys(changed))
        for row, new in zip(rows, self.domains(np.array(rows)).tolist(), strict=True):
            old = self.cells[row]
            if old != new:
                self._move(row, old, new)

    def _move(self, row: int, old: int, new: int) -> None:
        for domain, sign in ((old, -1), (new, 1)):
            if domain >= 0:
                self.nodes[domain] += sign
                if self.nodes[domain] == (1 if sign > 0 else 0):  # its first node, or its last
                    self.count += sign
        self.cells[row] = new
        self.version += 1


class DomainCounter:
    """A counter's pods summed by value of one topology label; computed when read."""

    __slots__ = (
        "__weakref__",
        "_cells",
        "_counts",
        "_domains",
        "_smallest",
        "_source",
        "_total",
        "_version",
    )

    def __init__(self, domains: Domains, source: PodsPerRow) -> None:
        self._domains = domains
        self._source = source
        self._version = 0
        """Version of the domains that the sums are for; 0 if they have to be computed."""

    def _build(self) -> None:
        domains = self._domains
        self._version = domains.version
        counts: Ids = np.zeros(len(domains.nodes), dtype=np.int32)
        self._hold(counts)
        cells, domain_of = self._cells, domains.cells
        for row, count in self._source.held():
            domain = domain_of[row]
            if domain >= 0:
                cells[domain] += count
        self._total = int(counts.sum())

    def _hold(self, counts: Ids) -> None:
        self._counts = counts
        self._cells = memoryview(counts)  # type: ignore[arg-type]  # buffer protocol
        self._smallest: int | None = None

    def sync(self) -> DomainCounter:
        """Apply node changes since the last call. Call before reading."""
        domains = self._domains
        domains.sync()
        if self._version and (
            self._version != domains.version or len(self._counts) != len(domains.nodes)
        ):
            self._version = 0
        return self

    def add(self, row: int, delta: int) -> None:
        """Count pods. Must be called before the source's own count of the row changes."""
        domains = self._domains
        if self._version != domains.version:
            self._version = 0
            return
        domain = domains.cells[row]
        if domain >= 0:
            self._cells[domain] += delta
            self._total += delta
            self._smallest = None

    # -- reading -----------------------------------------------------------------------------------

    @property
    def counts(self) -> Ids:
        """Pods by value id."""
        if not self._version:
            self._build()
        return self._counts

    @property
    def is_by_row(self) -> bool:
        """True if a node's domain is that node, so that `of_nodes` has nothing to look up."""
        return self._domains.is_each_node

    def of_nodes(self, nodes: NodeColumns) -> Ids:
        """The pods in the domain of each node; 0 for nodes without the label."""
        if self.is_by_row:
            return nodes.part_of(self._source.per_row)
        return self.counts.take(nodes.part_of(self.column.ids))

    @property
    def total(self) -> int:
        """Number of pods in all domains."""
        if not self._version:
            self._build()
        return self._total

    @property
    def domain_count(self) -> int:
        """Number of existing domains."""
        return self._domains.count

    @property
    def nodes(self) -> Ints:
        """Eligible rows by value id."""
        return self._domains.nodes

    @property
    def column(self) -> InternedColumn[str]:
        """The topology label's values per row."""
        return self._domains.column

    def counts_row(self, row: int) -> bool:
        """False for ineligible rows and rows without the label."""
        return self._domains.cells[row] >= 0

    @property
    def smallest(self) -> int:
        """The lowest count over existing domains; 0 if there are none."""
        counts = self.counts
        if self._smallest is None:
            existing = counts[self._domains.nodes > 0]
            self._smallest = int(existing.min()) if len(existing) else 0
        return self._smallest

    def check_invariants(self, rows: dict[int, int], name: object) -> None:
        """Assert that every sum equals a recount of the given pods per row."""
        self.sync()
        domains = self._domains
        counts, nodes = self.counts.tolist(), domains.nodes.tolist()
        expected, existing = [0] * len(counts), [0] * len(nodes)
        current = domains.domains(slice(0, domains._table.high_water))
        for row, domain in enumerate(current.tolist()):
            if domain >= 0:
                existing[domain] += 1
                expected[domain] += rows.get(row, 0)
        assert counts == expected, f"domain counts of {name!r} drifted"
        assert nodes == existing, f"domains of {name!r} drifted"
        assert self.total == sum(expected), f"total of {name!r} drifted"
        there = [count for count, number in zip(expected, existing, strict=True) if number]
        assert domains.count == len(there), f"domains of {name!r} drifted"
        assert self.smallest == min(there, default=0), f"smallest of {name!r} drifted"
