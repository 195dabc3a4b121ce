"""The search for fixes: the smallest sets of changes after which some node takes the pod.

The search works out the conditions node by node. On each node, every condition is met by one of its
alternatives, or several conditions together by deleting pods. Sets are sorted by what they disturb
and tried in that order: with the real filters, which drops every change that a set does not need,
and then in a copy of the cluster (`rehearsal`), which counts the pods of the workload that get a
node. Sets that place none are dropped; of a set that places some, a stronger form is tried, too.
docs/reference/explain.md describes scope and limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

import numpy as np

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.names import key_of
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.runtime import Framework
from kubesched.insight.explain.amounts import free_of
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    GateRemoval,
    NodeAddition,
    NodeEdit,
    ObjectChange,
    PodDeletion,
    PodEdit,
    RequestEdit,
    SkewEdit,
    addition,
    deletion,
    edited,
)
from kubesched.insight.explain.fixes.claims import ClaimChanges
from kubesched.insight.explain.fixes.commands import commands_for, is_to_be_made, template_owner
from kubesched.insight.explain.fixes.conditions import (
    Condition,
    conditions_at,
    smallest_deletions,
)
from kubesched.insight.explain.fixes.pod_edits import gate_removals, lower_request, raise_skew
from kubesched.insight.explain.fixes.rehearsal import Outcome, Rehearsals
from kubesched.insight.explain.fixes.trials import Trials
from kubesched.insight.explain.model import Change, Fix
from kubesched.insight.explain.reasons import INSUFFICIENT
from kubesched.insight.explain.selection import first_of_each_set, nearest

MOST_NODES = 24
"""Number of nodes to work out: the nearest to fitting, and one per distinct set of reasons."""
MOST_CONDITIONS = 6
"""Nodes with more conditions are skipped."""
MOST_TRIALS = 60
MOST_FIXES = 6
MOST_OF_A_PATTERN = 3
"""Sets with the same kinds of changes that may fail before others get their turn."""
MOST_SHAPES = 12
"""Node shapes that are tried as additions."""
PODS_NAMED = 3
BOUND_MET = (
    "the bound of trials was met: fixes that say 'fits' were tried with this pod alone, "
    "and there may be others"
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that should make a node take the pod; not yet tried."""

    changes: tuple[AnyChange, ...]
    node_name: str

    @property
    def cost(self) -> float:
        return sum(change.cost for change in self.changes)

    @property
    def order(self) -> tuple[float, int, str]:
        return self.cost, len(self.changes), self.node_name

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        return frozenset(change.key for change in self.changes)

    @property
    def pattern(self) -> frozenset[str]:
        """Kinds of changes. Of fixes with the same or a larger pattern, only the best is kept."""
        return frozenset(
            f"{change.kind} {change.resource}" if isinstance(change, RequestEdit) else change.kind
            for change in self.changes
        )


@dataclass(frozen=True, slots=True)
class Tried:
    """A proposal that some node passes all filters with, and what it leads to."""

    proposal: Proposal
    other_nodes: int
    outcome: Outcome | None
    """None if it was not tried in a copy of the cluster."""

    @property
    def order(self) -> tuple[bool, tuple[float, int, str]]:
        return self.outcome is None or not self.outcome.is_whole, self.proposal.order


