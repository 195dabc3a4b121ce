"""Optional fast paths that in-tree plugins implement beside the plugin contract.

None of them changes a decision: a test disables all of them and compares the results. They are
private and may change in any version, so third-party plugins must not use them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import Plugin
from kubesched.framework.nodes.pods import PodInfo

TopologyKeys = Collection[str] | None
"""The domains of some topology keys, or all nodes."""


class InTreePlugin(Plugin):
    """Additional members for the engine, preemption, the queue and recordings."""

    answers_by_spec: ClassVar[bool] = False
    """True if the plugin's shareable answers do not depend on labels, owner or claim names.

    Not inherited, because a subclass may read more. If all plugins set it, pods that differ only in
    these fields share columns: 45 instead of 230 µs per decision if every pod has a unique label
    (benchmarks/awkward.py, unique-labels).
    """

    answers_per_class: ClassVar[bool] = False
    """For PostFilter: True if pods of a class get the same answer unless a node is nominated.

    One failed attempt then stands for all pods of the class (benchmarks/backlog.py).
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


def answers_by_spec(plugin: Plugin) -> bool:
    return bool(type(plugin).__dict__.get("answers_by_spec"))


def names_what_it_reads(plugin: Plugin) -> bool:
    """True if the plugin's own class has `class_fields`; a subclass may read more."""
    return "class_fields" in type(plugin).__dict__


def answers_per_class(plugin: Plugin) -> bool:
    return isinstance(plugin, InTreePlugin) and plugin.answers_per_class


def is_idle(plugin: Plugin) -> bool:
    return not isinstance(plugin, InTreePlugin) or plugin.is_idle()
