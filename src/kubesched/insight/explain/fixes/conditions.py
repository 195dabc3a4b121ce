"""The conditions to meet on one node: each rejection with the changes that undo it.

Deletions undo several at once: the smallest sets of pods on the node that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

import numpy as np

from kubesched.api.core_v1 import (
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
)
from kubesched.api.node_selectors import ParsedTerm
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.insight.explain.amounts import free_of
from kubesched.insight.explain.details import taint_text, untolerated
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.fixes import pod_edits
from kubesched.insight.explain.fixes.changes import (
    CORDON_TAINT,
    AnyChange,
    NodeEdit,
    PodEdit,
)
from kubesched.insight.explain.reasons import (
    EXISTING_ANTI_AFFINITY,
    HOST_PORT_TAKEN,
    INSUFFICIENT,
    INSUFFICIENT_RESOURCE,
    NODE_AFFINITY_MISMATCH,
    NODE_UNSCHEDULABLE,
    POD_AFFINITY,
    POD_ANTI_AFFINITY,
    SPREAD_LABEL_MISSING,
    SPREAD_VIOLATED,
    TOO_MANY_PODS,
    UNTOLERATED_TAINT,
    code_of_reason,
)
from kubesched.plugins.registry import IN_TREE

_MANAGED = "node.kubernetes.io/"
"""Taints managed by the node controller, which sets them again if they are removed by hand."""

_RESERVED = ("kubernetes.io", "k8s.io")
"""Label domains, with their subdomains: zones, host names, roles, kinds of machines."""
_LARGEST_SKEW = 10_000

_DELETABLE = frozenset(
    reason.code
    for reason in (
        INSUFFICIENT_RESOURCE,
        TOO_MANY_PODS,
        HOST_PORT_TAKEN,
        POD_ANTI_AFFINITY,
        EXISTING_ANTI_AFFINITY,
        SPREAD_VIOLATED,
    )
)

Probe = Callable[[str, Sequence[PodEdit]], bool]
"""(plugin, edits) -> whether the edited pod passes that plugin's filter on the node."""


OtherChanges = Callable[[int, str], Mapping[str, Sequence[AnyChange]]]
"""(row, plugin) -> changes by the claim that they are about."""


@dataclass(slots=True)
class Condition:
    """One obstacle for the pod on one node."""

    plugin: str
    code: str
    reason: str
    alternatives: list[AnyChange] = field(default_factory=list)
    """Changes that each undo the condition alone."""

    @property
    def is_deletable(self) -> bool:
        """Whether deleting pods from the node may undo it."""
        return self.code in _DELETABLE


def conditions_at(
    evaluation: Evaluation, row: int, probe: Probe, others: OtherChanges
) -> list[Condition]:
    """All conditions of a node; one that is not deletable and has no alternatives rules it out."""
    node = evaluation.table.nodes[row]
    assert node is not None, "the row of a node"
    finder = _Finder(evaluation, row, node, probe)
    conditions: list[Condition] = []
    for rejections, status in evaluation.statuses_at(row):
        for reason in status.all_reasons:
            code = code_of_reason(reason, status)
            make = finder.by_code.get(code.code)
            if rejections.plugin not in IN_TREE:
                make = None  # what it requires is not known
            changes = others(row, rejections.plugin)
            found = [
                Condition("", "", f"{reason}: {name}", list(each)) for name, each in changes.items()
            ] or ([Condition("", "", reason)] if make is None else list(make(reason)))
            for condition in found:
                condition.plugin, condition.code = rejections.plugin, code.code
            conditions += found
    if finder.is_cordoned:  # uncordoning also removes the taint
        conditions = [condition for condition in conditions if condition.reason != CORDON_TAINT]
    return conditions


