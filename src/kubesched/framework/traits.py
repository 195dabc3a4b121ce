"""Traits: the properties by which a plugin tells nodes apart.

A plugin that looks beyond one node (how many pods are in this zone?) usually distinguishes few kinds of nodes: all nodes
of a zone get the same answer. A trait assigns an integer to every row; rows with equal values in all traits of a plugin
get the same answer, so one of them is evaluated for all.

A trait belongs to a row: its value may change only when that row's node or pods change, or in `follow`, which is called
after node changes. A value that changes for a whole domain at once (the pods in a zone) is not a trait.

Many traits are the same for all pods but for a few rows: the pods of one app are on few nodes. Such a trait names a static
`base` and the rows that deviate from it; classes of pods with equal specs then share one index of the nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar, Final

import numpy as np

from kubesched.snapshot.columns import ABSENT, InternedColumn, Ints, Rows
from kubesched.snapshot.domain_counter import DomainCounter
from kubesched.snapshot.pod_index import Counter

VALUES_LIMIT: Final = 256
"""A label with more values is not used to group nodes."""


class Trait(ABC):
    """A number per row."""

    is_static: ClassVar[bool] = False
    """True when only a change of the node itself changes its number, not one of its pods."""

    def __init__(self, key: Hashable, counter: Counter | None) -> None:
        self.key = key
        """Equal keys mean the same trait."""
        self.counter = counter
        """The counter behind this trait, which the pod index may drop; None if there is none."""

    @abstractmethod
    def over(self, rows: Rows) -> Ints: ...

    @abstractmethod
    def at(self, row: int) -> int: ...

    def follow(self) -> bool:
        """Catch up after node changes. False if this trait no longer distinguishes nodes correctly."""
        return True

    def base(self) -> Trait | None:
        """A static trait that distinguishes the rows outside `deviating_rows` as this one does; None if there is none."""
        return None

    def deviating_rows(self) -> Iterable[int]:
        """Rows whose number differs from that of other rows with the same base; more may be named."""
        return ()


class _Label(Trait):
    """The value of a label."""

    is_static = True

    def __init__(self, column: InternedColumn[str]) -> None:
        super().__init__(("label", column), None)
        self._column = column

    def over(self, rows: Rows) -> Ints:
        return self._column.ids[rows].astype(np.int64)

    def at(self, row: int) -> int:
        return int(self._column.ids[row])

    def follow(self) -> bool:
        return _has_shared_values(self._column)


class _HasLabel(Trait):
    """0 for nodes with a label, -1 for those without."""

    is_static = True

    def __init__(self, column: InternedColumn[str]) -> None:
        super().__init__(("has label", column), None)
        self._column = column

    def over(self, rows: Rows) -> Ints:
        return np.where(self._column.ids[rows] == ABSENT, -1, 0)

    def at(self, row: int) -> int:
        return -1 if self._column.ids[row] == ABSENT else 0


class _OfDomains(Trait):
    def __init__(self, what: str, domains: DomainCounter, counter: Counter | None) -> None:
        super().__init__((what, id(domains)), counter)
        self._domains = domains
        self._column: InternedColumn[str] = domains.column


class _Domain(_OfDomains):
    """Which domain a node is in."""

    is_static = True

    def over(self, rows: Rows) -> Ints:
        return self._column.ids[rows].astype(np.int64)

    def at(self, row: int) -> int:
        return int(self._column.ids[row])

    def follow(self) -> bool:
        self._domains.sync()
        return _has_shared_values(self._column)

    def base(self) -> Trait:
        return _Label(self._column)


class _DomainPods(_OfDomains):
    """Number of pods in a node's domain, where every domain is a single node; -1 for nodes without the label."""

    def over(self, rows: Rows) -> Ints:
        ids = self._column.ids[rows]
        return np.where(ids == ABSENT, -1, self._domains.counts.take(ids))

    def at(self, row: int) -> int:
        return self._domains.count_in_domain_of(row)

    def follow(self) -> bool:
        self._domains.sync()
        return not self._column.shared

    def base(self) -> Trait:
        return _HasLabel(self._column)

    def deviating_rows(self) -> Iterable[int]:
        return [row for row, _ in self._domains.held()]


class OwnPods(Trait):
    """Number of counted pods on the node itself; -1 for nodes without the label."""

    def __init__(self, counter: Counter, column: InternedColumn[str]) -> None:
        super().__init__(("pods", id(counter)), counter)
        self._counter = counter
        self._column = column

    def over(self, rows: Rows) -> Ints:
        lacking = self._column.ids[rows] == ABSENT
        return np.where(lacking, -1, self._counter.per_row[rows].astype(np.int64))

    def at(self, row: int) -> int:
        return -1 if self._column.ids[row] == ABSENT else self._counter.count_at(row)

    def base(self) -> Trait:
        return _HasLabel(self._column)

    def deviating_rows(self) -> Iterable[int]:
        return self._counter.rows


def domain_trait(domains: DomainCounter, counter: Counter | None = None) -> Trait | None:
    """The trait for a plugin that reads nothing of a node but the number of pods in its domain.

    With a few domains of many nodes each, it is the domain: counts then change without moving nodes between groups. With
    a domain per node it is the count. With many small domains neither is cheap, and there is no trait.
    """
    column = domains.column
    if not column.shared:
        return _DomainPods("pods in domain", domains, counter)
    return _Domain("domain", domains, counter) if _has_shared_values(column) else None


def all_or_none(traits: Sequence[Trait | None]) -> list[Trait] | None:
    """The traits, or None if one is missing: nodes then cannot be grouped."""
    known = [trait for trait in traits if trait is not None]
    return known if len(known) == len(traits) else None


def _has_shared_values(column: InternedColumn[str]) -> bool:
    return column.shared > 0 and column.in_use <= VALUES_LIMIT