class FixSearch:
    """Searches for fixes for one pod that fits nowhere."""

    def __init__(
        self,
        framework: Framework,
        evaluation: Evaluation,
        before: Sequence[AnyChange] = (),
        rehearsals: Rehearsals | None = None,
    ) -> None:
        """`before` are changes needed to enter the queue; they become part of every fix."""
        self._before = tuple(before)
        self._evaluation = evaluation
        self._table = evaluation.table
        self._pod = evaluation.pod
        self._trials = Trials(framework, evaluation.pod)
        self._claims = ClaimChanges(framework, evaluation)
        self._rehearsals = rehearsals
        self._listers = framework.handle.listers
        budgets = self._listers.of(PodDisruptionBudget).list() if self._listers else ()
        self._budgets = Budgets(budgets)
        self.notes: list[str] = []
        """Sets that were left out because others would take the room, and bounds that were met."""

    def fixes(self) -> list[Fix]:
        """The fixes that hold, those that place the whole workload first."""
        tried = sorted(self.verified(), key=lambda tried: tried.order)
        if self._rehearsals is not None and self._rehearsals.is_over:
            self.notes.append(BOUND_MET)
        return [self._fix(one) for one in tried]

    def verified(self) -> Iterator[Tried]:
        """Verified fixes with distinct patterns.

        The changes needed to enter the queue are not included.
        """
        feasible = self._evaluation.feasible
        if len(feasible):
            totals = self._evaluation.totals
            best = int(feasible[0] if totals is None else feasible[int(np.argmax(totals))])
            one = self._rehearsed(Proposal((), self._table.names[best]), len(feasible) - 1)
            yield from [one] if one is not None else []
            return
        patterns: list[frozenset[str]] = []
        failures: Counter[frozenset[str]] = Counter()
        trials = 0
        for proposal in sorted(self.proposals(), key=lambda proposal: proposal.order):
            if len(patterns) >= MOST_FIXES or trials >= MOST_TRIALS:
                return
            if failures[proposal.pattern] >= MOST_OF_A_PATTERN or any(
                pattern <= proposal.pattern for pattern in patterns
            ):
                continue
            trials += 1
            passed = self._passed(proposal)
            if passed is None or any(pattern <= passed[0].pattern for pattern in patterns):
                continue
            one = self._rehearsed(*passed)
            if one is None:
                failures[proposal.pattern] += 1
                continue
            patterns.append(one.proposal.pattern)
            yield one

    def _passed(self, proposal: Proposal) -> tuple[Proposal, int] | None:
        """The proposal, reduced, and how many further nodes pass all filters with it."""
        if not self._trials.sees(proposal.changes):
            return proposal, 0
        rows = self._trials.nodes_that_fit(proposal.changes)
        if rows is None or proposal.node_name not in rows:
            return None
        reduced, rows = self._reduced(proposal, rows)
        return reduced, len(rows) - 1

    # -- trials in a copy of the cluster -----------------------------------------------------------

    def _rehearsed(self, proposal: Proposal, other_nodes: int) -> Tried | None:
        """The proposal, or a stronger form that places more; None if it places nothing."""
        changes = (*self._before, *proposal.changes)
        if self._rehearsals is None:
            return Tried(proposal, other_nodes, None)
        outcome = self._rehearsals.outcome(changes)
        if outcome is None:
            return Tried(proposal, other_nodes, None)
        if outcome.placed <= 0:
            if outcome.others and self._trials.sees(changes):
                text = ", ".join(change.text for change in changes)
                self.notes.append(f"left out: {text}: {_first_taken(outcome)}")
            return None
        best = Tried(proposal, other_nodes, outcome)
        return best if outcome.is_whole else self._strengthened(best)

    def _strengthened(self, weak: Tried) -> Tried:
        """The weakest of the stronger forms that places the most, or the given one."""
        assert weak.outcome is not None, "it was tried"
        best, low, high = weak, 0, weak.outcome.wanted - weak.outcome.placed
        extra = high
        while low < extra:
            form = self._stronger(weak, extra)
            outcome = self._outcome_of(form) if form is not None else None
            if form is None or outcome is None or best.outcome is None:
                break
            if outcome.placed > best.outcome.placed or (
                outcome.placed == best.outcome.placed and best is not weak
            ):
                best, high = Tried(form, weak.other_nodes, outcome), extra
            else:
                low = extra
            if not any(isinstance(change, SkewEdit) for change in form.changes):
                break
            extra = (low + high) // 2
        return best

    def _outcome_of(self, proposal: Proposal) -> Outcome | None:
        assert self._rehearsals is not None, "weaker forms were tried"
        return self._rehearsals.outcome((*self._before, *proposal.changes))

    def _stronger(self, tried: Tried, extra: int) -> Proposal | None:
        """The proposal with more of each change; `extra` is added to maxSkew."""
        outcome = tried.outcome
        assert outcome is not None, "it was tried"
        changes: list[AnyChange] = []
        for change in tried.proposal.changes:
            stronger: AnyChange | None = None
            if isinstance(change, SkewEdit):
                stronger = raise_skew(change.index, change.topology_key, change.skew + extra)
            elif isinstance(change, NodeAddition):
                node = self._table.nodes[self._table.row_of[change.like]]
                assert node is not None, "a row of a node"
                stronger = addition(node, -(-outcome.wanted // outcome.placed))
            elif isinstance(change, RequestEdit):
                target = self._request_for(change.resource, outcome.wanted)
                stronger = lower_request(self._pod.pod, change.resource, target)
            changes.append(stronger or change)
        if changes == list(tried.proposal.changes):
            return None
        return Proposal(tuple(changes), tried.proposal.node_name)

    def _request_for(self, resource: str, count: int) -> int:
        """The largest request of which that many fit the nodes that lack nothing else."""
        reasons = {f"{INSUFFICIENT}{resource}"}
        free = [
            free_of(self._table, resource, row)[0]
            for row in self._evaluation.rows.tolist()
            if {
                reason
                for _, status in self._evaluation.statuses_at(row)
                for reason in status.all_reasons
            }
            <= reasons
        ]
        sizes = {room // share for room in free for share in range(1, count + 1)}
        enough = (s for s in sizes if s > 0 and sum(room // s for room in free) >= count)
        return max(enough, default=0)

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
            self._claims.changes,
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

    def _additions(self) -> Iterator[Proposal]:
        """The cheapest node shape that takes the pod if one more such node is added."""
        for node in self._shapes():
            change = addition(node)
            proposal = Proposal((change,), change.node.metadata.name)
            if not self._trials.sees([change]):
                yield proposal
            elif proposal.node_name in (self._trials.nodes_that_fit([change]) or ()):
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

    def _fix(self, tried: Tried) -> Fix:
        proposal, outcome = tried.proposal, tried.outcome
        changes = (*self._before, *proposal.changes)
        pod, listers = self._pod.pod, self._listers
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
        effects += (effect for change in changes for effect in change.effects)
        if any(is_to_be_made(change) for change in changes):
            owner_of_pod = template_owner(pod, listers)
            if owner_of_pod is not None:
                effects.append(f"changes every pod of {'/'.join(owner_of_pod).lower()}")
            elif (owner := pod.metadata.controller()) is not None:
                effects.append(f"to be changed in {owner.kind} {owner.name}, which makes the pod")
        if outcome is not None and outcome.others and not outcome.is_whole:
            effects.append(_first_taken(outcome))
        if outcome is not None and outcome.preempted:
            effects.append(f"the scheduler evicts {_listed(outcome.preempted)}")
        return Fix(
            changes=[
                Change(kind=change.kind, text=change.text, object=self._object_of(change))
                for change in changes
            ],
            node=_node_of(proposal, outcome),
            other_nodes=tried.other_nodes,
            places=None if outcome is None else outcome.placed,
            wanted=None if outcome is None else outcome.wanted,
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
        if isinstance(change, ObjectChange):
            return change.object
        return f"Node/{change.node.metadata.name}"


def changes_for_entry(framework: Framework, pod: Pod) -> list[GateRemoval] | None:
    """The gates to remove, after which PreEnqueue admits the pod; None if it does not even then."""
    if pod.metadata.deletion_timestamp is not None:
        return None
    removals = gate_removals(pod)
    ungated = edited(pod, removals) if removals else pod
    statuses = (plugin.pre_enqueue(ungated) for plugin in framework.pre_enqueue)
    is_admitted = all(status is None or status.is_success for status in statuses)
    return removals if is_admitted else None


def _node_of(proposal: Proposal, outcome: Outcome | None) -> str:
    """The node that passes all filters, or the one that the scheduler prefers over it."""
    if outcome is None or not outcome.nodes or proposal.node_name in outcome.nodes:
        return proposal.node_name
    return outcome.nodes[-1]


def _first_taken(outcome: Outcome) -> str:
    return f"{_listed(outcome.others)} would take the room first"


def _listed(pods: Sequence[str]) -> str:
    more = f" and {len(pods) - PODS_NAMED} more" if len(pods) > PODS_NAMED else ""
    return ", ".join(pods[:PODS_NAMED]) + more


def _subsets(conditions: Sequence[Condition]) -> Iterator[tuple[Condition, ...]]:
    return chain.from_iterable(
        combinations(conditions, size) for size in range(len(conditions) + 1)
    )
