"""Rules: what a plugin's answer depends on, so that the scheduler can reuse it.

Pods that are equal in everything plugins may read form a class. By default a plugin evaluates every
node for every pod. A plugin that returns a `Rule` from `filter_rule` or `score_rule` declares what
its answer depends on besides the pod's class, and re-evaluates only nodes where that changed:

    Rule(Scope.NODE)     the node object: labels, taints, allocatable, images
    Rule(Scope.ROW)      the node object and the pods on the node
    Rule()               anything in the cluster: called for every pod, but pods of a class that are
                         tried at the same moment get the same answer

A rule covers both halves of a phase: the filter rule `pre_filter` and `filter`, the score rule
`pre_score` and `score`. A rule that declares too little places pods on wrong nodes: when in doubt,
return None.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum


class Scope(Enum):
    """What a node's verdict or raw score depends on, besides the pod and the rule's premise."""

    NODE = "node"
    """The node object alone."""
    ROW = "row"
    """The node object and the pods on that node."""
    CLUSTER = "cluster"
    """Anything."""


Premise = Callable[[], Hashable]
"""A cheap function whose value changes whenever the answer may; called for every pod."""


def always() -> None:
    """The premise of an answer that depends only on the pod's class and the rule's scope."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an answer depends on."""

    depends_on: Scope = Scope.CLUSTER
    premise: Premise | None = always
    """What else the answer depends on. None: it is valid for this attempt only.

    The scope still applies then: what-ifs for many nodes (preemption, nominated pods) are
    evaluated together.
    """
