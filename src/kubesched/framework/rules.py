"""Rules: how far a plugin's answer for one pod reaches, so that the scheduler may reuse it.

Pods with the same scheduling-relevant spec form an equivalence class. By default a plugin evaluates every node for
every pod. A plugin that returns a `Rule` from `filter_rule` or `score_rule` tells the scheduler what its answer depends
on besides the pod's class, and the scheduler asks again only about nodes for which that changed:

    Rule(Scope.NODE)              the node object: labels, taints, allocatable, images
    Rule(Scope.ROW)               the node object and the pods on the node
    Rule(traits=[zone])           anything in the cluster, but nodes with equal traits always get the same answer

A rule covers both halves of a phase: the filter rule covers `pre_filter` and `filter`, the score rule `pre_score`,
`score` and `normalize_scores`. A rule that claims too little makes pods land on wrong nodes: when in doubt, return None.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from kubesched.framework.status import Status
from kubesched.framework.traits import Trait
from kubesched.snapshot.views import NodeColumns

T = TypeVar("T")


class Scope(Enum):
    """What a node's verdict or raw score depends on, besides the pod and the rule's premise."""

    NODE = "node"
    """The node object alone."""
    ROW = "row"
    """The node object and the pods on that node."""
    CLUSTER = "cluster"
    """Anything. Answers are shared between nodes only where the rule names traits."""


Premise = Callable[[], Hashable]
"""A cheap function whose value changes whenever the answer may: it is called for every pod of the class."""


class VersionedPremise:
    """A premise that is found again only after a version has changed.

    Rules of many pods rest on the same few versions. While none of these changes, no premise need be asked at all, so rules of
    different pods should give the same function, or equal ones, as `version`.
    """

    __slots__ = ("_find", "_found", "_seen", "version")

    def __init__(self, version: Premise, find: Premise) -> None:
        self.version = version
        self._find = find
        self._seen: Hashable = version
        """No version equals its function."""
        self._found: Hashable = None

    def __call__(self) -> Hashable:
        seen = self.version()
        if seen != self._seen:
            self._found = self._find()
            self._seen = seen
        return self._found


PremiseValue = tuple[Premise, Hashable]
"""A premise and the value it had."""


def unconditional() -> None:
    """The premise of an answer that depends on nothing but the pod's class and the rule's scope."""


def this_attempt_only() -> None:
    """The premise of an answer that holds within one attempt and is never kept for another pod.

    The scope still counts: what-ifs about many nodes (preemption, nominated pods) are then evaluated together.
    """


ManyPods = Callable[[NodeColumns], np.ndarray[Any, Any]]
"""The answers for several pods at the nodes of a view, in an array of pods by nodes.

Or in one with a line for all pods, where they have the same answers.
"""


class Together(NamedTuple):
    """How rules of pods that differ in their numbers only are evaluated with one array operation."""

    key: Hashable
    """Rules of one plugin with equal keys can be evaluated together."""
    numbers: Any
    """This pod's part, for `join`."""
    join: Callable[[Sequence[Any]], ManyPods]
    """From the numbers of several pods to their answers. It may hold on to the table's columns, as `Rule.at` may."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """What an answer depends on. `T` is bool for filters and int for scores."""

    depends_on: Scope = Scope.CLUSTER
    traits: Sequence[Trait] | None = None
    """With CLUSTER scope: nodes alike in all of these get the same answer. None: nodes cannot be grouped.

    One node of each group then stands for the others; views know how many (`number_of_nodes`, `number_of_values`).
    """
    premise: Premise = unconditional
    """What else the answer, and everything stored in the cycle state, depends on."""
    at: Callable[[int], T] | None = None
    """The same answer for one row of the node table: a verdict (True: passes) or a raw score.

    Optional. Used for a few changed rows at a time, where an array operation costs more than it saves. It may hold on to
    the table's columns: rules are rebuilt when these are reallocated.
    """
    refusal: Callable[[int], Status | None] | None = None
    """For filters with ROW scope: the verdict on one row as `filter_nodes` gives it, None if the node passes.

    Optional, beside `at`. Used where a pod fits nowhere, to see that a changed row is rejected for the same reason still.
    """
    final: Callable[[Sequence[int], Sequence[int]], list[int]] | None = None
    """For scores with traits: final scores of a few rows, given how many feasible nodes each row stands for.

    Optional. Replaces `pre_score`, `score_nodes` and `normalize_scores` where there are few groups.
    """
    together: Together | None = None
    """With ROW scope: the same answers for several pods at once. Optional, beside `at`.

    Used where pods of many shapes take turns, so that each finds the rows that the others have changed.
    """

    @property
    def is_lasting(self) -> bool:
        """May the answer be kept for other pods of the class?"""
        return self.premise is not this_attempt_only and (
            self.depends_on is not Scope.CLUSTER or self.traits is not None
        )
