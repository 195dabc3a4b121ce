"""Free volumes for claims with equal requirements, and each node's first choice among them.

The pods of a workload claim volumes of one kind one after the other, and each takes one volume. So
the result for the whole cluster is cached and updated with the volumes. This requires that every
volume selects nodes by the same label, as local volumes do; otherwise the general search is used.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.selectors import Selector, from_label_selector
from kubesched.framework.nodes.columns import ABSENT
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.volumes.claims import class_of_claim, requested_storage
from kubesched.plugins.helper.volumes.first_match import NONE, OneOf, Ranks

if TYPE_CHECKING:
    from kubesched.plugins.volume_binding.storage import VolumeFacts

FILESYSTEM: Final = "Filesystem"
_SPARE_NUMBERS: Final = 1024
"""Unused volume numbers are compacted once they exceed the used ones by this many."""


class ClaimShape(NamedTuple):
    """The parts of a claim that matching reads, except volumes reserved for it by name."""

    class_name: str
    wanted_nanos: int
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: Selector | None

    def fits(self, facts: VolumeFacts) -> bool:
        """Is the volume large enough and of the right kind?"""
        return (
            facts.capacity_nanos >= self.wanted_nanos
            and facts.mode == self.mode
            and facts.attributes_class == self.attributes_class
            and not facts.is_deleting
        )

    def suits(self, facts: VolumeFacts) -> bool:
        """Can such a claim be bound to the volume if it is unreserved?"""
        return (
            self.fits(facts)
            and facts.is_available
            and self.access_modes <= facts.access_modes
            and (self.selector is None or self.selector.matches(facts.volume.metadata.labels))
        )


def shape_of(claim: PersistentVolumeClaim) -> ClaimShape:
    """Raises SelectorError for a malformed selector."""
    spec = claim.spec
    return ClaimShape(
        class_of_claim(claim),
        requested_storage(claim).nanos,
        FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes or ()),
        None if spec.selector is None else from_label_selector(spec.selector),
    )


class NotSimple(Exception):
    """Some volume does not select nodes by the common label alone."""


class FreeVolumes:
    """Volumes of one group that suit one shape; raises `NotSimple` if the group is unsuitable."""

    def __init__(self, shape: ClaimShape, members: Iterable[VolumeFacts], position: int) -> None:
        self.shape = shape
        self.revision = 0
        """Changes with the volumes."""
        self.position = position
        """Position in the change log up to which this is current."""
        self.key: str | None = None
        """The label that all volumes select on; None while there are no volumes."""
        self.volumes: list[PersistentVolume] = []
        """By number. Numbers of removed volumes are not reused."""
        self._numbers: dict[str, int] = {}
        self._by_value: dict[str, list[tuple[tuple[int, str], int]]] = {}
        self._stale: set[str] = set()
        """Label values whose first volume may have changed."""
        self._first: Ranks = np.zeros(0, dtype=np.int32)
        for facts in members:
            self._add(facts)

    def follow(self, changes: Iterable[tuple[VolumeFacts | None, VolumeFacts | None]]) -> None:
        """Apply changes of the group: volumes before and after, None if absent."""
        for old, new in changes:
            if old is not None:
                self._remove(old)
            if new is not None:
                self._add(new)

    @property
    def is_outgrown(self) -> bool:
        """True if so many numbers are unused that a rebuild pays off."""
        return len(self.volumes) > 2 * len(self._numbers) + _SPARE_NUMBERS

    def _add(self, facts: VolumeFacts) -> None:
        if not self.shape.suits(facts):
            return
        reach = facts.reach
        if type(reach) is not OneOf or reach.key != (self.key or reach.key):
            raise NotSimple
        self.key = reach.key
        self.revision += 1
        number = self._numbers[facts.volume.metadata.name] = len(self.volumes)
        self.volumes.append(facts.volume)
        for value in dict.fromkeys(reach.values):
            insort(self._by_value.setdefault(value, []), (facts.order, number))
            self._stale.add(value)

    def _remove(self, facts: VolumeFacts) -> None:
        if not self.shape.suits(facts) or type(facts.reach) is not OneOf:
            return
        self.revision += 1
        number = self._numbers.pop(facts.volume.metadata.name)
        for value in dict.fromkeys(facts.reach.values):
            ranked = self._by_value[value]
            del ranked[bisect_left(ranked, (facts.order, number))]
            if not ranked:
                del self._by_value[value]
            self._stale.add(value)

    def choice(self, nodes: NodeColumns) -> Ranks:
        """For each node the number of its first reachable volume, or NONE."""
        if self.key is None:
            return np.full(len(nodes), NONE, dtype=np.int32)
        column = nodes.label_column(self.key)
        if len(self._first) != len(column.values) + 1:
            self._first = np.full(len(column.values) + 1, NONE, dtype=np.int32)
            self._stale = set(self._by_value)
        for value in self._stale:
            at = column.id_of(value)
            if at != ABSENT:  # otherwise no node has ever had it
                ranked = self._by_value.get(value)
                self._first[at] = ranked[0][1] if ranked else NONE
        self._stale.clear()
        return self._first.take(column.ids[nodes.rows])
