"""Validated spread constraints: the pod's own, or the defaults for its workload."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kubesched.api.core_v1 import Node, Pod, Taint, Toleration, TopologySpreadConstraint
from kubesched.api.node_selectors import RequiredNodeAffinity, required_node_affinity
from kubesched.api.selectors import Operator, Requirement, Selector, from_label_selector
from kubesched.api.tolerations import first_untolerated_taint
from kubesched.base.sized_cache import SizedCache, by_spelling
from kubesched.framework.nodes.columns import ABSENT, Mask, Rows
from kubesched.framework.nodes.domain_counter import DomainCounter
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_index import Counter
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.default_selector import DefaultSelectors
from kubesched.plugins.helper.node_selector_columns import admitted_by_affinity
from kubesched.plugins.helper.value_tables import ValueTable
from kubesched.plugins.taint_toleration import taint_column

HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"
HONOR = "Honor"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SOFT),
)


FEW_KEYS: Final = 8
"""Up to this many labels are checked with one column each."""

_encode = msgspec.msgpack.Encoder().encode


class Constraint(NamedTuple):
    """One rule: how far the number of matching pods may differ between the domains of a label."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


_known: SizedCache[tuple[Constraint, ...]] = by_spelling()


def own_constraints(pod: Pod, action: str, *, match_label_keys: bool) -> tuple[Constraint, ...]:
    """The pod's constraints with that action.

    Raises:
        SelectorError: a selector cannot be built.
    """
    written = pod.spec.topology_spread_constraints
    if not written:
        return ()
    labels = pod.metadata.labels or {}
    used = {
        key: labels.get(key) for constraint in written for key in constraint.match_label_keys or ()
    }
    spelling = _encode((written, used))
    key = (action, match_label_keys, spelling)
    known = _known.get(key)
    if known is None:
        known = tuple(
            _parse(
                constraint,
                from_label_selector(constraint.label_selector),
                pod,
                match_label_keys=match_label_keys,
            )
            for constraint in written
            if constraint.when_unsatisfiable == action
        )
        _known.keep(key, len(spelling), known)
    return known


def defaulted_constraints(
    pod: Pod,
    defaults: Sequence[TopologySpreadConstraint],
    action: str,
    selectors: DefaultSelectors,
) -> tuple[Constraint, ...]:
    """The default constraints with that action for the pod's workload; none without a workload."""
    chosen = [constraint for constraint in defaults if constraint.when_unsatisfiable == action]
    if not chosen:
        return ()
    selector = selectors.of(pod)
    if selector.is_empty():
        return ()
    return tuple(_parse(constraint, selector, pod, match_label_keys=False) for constraint in chosen)


def _parse(
    constraint: TopologySpreadConstraint, selector: Selector, pod: Pod, *, match_label_keys: bool
) -> Constraint:
    if match_label_keys and constraint.match_label_keys:
        labels = pod.metadata.labels or {}
        equal = [
            Requirement(key, Operator.IN, [labels[key]])
            for key in constraint.match_label_keys
            if key in labels
        ]
        selector = selector.add(*equal)
    return Constraint(
        constraint.max_skew,
        constraint.topology_key,
        selector,
        1 if constraint.min_domains is None else constraint.min_domains,
        constraint.node_affinity_policy in (None, HONOR),
        constraint.node_taints_policy == HONOR,
    )


class SpreadPods:
    """Existing pods that count for a constraint: same namespace, not terminating, selected.

    # Upstream: an empty selector counts nothing here, although it matches the incoming pod itself.
    """

    def __init__(self, namespace: str, selector: Selector) -> None:
        self._namespace = namespace
        self._selector = selector
        self.anchor = selector.required_pair
        self.key: Hashable = ("spread", namespace, selector)

    def matches(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool:
        return (
            not terminating
            and namespace == self._namespace
            and not self._selector.is_empty()
            and self._selector.matches(labels)
        )


class SpreadNodes:
    """Nodes whose pods count for a constraint: with all labels, and accepted by the policies."""

    def __init__(
        self,
        pod: Pod,
        keys: frozenset[str],
        constraint: Constraint,
        *,
        comparison_operators: bool,
    ) -> None:
        self._keys = keys
        self._affinity: RequiredNodeAffinity | None = None
        spec = pod.spec
        if constraint.honors_affinity and (
            spec.node_selector is not None
            or (spec.affinity is not None and spec.affinity.node_affinity is not None)
        ):
            affinity = required_node_affinity(pod)
            self._affinity = None if affinity.is_unrestricted else affinity
        self._tolerations: tuple[Toleration, ...] | None = (
            tuple(pod.spec.tolerations or ()) if constraint.honors_taints else None
        )
        self._comparison_operators = comparison_operators
        self.key: Hashable = (keys, self._affinity, self._tolerations)

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        nodes = NodeColumns(table, rows)
        accepted = self._labelled(nodes)
        if self._affinity is not None:
            accepted &= admitted_by_affinity(nodes, self._affinity)
        if self._tolerations is not None:
            taints = taint_column(nodes.table)
            accepted &= ValueTable(taints, self._tolerates, absent=True).over(nodes)
        return accepted

    def _labelled(self, nodes: NodeColumns) -> Mask:
        """Nodes that have all the labels.

        Every constraint of a pod requires the labels of all its constraints. If there are many, one
        shared column avoids quadratic cost (benchmarks/hostile_pods.py).
        """
        if not nodes.table.has_label_keys(self._keys):
            return np.zeros(len(nodes), dtype=np.bool_)
        if len(self._keys) > FEW_KEYS:
            column = nodes.interned(("spread", self._keys), self._has_labels)
            shared: Mask = column.ids[nodes.rows] != ABSENT
            return shared
        labelled = np.ones(len(nodes), dtype=np.bool_)
        for key in self._keys:
            labelled &= nodes.label_ids(key) != ABSENT
        return labelled

    def _has_labels(self, node: Node) -> bool | None:
        return True if self._keys <= (node.metadata.labels or {}).keys() else None

    def _tolerates(self, taints: Sequence[Taint]) -> bool:
        untolerated = first_untolerated_taint(
            taints, self._tolerations, comparison_operators=self._comparison_operators
        )
        return untolerated is None


class Counted(NamedTuple):
    """A constraint with its current counters."""

    constraint: Constraint
    counter: Counter
    domains: DomainCounter


def count(
    table: NodeTable,
    pod: Pod,
    constraint: Constraint,
    keys: frozenset[str],
    *,
    comparison_operators: bool,
) -> Counted:
    """Look up or create the counters for a constraint of this pod."""
    counter = table.pod_index.counter(SpreadPods(pod.metadata.namespace, constraint.selector))
    nodes = SpreadNodes(pod, keys, constraint, comparison_operators=comparison_operators)
    return Counted(constraint, counter, counter.by_domain(constraint.topology_key, nodes))
