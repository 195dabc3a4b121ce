"""Hard constraints: the verdict per domain, and what-if changes to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.nodes.columns import ABSENT
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import unresolvable, unschedulable
from kubesched.framework.verdicts import Codes, Verdicts
from kubesched.plugins.pod_topology_spread.constraints import Counted

MISMATCH = unschedulable("node(s) didn't match pod topology spread constraints")
MISSING_LABEL = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)

_MISSING, _SKEWED = 1, 2
_STATUSES = {_MISSING: MISSING_LABEL, _SKEWED: MISMATCH}


class HardConstraint(NamedTuple):
    """A constraint under evaluation; `changes` holds what-if changes by value id."""

    counted: Counted
    self_match: int
    changes: dict[int, int]


@dataclass(slots=True, eq=False)
class FilterState:
    """The PreFilter state; a clone can be changed without affecting the original."""

    constraints: tuple[HardConstraint, ...]

    def clone(self) -> FilterState:
        return FilterState(tuple(c._replace(changes=dict(c.changes)) for c in self.constraints))

    def verdicts(self, nodes: NodeColumns) -> Verdicts | None:
        """The first failing constraint decides; None if every node passes."""
        codes = _codes(self.constraints[0], nodes)
        for constraint in self.constraints[1:]:
            codes = np.where(codes == 0, _codes(constraint, nodes), codes)
        return Verdicts(codes, _STATUSES.__getitem__) if codes.any() else None

    def change(self, pod: Pod, other: PodInfo, node: NodeColumns, delta: int) -> None:
        """Apply a what-if change: a pod is added to or removed from a node.

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

    def is_about(self, pod: Pod, other: PodInfo) -> bool:
        """Does that pod count for any constraint, on any node?"""
        labels = other.pod.metadata.labels
        return other.namespace == pod.metadata.namespace and any(
            c.counted.constraint.selector.matches(labels) for c in self.constraints
        )


def _codes(constraint: HardConstraint, nodes: NodeColumns) -> Codes:
    """Per node: 0, missing label or skewed."""
    (rule, _, domains), self_match, _ = constraint
    counts, smallest = domains.counts, domains.smallest
    if constraint.changes:
        counts = counts.copy()
        for value, delta in constraint.changes.items():
            counts[value] += delta
        existing = counts[domains.nodes > 0]
        smallest = int(existing.min()) if len(existing) else 0
    if domains.domain_count < rule.min_domains:
        smallest = 0
    ids = nodes.label_ids(rule.topology_key)
    by_node = len(nodes) < len(counts)
    skewed = (counts.take(ids) if by_node else counts) > rule.max_skew + smallest - self_match
    codes: Codes = skewed * np.int8(_SKEWED)
    if by_node:
        codes[ids == ABSENT] = _MISSING
        return codes
    codes[ABSENT] = _MISSING  # the last slot, for nodes without the label
    return codes.take(ids)
