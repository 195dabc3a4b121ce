"""Hard constraints: the verdict per domain, and its changes in what-ifs."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.status import Status, unresolvable, unschedulable
from kubesched.framework.traits import Trait, domain_trait
from kubesched.framework.verdicts import DeferredVerdicts, Verdicts
from kubesched.plugins.pod_topology_spread.constraints import Counted
from kubesched.snapshot.columns import ABSENT, Ints, Mask
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns, WhatIfColumns

MISMATCH = unschedulable("node(s) didn't match pod topology spread constraints")
MISSING_LABEL = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)

_MISSING, _SKEWED = 1, 2
_STATUSES = {_MISSING: MISSING_LABEL, _SKEWED: MISMATCH}


class HardConstraint(NamedTuple):
    """A constraint under evaluation. `changes` holds what a what-if adds or removes, by value id."""

    counted: Counted
    self_match: int
    changes: dict[int, int]


class FilterState:
    """The PreFilter state; a clone can be changed without affecting the original."""

    __slots__ = ("constraints",)

    def __init__(self, constraints: tuple[HardConstraint, ...]) -> None:
        self.constraints = constraints

    def clone(self) -> FilterState:
        return FilterState(tuple(c._replace(changes=dict(c.changes)) for c in self.constraints))

    def verdicts(self, nodes: NodeColumns) -> Verdicts | None:
        """The first failing constraint decides; None when every node passes."""
        if isinstance(nodes, WhatIfColumns) or any([c.changes for c in self.constraints]):
            # A what-if view may have changed by the time reasons are asked for.
            codes = self._codes(nodes)
            return Verdicts(codes, _status_of) if codes.any() else None
        rejected: Mask | None = None
        for constraint in self.constraints:
            own = _rejected(constraint, nodes)
            rejected = own if rejected is None else rejected | own
        if rejected is None or not rejected.any():
            return None
        return DeferredVerdicts(rejected, partial(self._codes, nodes), _status_of)

    def passes(self, row: int) -> bool:
        """The verdict on one row outside what-ifs: 68 against 151 µs for three zones (benchmarks/decisions.py)."""
        for (rule, _, domains), self_match, _ in self.constraints:
            pods = domains.count_in_domain_of(row)
            if pods < 0:
                return False  # the node lacks the label
            smallest = domains.smallest if domains.domain_count >= rule.min_domains else 0
            if pods > rule.max_skew - self_match + smallest:
                return False
        return True

    def _codes(self, nodes: NodeColumns) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        codes: np.ndarray[tuple[int], np.dtype[np.int8]] | None = None
        for constraint in self.constraints:
            own = _codes(constraint, nodes)
            codes = own if codes is None else np.where(codes == 0, own, codes)
        assert codes is not None, "a pod without hard constraints is skipped"
        return codes

    def change(self, pod: Pod, other: PodInfo, node: NodeColumns, delta: int) -> None:
        """Apply a what-if: a pod is added to a node or removed from it.

        # Upstream: here an empty selector does match, and terminating pods count.
        """
        if other.namespace != pod.metadata.namespace:
            return
        ids = [int(c.counted.domains.column.ids[node.row_at(0)]) for c in self.constraints]
        if any(value < 0 for value in ids):
            return
        labels = other.pod.metadata.labels
        for constraint, value in zip(self.constraints, ids, strict=True):
            counted = constraint.counted
            if counted.constraint.selector.matches(labels) and counted.domains.counts_row(
                node.row_at(0)
            ):
                constraint.changes[value] = constraint.changes.get(value, 0) + delta

    def traits(self) -> list[Trait] | None:
        """Nodes differ by the pods in their domains."""
        wanted = [domain_trait(c.counted.domains, c.counted.counter) for c in self.constraints]
        known = [trait for trait in wanted if trait is not None]
        return known if len(known) == len(wanted) else None

    def is_about(self, pod: Pod, other: PodInfo) -> bool:
        """Does that pod count for any constraint, wherever it is?"""
        labels = other.pod.metadata.labels
        return other.namespace == pod.metadata.namespace and any(
            [c.counted.constraint.selector.matches(labels) for c in self.constraints]
        )


def _rejected(constraint: HardConstraint, nodes: NodeColumns) -> Mask:
    """Where nodes lack the label or are in a domain with too many pods, outside what-ifs."""
    rule, domains = constraint.counted.constraint, constraint.counted.domains
    smallest = domains.smallest if domains.domain_count >= rule.min_domains else 0
    most = rule.max_skew + smallest - constraint.self_match
    ids = nodes.label_ids(rule.topology_key)
    if len(nodes) < len(domains.counts):
        few: Mask = domains.counts.take(ids) > most
        if nodes.may_lack(rule.topology_key):
            few |= ids == ABSENT
        return few
    by_value: Mask = domains.counts > most
    by_value[-1] = True
    rejected: Mask = by_value.take(ids)
    return rejected


def _codes(
    constraint: HardConstraint, nodes: NodeColumns
) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """0, missing label or skewed, per node: computed per domain, then looked up."""
    rule, domains = constraint.counted.constraint, constraint.counted.domains
    if not constraint.changes and len(nodes) < len(domains.counts):
        return _codes_of_few(constraint, nodes)
    counts: Ints = domains.counts
    if constraint.changes:
        counts = counts.copy()
        for value, delta in constraint.changes.items():
            counts[value] += delta
    existing: Mask = domains.nodes > 0
    smallest = 0
    if int(np.count_nonzero(existing)) >= rule.min_domains and existing.any():
        smallest = int(counts[existing].min())
    skewed = counts + (constraint.self_match - smallest) > rule.max_skew
    by_value = np.where(skewed, np.int8(_SKEWED), np.int8(0))
    by_value[-1] = _MISSING
    codes: np.ndarray[tuple[int], np.dtype[np.int8]] = by_value.take(
        nodes.label_ids(rule.topology_key)
    )
    return codes


def _codes_of_few(
    constraint: HardConstraint, nodes: NodeColumns
) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """The same for a few nodes, without computing all domains."""
    rule, domains = constraint.counted.constraint, constraint.counted.domains
    smallest = domains.smallest if domains.domain_count >= rule.min_domains else 0
    ids = nodes.label_ids(rule.topology_key)
    skewed = domains.counts.take(ids) > rule.max_skew + smallest - constraint.self_match
    codes: np.ndarray[tuple[int], np.dtype[np.int8]] = skewed.astype(np.int8)
    codes *= _SKEWED
    codes[ids == ABSENT] = _MISSING
    return codes


def _status_of(code: int) -> Status:
    return _STATUSES[code]
