"""The search for fixes: the smallest sets of changes after which some node takes the pod.

The search works out the conditions node by node. On each node, every condition is met by one of its
alternatives, or several conditions together by deleting pods. Sets are sorted by size, then by how
intrusive they are, and tried in that order with the real filters. Sets that fail are dropped, and
so is every change that a set does not need. docs/reference/explain.md describes scope and limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.api.names import key_of
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.runtime import Framework
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    NodeAddition,
    NodeEdit,
    PluginExclusion,
    PodDeletion,
    PodEdit,
    addition,
    deletion,
)
from kubesched.insight.explain.fixes.commands import commands_for, is_to_be_made, template_owner
from kubesched.insight.explain.fixes.conditions import Condition, conditions_at
from kubesched.insight.explain.fixes.deletions import may_be_deleted, smallest_deletions
from kubesched.insight.explain.fixes.notes import notes_on
from kubesched.insight.explain.fixes.trials import Trials
from kubesched.insight.explain.model import Change, Fix
from kubesched.insight.explain.selection import first_of_each_set, nearest

MOST_NODES = 24
"""Number of nodes to work out: the nearest to fitting, and one per distinct set of reasons."""
MOST_CONDITIONS = 6
"""Nodes with more conditions are skipped."""
MOST_TRIALS = 60
MOST_FIXES = 6
ADDITION_SIZE = 4
MOST_SHAPES = 12
"""Node shapes that are tried as additions."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that should make a node take the pod; not yet tried."""

    changes: tuple[AnyChange, ...]
    node_name: str

    @property
    def order(self) -> tuple[int, float, str]:
        return self.size, sum(change.cost for change in self.changes), self.node_name

    @property
    def size(self) -> int:
        return size_of(self.changes)

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        return frozenset(change.key for change in self.changes)

    @property
    def pattern(self) -> frozenset[str]:
        """Kinds of changes. Of fixes with the same or a larger pattern, only the best is kept."""
        return frozenset(
            f"{change.kind} {change.text.split()[1]}"
            if change.kind == "LowerRequest"
            else change.kind
            for change in self.changes
        )


