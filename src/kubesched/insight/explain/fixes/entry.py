"""Changes that let a pod into the queue: scheduling gates and third-party PreEnqueue plugins."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.framework.runtime import Framework
from kubesched.insight.explain.fixes.changes import AnyChange, edited, plugin_exclusion
from kubesched.insight.explain.fixes.pod_edits import gate_removals
from kubesched.plugins.registry import IN_TREE


def changes_for_entry(framework: Framework, pod: Pod) -> list[AnyChange] | None:
    """The changes after which PreEnqueue admits the pod; None if no change can be suggested."""
    if pod.metadata.deletion_timestamp is not None:
        return None
    removals = gate_removals(pod)
    changes: list[AnyChange] = list(removals)
    ungated = edited(pod, removals) if removals else pod
    for plugin in framework.pre_enqueue:
        status = plugin.pre_enqueue(ungated)
        if status is None or status.is_success:
            continue
        if plugin.name in IN_TREE:
            return None
        changes.append(plugin_exclusion(plugin.name))
    return changes
