"""Optional fast paths that in-tree plugins implement beside the plugin contract.

None of them changes a decision: a test disables all of them and compares the results. They are
private and may change in any version, so third-party plugins must not use them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Hint, HintFn
from kubesched.framework.interfaces import Plugin
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.rules import Rule, Scope

TopologyKeys = Collection[str] | None
"""The domains of some topology keys, or all nodes."""


class InTreePlugin(Plugin):
    """Additional members for the engine, preemption, the queue and recordings."""

    answers_by_spec: ClassVar[bool] = False
    """True if the plugin's shareable answers do not depend on labels, owner or claim names.

    Not inherited (`declares`). If all plugins set it, pods that differ only in these fields share
    columns: 45 instead of 230 µs per decision if every pod has a unique label
    (benchmarks/awkward.py, unique-labels).
    """

    answers_per_class: ClassVar[bool] = False
    """For PostFilter: True if pods of a class get the same answer unless a node is nominated.

    Not inherited. One failed attempt then stands for all pods of the class (benchmarks/backlog.py).
    """

    def keys_affected_by(self, state: CycleState, pod: Pod, other: PodInfo) -> TopologyKeys:
        """For PreFilter: the topology keys in whose domains `other` may change the verdict.

        Empty if `add_pod` and `remove_pod` ignore it; None if any node may be affected. Nodes that
        are not affected are evaluated together, so the plugin's filter must judge the nodes of a
        view independently. The answer may depend only on namespace, labels and affinity of `other`.
        """
        del state, pod, other
        return None

    def is_idle(self) -> bool:
        """False while the plugin has state that the listers do not show, such as its own writes.

        A recording can be replayed from any point at which every plugin was idle.
        """
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRule(Rule):
    """A rule of ROW scope with a form for single rows.

    For the few rows that changed since the last pod, where array operations are slower: 35 instead
    of 90 µs per decision for one template (benchmarks/decisions.py).
    """

    depends_on: Scope = Scope.ROW
    at: Callable[[int], int]
    """The verdict on, or the raw score of, one row of `handle.table`.

    It may keep references to the table's columns: rules are rebuilt when these are reallocated.
    """


Fields = Literal["spec", "class"]
"""The fields of a waiting pod that a hint reads at most.

`spec`: namespace and spec, without names of claims and group. `class`: those in
`PodInfo.class_key`, so neither name nor UID.
"""
H = TypeVar("H", bound=Callable[..., Hint])


def reads(fields: Fields) -> Callable[[H], H]:
    """Decorates a hint that reads no other fields of the pod.

    One call may then answer for all waiting pods that are equal in these. A hint that overrides
    this one has to say so again.
    """

    def mark(hint: H) -> H:
        hint.fields_read = fields  # type: ignore[attr-defined]  # functions take any
        return hint

    return mark


def fields_read(hint: HintFn) -> Fields | None:
    """None: any field."""
    return getattr(hint, "fields_read", None)


def declares(plugin: Plugin, member: str) -> bool:
    """True if the plugin's own class has the member; a subclass may read more."""
    return bool(type(plugin).__dict__.get(member))


def is_idle(plugin: Plugin) -> bool:
    return not isinstance(plugin, InTreePlugin) or plugin.is_idle()
