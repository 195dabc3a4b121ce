"""The engine's floor: faster forms that plugins of this repository give beside the contract.

Each member is optional and changes no decision: a test takes all of them away and compares. They
are private and may change with any version, so other plugins leave them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import Plugin
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.rules import Premise, Rule
from kubesched.framework.status import NodeToStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowRule(Rule[T]):
    """A rule with the same answer for one row of the node table: a verdict, or a raw score.

    Used for a few dirty rows, where array operations cost more than they save: 35 against 90 µs per
    decision of one template (benchmarks/decisions.py). It may hold on to the table's columns: rules
    are made anew when these are reallocated.
    """

    at: Callable[[int], T] | None = None


class InTreePlugin(Plugin):
    """What the engine, preemption, the queue and recordings ask of plugins that know them."""

    answers_by_spec: ClassVar[bool] = False
    """Answers that its rules let others share depend on neither labels, owner nor names of claims.

    Not inherited: a derived class may read more. With such plugins only, pods that differ in
    nothing else share columns: 45 against 230 µs per decision where every pod has a label of its
    own (benchmarks/awkward.py, unique-labels).
    """

    answers_per_class: ClassVar[bool] = False
    """For PostFilter: pods of a class get the same answer unless a node is nominated.

    A pod that fits nowhere is then tried for all of its class (benchmarks/backlog.py).
    """

    def answer_premise(self, state: CycleState, pod: Pod, statuses: NodeToStatus) -> Premise | None:
        """For PostFilter that answers per class: what the rejection just given depends on besides.

        None: ask every time. While the value stays the same, other pods of the class with these
        verdicts get the same answer, and the plugin is not asked.
        """
        del state, pod, statuses
        return None

    def answer_repeated(self) -> None:
        """A pod got the answer kept for its class; for plugins that count how often they are asked."""

    def ignores_pod(self, state: CycleState, pod: Pod, other: PodInfo) -> bool:
        """For PreFilter: would `add_pod` and `remove_pod` change nothing for `other`, on any node?

        Where all pods in question are ignored, what-ifs about many nodes are evaluated together:
        this plugin's filter must then judge the nodes of a view independently of each other. The
        answer may depend on the namespace, labels and affinity of `other` only.
        """
        del state, pod, other
        return False

    def is_idle(self) -> bool:
        """False while the plugin knows something that the listers do not show, such as its own writes.

        A recording can be played from a point at which every plugin was idle.
        """
        return True

    def sort_key(self, info: QueuedPodInfo) -> Any:  # noqa: ANN401  # any comparable value
        """For QueueSort: a key with the same order as `less`.

        Heaps then need no call per comparison.
        """
        del info
        return None


def answers_by_spec(plugin: Plugin) -> bool:
    return bool(type(plugin).__dict__.get("answers_by_spec"))


def answers_per_class(plugin: Plugin) -> bool:
    return isinstance(plugin, InTreePlugin) and plugin.answers_per_class


def ignores_pod(plugin: Plugin, state: CycleState, pod: Pod, other: PodInfo) -> bool:
    return isinstance(plugin, InTreePlugin) and plugin.ignores_pod(state, pod, other)


def is_idle(plugin: Plugin) -> bool:
    return not isinstance(plugin, InTreePlugin) or plugin.is_idle()