class _Finder:
    """Finds the alternatives on one node."""

    def __init__(self, evaluation: Evaluation, row: int, node: Node, probe: Probe) -> None:
        self._evaluation = evaluation
        self._info: PodInfo = evaluation.pod
        self._pod: Pod = evaluation.pod.pod
        self._row = row
        self._node = node
        self._probe = probe
        self.is_cordoned = bool(node.spec.unschedulable)
        self.by_code: dict[str, Callable[[str], Iterator[Condition]]] = {
            UNTOLERATED_TAINT.code: self._taints,
            NODE_UNSCHEDULABLE.code: self._cordon,
            INSUFFICIENT_RESOURCE.code: self._resource,
            NODE_AFFINITY_MISMATCH.code: self._selector,
            HOST_PORT_TAKEN.code: self._ports,
            POD_AFFINITY.code: self._terms("podAffinity"),
            POD_ANTI_AFFINITY.code: self._terms("podAntiAffinity"),
            SPREAD_VIOLATED.code: self._spread,
            SPREAD_LABEL_MISSING.code: self._missing_label,
        }

    @property
    def _name(self) -> str:
        return self._node.metadata.name

    def _taints(self, reason: str) -> Iterator[Condition]:
        del reason
        for taint in untolerated(self._pod, self._node.spec.taints):
            alternatives: list[AnyChange] = []
            if not taint.key.startswith(_MANAGED):
                text = f"remove taint {taint_text(taint)} from {self._name}"
                removal = NodeEdit("RemoveTaint", text, 3.0, self._name, remove_taint=taint)
                alternatives = [pod_edits.add_toleration(self._pod, taint), removal]
            yield Condition("", "", taint.key, alternatives)

    def _cordon(self, reason: str) -> Iterator[Condition]:
        uncordon = NodeEdit("Uncordon", f"uncordon {self._name}", 1.0, self._name, uncordon=True)
        taint = Taint(key=CORDON_TAINT, effect="NoSchedule")
        yield Condition("", "", reason, [uncordon, pod_edits.add_toleration(self._pod, taint)])

    def _resource(self, reason: str) -> Iterator[Condition]:
        resource = reason.removeprefix(INSUFFICIENT)
        free, _ = free_of(self._evaluation.table, resource, self._row)
        lower = pod_edits.lower_request(self._pod, resource, free)
        yield Condition("", "", reason, [lower] if lower is not None else [])

    def _selector(self, reason: str) -> Iterator[Condition]:
        labels = self._node.metadata.labels or {}
        for key, wanted in (self._pod.spec.node_selector or {}).items():
            if labels.get(key) != wanted:
                labels_ = self._labels(key, wanted)
                yield Condition("", "", key, [pod_edits.drop_selector(key, wanted), *labels_])
        terms = _required_terms(self._pod)
        matchers = [ParsedTerm(term) for term in terms]
        if not terms or any(matcher.matches(labels, self._name) for matcher in matchers):
            return
        if any(term.match_fields for term in terms):
            yield Condition("", "", reason)  # its DaemonSet pins it to a node
            return
        if len(terms) > 1:
            yield Condition("", "", reason, [pod_edits.drop_node_affinity()])
            return
        failing = [
            (at, expression)
            for at, expression in enumerate(terms[0].match_expressions or ())
            if not ParsedTerm(NodeSelectorTerm(match_expressions=[expression])).matches(
                labels, self._name
            )
        ]
        count = len(terms[0].match_expressions or ())
        for at, requirement in failing:
            alternatives: list[AnyChange] = []
            if len(failing) == count:  # a term without expressions matches nothing
                alternatives.append(pod_edits.drop_node_affinity())
            if count > 1:
                alternatives.append(pod_edits.drop_expression(at, requirement))
            if requirement.operator == "In" and requirement.values:
                alternatives += self._labels(requirement.key, requirement.values[0])
            elif requirement.operator == "Exists":
                alternatives += self._labels(requirement.key, "")
            yield Condition("", "", requirement.key, alternatives)

    def _labels(self, key: str, value: str) -> list[NodeEdit]:
        """A label for the node, unless it would contradict one or is for the cluster to set."""
        domain = key.partition("/")[0] if "/" in key else ""
        if key in (self._node.metadata.labels or {}) or _is_reserved(domain):
            return []
        text = f"label {self._name} {key}={value}"
        return [NodeEdit("LabelNode", text, 3.2, self._name, label=(key, value))]

    def _ports(self, reason: str) -> Iterator[Condition]:
        used = self._evaluation.table.ports_at(self._row)
        taken = [
            port for port in self._info.host_ports if any(port.conflicts_with(u) for u in used)
        ]
        alternatives: list[AnyChange] = (
            [pod_edits.drop_host_ports(self._pod, taken)]
            if taken and not self._pod.spec.host_network  # there every port is a host port
            else []
        )
        yield Condition("", "", reason, alternatives)

    def _terms(self, kind: str) -> Callable[[str], Iterator[Condition]]:
        def find(reason: str) -> Iterator[Condition]:
            """Find the unsatisfied terms by testing each alone; the plugin does not name them."""
            drops = [
                pod_edits.drop_pod_term(kind, at, term.topology_key)
                for at, term in enumerate(_pod_terms(self._pod, kind))
            ]
            violated = [
                drop
                for drop in drops
                if len(drops) == 1
                or not self._probe(
                    "InterPodAffinity", [other for other in drops if other is not drop]
                )
            ]
            for drop in violated:
                yield Condition("", "", f"{reason}: {drop.text}", [drop])
            if not violated:
                yield Condition("", "", reason)

        return find

    def _spread(self, reason: str) -> Iterator[Condition]:
        """Find the violated constraints by testing each alone, as in `_terms`."""
        hard = {
            at: constraint
            for at, constraint in enumerate(self._pod.spec.topology_spread_constraints or ())
            if constraint.when_unsatisfiable == "DoNotSchedule"
        }
        violated = False
        for at, constraint in hard.items():
            key = constraint.topology_key
            others = [pod_edits.soften_spread(self._pod, i) for i in hard if i != at]
            if self._probe("PodTopologySpread", others):
                continue
            violated = True
            alternatives: list[AnyChange] = [pod_edits.soften_spread(self._pod, at)]
            skew = self._minimal_skew(at, constraint, others)
            if skew is not None:
                alternatives.insert(0, pod_edits.raise_skew(at, key, skew))
            yield Condition("", "", f"{reason}: {at}", alternatives)
        if not violated:
            yield Condition("", "", reason)

    def _minimal_skew(
        self, at: int, constraint: TopologySpreadConstraint, others: Sequence[PodEdit]
    ) -> int | None:
        """The smallest maxSkew with which the node passes; None if there is none."""

        def passes(skew: int) -> bool:
            raised = pod_edits.raise_skew(at, constraint.topology_key, skew)
            return self._probe("PodTopologySpread", [*others, raised])

        low = constraint.max_skew
        high = low + 1
        while not passes(high):
            if high > _LARGEST_SKEW:
                return None
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if passes(middle) else (middle, high)
        return high

    def _missing_label(self, reason: str) -> Iterator[Condition]:
        labels = self._node.metadata.labels or {}
        for at, constraint in enumerate(self._pod.spec.topology_spread_constraints or ()):
            key = constraint.topology_key
            if constraint.when_unsatisfiable == "DoNotSchedule" and key not in labels:
                yield Condition("", "", f"{reason}: {at}", [pod_edits.soften_spread(self._pod, at)])


