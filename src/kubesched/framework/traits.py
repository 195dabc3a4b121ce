"""Traits: what nodes must have in common for a plugin to treat them alike.

A plugin that looks beyond one node (how many pods are in this zone?) usually tells few kinds of nodes apart: all nodes
of a zone fare the same. A trait gives every row a number; rows with equal numbers in all of a plugin's traits are alike
to it, and asking about one of them answers for all.

A trait follows one row: its number may change only when that row's node or pods change, or when `follow` is called
because nodes have changed. What changes for whole domains at once (a zone's number of pods) is no trait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from kubesched.snapshot.columns import ABSENT, InternedColumn, Ints, Rows
from kubesched.snapshot.pod_index import Counter, DomainCounter

VALUES_LIMIT: Final = 256
"""Nodes are sorted by a label's value if it has at most this many."""


class Trait(ABC):
    """A number per row."""

    __slots__ = ("counter", "key")

    is_static: ClassVar[bool] = False
    """True when only a change of the node itself changes its number, not one of its pods."""

    def __init__(self, key: Hashable, counter: Counter | None) -> None:
        self.key = key
        """Equal keys mean the same trait."""
        self.counter = counter
        """What the plugin reads with this trait and the pod index might drop; None for what stays as long as it matters."""

    @abstractmethod
    def over(self, rows: Rows) -> Ints: ...

    @abstractmethod
    def at(self, row: int) -> int: ...

    def follow(self) -> bool:
        """Nodes have changed: catch up. False when nodes can no longer be told apart in this way."""
        return True


class _Domain(Trait):
    """Which domain a node is in."""

    is_static = True
    __slots__ = ("_column", "_domains")

    def __init__(self, domains: DomainCounter, counter: Counter | None) -> None:
        super().__init__(("domain", id(domains)), counter)
        self._domains = domains
        self._column: InternedColumn[str] = domains.column

    def over(self, rows: Rows) -> Ints:
        return self._column.ids[rows].astype(np.int64)

    def at(self, row: int) -> int:
        return int(self._column.ids[row])

    def follow(self) -> bool:
        self._domains.sync()
        return _has_shared_values(self._column)


class _DomainPods(Trait):
    """How many pods are in a node's domain, where every domain is a single node; -1 for nodes outside all domains."""

    __slots__ = ("_column", "_domains")

    def __init__(self, domains: DomainCounter, counter: Counter | None) -> None:
        super().__init__(("pods in domain", id(domains)), counter)
        self._domains = domains
        self._column: InternedColumn[str] = domains.column

    def over(self, rows: Rows) -> Ints:
        ids = self._column.ids[rows]
        return np.where(ids == ABSENT, -1, self._domains.counts.take(ids))

    def at(self, row: int) -> int:
        return self._domains.count_in_domain_of(row)

    def follow(self) -> bool:
        self._domains.sync()
        return not self._column.shared


class OwnPods(Trait):
    """How many pods on the node itself count; -1 for nodes without the label."""

    __slots__ = ("_column", "_counter")

    def __init__(self, counter: Counter, column: InternedColumn[str]) -> None:
        super().__init__(("pods", id(counter)), counter)
        self._counter = counter
        self._column = column

    def over(self, rows: Rows) -> Ints:
        lacking = self._column.ids[rows] == ABSENT
        return np.where(lacking, -1, self._counter.per_row[rows].astype(np.int64))

    def at(self, row: int) -> int:
        return -1 if self._column.ids[row] == ABSENT else self._counter.cells[row]


def domain_trait(domains: DomainCounter, counter: Counter | None = None) -> Trait | None:
    """Nodes that a plugin treats alike when it reads nothing of a node but the pods in its domain.

    With a few domains of many nodes each, that is the domain: counts change without any node changing kind. With a domain
    for every node it is the count. With many small domains there is no telling cheaply.
    """
    column = domains.column
    if not column.shared:
        return _DomainPods(domains, counter)
    return _Domain(domains, counter) if _has_shared_values(column) else None


def _has_shared_values(column: InternedColumn[str]) -> bool:
    return column.shared > 0 and column.in_use <= VALUES_LIMIT