class FixSearch:
    """Searches for fixes for one pod that fits nowhere."""

    def __init__(
        self, framework: Framework, evaluation: Evaluation, before: Sequence[AnyChange] = ()
    ) -> None:
        """`before` are changes needed to enter the queue; they become part of every fix."""
        self._before = tuple(before)
        self._framework = framework
        self._evaluation = evaluation
        self._table = evaluation.table
        self._pod = evaluation.pod
        self._trials = Trials(framework, evaluation.pod)
        listers = framework.handle.listers
        self._budgets = Budgets(listers.of(PodDisruptionBudget).list() if listers else ())

    def fixes(self) -> list[Fix]:
        """The verified fixes, the smallest first."""
        verified = sorted(self.verified(), key=lambda pair: pair[0].order)
        return [self._fix(proposal, others) for proposal, others in verified]

    def verified(self) -> Iterator[tuple[Proposal, int]]:
        """Verified fixes with distinct patterns, and how many further nodes each makes feasible.

        The changes needed to enter the queue are not included.
        """
        feasible = self._evaluation.feasible
        if len(feasible):
            totals = self._evaluation.totals
            best = int(feasible[0] if totals is None else feasible[int(np.argmax(totals))])
            yield Proposal((), self._table.names[best]), len(feasible) - 1
            return
        patterns: list[frozenset[str]] = []
        trials = 0
        for proposal in sorted(self.proposals(), key=lambda proposal: proposal.order):
            if len(patterns) >= MOST_FIXES or trials >= MOST_TRIALS:
                return
            if any(pattern <= proposal.pattern for pattern in patterns):
                continue
            trials += 1
            rows = self._trials.nodes_that_fit(proposal.changes)
            if rows is None or proposal.node_name not in rows:
                continue
            reduced, rows = self._reduced(proposal, rows)
            if any(pattern <= reduced.pattern for pattern in patterns):
                continue
            patterns.append(reduced.pattern)
            yield reduced, len(rows) - 1

    def _reduced(self, proposal: Proposal, rows: set[str]) -> tuple[Proposal, set[str]]:
        """The proposal without changes that are not needed for some node to take the pod."""
        changes, node_name = proposal.changes, proposal.node_name
        for change in proposal.changes:
            rest = tuple(other for other in changes if other is not change)
            left = self._trials.nodes_that_fit(rest) if rest else None
            if left:
                changes, rows = rest, left
                node_name = node_name if node_name in left else min(left)
        return Proposal(changes, node_name), rows

    # -- proposals ---------------------------------------------------------------------------------

    def proposals(self) -> Iterator[Proposal]:
        for row in self.rows():
            yield from self._for_node(row)
        yield from self._additions()

    def rows(self) -> list[int]:
        """The nodes to examine."""
        by_distance = nearest(self._evaluation)
        distinct = first_of_each_set(self._evaluation, by_distance)[: MOST_NODES // 2]
        chosen = dict.fromkeys([*distinct.tolist(), *by_distance[:MOST_NODES].tolist()])
        return list(chosen)[:MOST_NODES]

    def conditions(self, row: int) -> list[Condition]:
        return conditions_at(
            self._evaluation,
            row,
            lambda plugin, edits: self._trials.passes(row, plugin, edits),
        )

    def _for_node(self, row: int) -> Iterator[Proposal]:
        conditions = self.conditions(row)
        if not conditions or len(conditions) > MOST_CONDITIONS:
            return
        name = self._table.names[row]
        deletable = [condition for condition in conditions if condition.is_deletable]
        for together in _subsets(deletable):
            others = [condition for condition in conditions if condition not in together]
            if not all(other.alternatives for other in others):
                continue
            leaving: list[AnyChange] = []
            if together:
                pods = self._leaving(row, together)
                if pods is None:
                    continue
                leaving = [self._deletion(pod) for pod in pods]
            for chosen in product(*(other.alternatives for other in others)):
                changes = {change.key: change for change in (*chosen, *leaving)}
                yield Proposal(tuple(changes.values()), name)

    def _leaving(self, row: int, conditions: Sequence[Condition]) -> list[PodInfo] | None:
        plugins = {condition.plugin for condition in conditions}
        return smallest_deletions(
            self._table,
            row,
            self._pod,
            conditions,
            lambda removed: self._trials.passes_without(
                self._evaluation.state, row, plugins, removed
            ),
            lambda pod: (self._deletion(pod).cost, pod.key),
        )

    def _deletion(self, pod: PodInfo) -> PodDeletion:
        return deletion(pod.pod, self._budgets.violated_by([pod])[0])

    def deletions(self, row: int) -> list[PodDeletion]:
        """Every pod that may be deleted from the node."""
        return [
            self._deletion(pod) for pod in filter(may_be_deleted, self._table.pods[row].values())
        ]

    def _additions(self) -> Iterator[Proposal]:
        """The cheapest node shape that takes the pod if one more such node is added."""
        for node in self._shapes():
            change = addition(node)
            if change.node.metadata.name in self._table.row_of:
                continue
            proposal = Proposal((change,), change.node.metadata.name)
            if proposal.node_name in (self._trials.nodes_that_fit([change]) or ()):
                yield proposal
                return

    def _shapes(self) -> list[Node]:
        """One node for each distinct size and set of taints, the smallest first."""
        distinct: dict[object, Node] = {}
        for row in self._evaluation.rows.tolist():
            node = self._table.nodes[row]
            if node is not None:
                allocatable = tuple(sorted((node.status.allocatable or {}).items()))
                taints = tuple((t.key, t.value, t.effect) for t in node.spec.taints or ())
                distinct.setdefault((allocatable, taints), node)
        rows = [self._table.row_of[node.metadata.name] for node in distinct.values()]
        sizes = self._table.allocatable[0].array[rows]
        ordered = np.argsort(sizes, kind="stable")[:MOST_SHAPES]
        nodes = list(distinct.values())
        return [nodes[at] for at in ordered.tolist()]

    # -- output ------------------------------------------------------------------------------------

    def _fix(self, proposal: Proposal, others: int) -> Fix:
        changes = (*self._before, *proposal.changes)
        pod, listers = self._pod.pod, self._framework.handle.listers
        leaving = [change for change in proposal.changes if isinstance(change, PodDeletion)]
        effects: list[str] = []
        if leaving:
            infos = [PodInfo(deletion.pod) for deletion in leaving]
            for deletion, violates in zip(leaving, self._budgets.violated_by(infos), strict=True):
                if violates:
                    effects.append(
                        f"violates the disruption budget of {key_of(deletion.pod.metadata)}"
                    )
                owner = deletion.pod.metadata.controller()
                if owner is not None:
                    effects.append(
                        f"its {owner.kind} creates {key_of(deletion.pod.metadata)} again"
                    )
            if not any(self._budgets.violated_by(infos)):
                effects.append("disruption budgets allow it")
        effects += notes_on(changes, pod, listers)
        if any(is_to_be_made(change) for change in changes):
            owner_of_pod = template_owner(pod, listers)
            if owner_of_pod is not None:
                effects.append(f"changes every pod of {'/'.join(owner_of_pod).lower()}")
        return Fix(
            changes=[
                Change(kind=change.kind, text=change.text, object=self._object_of(change))
                for change in changes
            ],
            node=proposal.node_name,
            other_nodes=others,
            commands=commands_for(pod, changes, listers),
            effects=effects,
        )

    def _object_of(self, change: AnyChange) -> str:
        if isinstance(change, PodEdit):
            return f"Pod/{self._pod.key}"
        if isinstance(change, NodeEdit):
            return f"Node/{change.node_name}"
        if isinstance(change, PodDeletion):
            return f"Pod/{key_of(change.pod.metadata)}"
        if isinstance(change, PluginExclusion):
            return f"Plugin/{change.plugin}"
        return f"Node/{change.node.metadata.name}"


def size_of(changes: Sequence[AnyChange]) -> int:
    """The number of changes. A new node counts for more than any other change."""
    return sum(ADDITION_SIZE if isinstance(change, NodeAddition) else 1 for change in changes)


def _subsets(conditions: Sequence[Condition]) -> Iterator[tuple[Condition, ...]]:
    return chain.from_iterable(
        combinations(conditions, size) for size in range(len(conditions) + 1)
    )