def _is_reserved(domain: str) -> bool:
    """Whether kubelets, cloud providers and installers set labels with this prefix."""
    return domain in _RESERVED or domain.endswith(tuple(f".{name}" for name in _RESERVED))


def _pod_terms(pod: Pod, kind: str) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    holder = affinity.pod_affinity if kind == "podAffinity" else affinity.pod_anti_affinity
    return (holder.required_during_scheduling_ignored_during_execution if holder else None) or ()


def _required_terms(pod: Pod) -> list[NodeSelectorTerm]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return list((required.node_selector_terms if required else None) or ())


LARGEST_SET = 3
MOST_CHECKS = 64
"""Sets with sufficient sums that are checked with the filters, per node and size."""

Check = Callable[[Sequence[PodInfo]], bool]


def may_be_deleted(pod: PodInfo) -> bool:
    """Whether the pod stays deleted: DaemonSet pods and static pods are recreated at once."""
    owner = pod.pod.metadata.controller()
    return pod.pod.metadata.deletion_timestamp is None and (
        owner is None or owner.kind not in ("DaemonSet", "Node")
    )


def smallest_deletions(
    table: NodeTable,
    row: int,
    pod: PodInfo,
    conditions: Sequence[Condition],
    check: Check,
    order: Callable[[PodInfo], tuple[float, str]],
) -> list[PodInfo] | None:
    """The smallest, least important set of pods whose deletion undoes all conditions on the node.

    `check` runs the filters; `order` is the cost of a pod. None if no set of at most `LARGEST_SET`
    pods suffices.
    """
    present = sorted(filter(may_be_deleted, table.pods[row].values()), key=order)
    resources = [
        condition.reason.removeprefix(INSUFFICIENT)
        for condition in conditions
        if condition.code == INSUFFICIENT_RESOURCE.code
    ]
    missing = [pod.requests.get(name) - free_of(table, name, row)[0] for name in resources]
    offers = [[other.requests.get(name) for name in resources] for other in present]
    if any(condition.code == TOO_MANY_PODS.code for condition in conditions):
        room = int(table.allowed_pods.array[row] - table.pod_count.array[row])
        missing.append(1 - room)
        offers = [[*offer, 1] for offer in offers]
    for size in range(1, min(LARGEST_SET, len(present)) + 1):
        sums = np.array(offers, dtype=np.int64).reshape(len(present), -1)
        for chosen in islice(_enough(sums, missing, size), MOST_CHECKS):
            candidates = [present[at] for at in chosen]
            if check(candidates):
                return candidates
    return None


def _enough(
    offers: np.ndarray[tuple[int, int], np.dtype[np.int64]], missing: Sequence[int], size: int
) -> Iterator[tuple[int, ...]]:
    """Sets of that many rows whose sums cover the shortage, in order."""
    count = len(offers)
    if not missing:
        yield from combinations(range(count), size)
        return
    needed = np.array(missing)
    largest = np.sort(offers, axis=0)[-size:].sum(axis=0)
    if (largest < needed).any():
        return  # even the largest amounts do not suffice
    for first in combinations(range(count), size - 1):
        start = first[-1] + 1 if first else 0
        left = needed - offers[list(first)].sum(axis=0)
        enough = np.flatnonzero((offers[start:] >= left).all(axis=1))
        yield from ((*first, start + int(last)) for last in enough)
