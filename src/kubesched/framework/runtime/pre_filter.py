"""PreFilter: each plugin may narrow the nodes, skip its Filter, or reject the pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import is_resize_deferred
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import PreFilterPlugin, PreFilterResult
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, failure, raised
from kubesched.framework.runtime.timing import PRE_FILTER
from kubesched.framework.status import SKIP, Code, Status, unresolvable

NOT_ASKED_ABOUT_RESIZES: Final = frozenset(
    (
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    )
)
"""Plugins that skip bound pods with a deferred resize: they stay on their node in any case."""


@dataclass(slots=True)
class PreFilterOutcome:
    """If `status` is None, filtering continues; `narrowing_plugins` reduced it to `node_names`."""

    status: Status | None = None
    node_names: frozenset[str] | None = None
    narrowing_plugins: set[str] = field(default_factory=set)


def run_pre_filter(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    nodes: NodeColumns,
    plugins: Sequence[PreFilterPlugin] | None = None,
) -> PreFilterOutcome:
    """Run the (given) PreFilter plugins in order.

    # Upstream: after Unschedulable the remaining plugins still run, and the last such status
    # counts. Only UnschedulableAndUnresolvable, an error, or an empty node set ends the phase.
    """
    result = PreFilterResult()
    narrowing: set[str] = set()
    skipped: set[str] = set()
    rejection: Status | None = None
    state.skip_filter_plugins = skipped
    state.points_reached |= PRE_FILTER
    timer = state.timer
    if plugins is None:
        plugins = framework.pre_filter
    if framework.tries_resizes and is_resize_deferred(pod):
        skipped |= NOT_ASKED_ABOUT_RESIZES
        plugins = [plugin for plugin in plugins if plugin.name not in NOT_ASKED_ABOUT_RESIZES]
    for plugin in plugins:
        try:
            if timer is None:
                answer = plugin.pre_filter(state, pod, nodes)
            else:
                answer = timer.call(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
            if answer is None:
                continue
            if answer is SKIP:
                skipped.add(plugin.name)
                continue
            if isinstance(answer, PreFilterResult):
                if answer.node_names is not None:
                    narrowing.add(plugin.name)
                    result = result.merge(answer)
                    if not result.node_names:
                        return PreFilterOutcome(_emptied(narrowing), None, narrowing)
                continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin may raise anything; it fails this attempt only
            return PreFilterOutcome(raised(_prefix(plugin), error, plugin=plugin.name))
        if status is None or status.code is Code.SUCCESS:
            continue
        if status.code is Code.SKIP:
            skipped.add(plugin.name)
        elif status.code is Code.UNSCHEDULABLE:
            rejection = status.with_plugin(plugin.name)
        elif status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PreFilterOutcome(status.with_plugin(plugin.name))
        else:
            return PreFilterOutcome(failure(_prefix(plugin), status, plugin=plugin.name))
    return PreFilterOutcome(rejection, result.node_names, narrowing)


def _prefix(plugin: PreFilterPlugin) -> str:
    return f'running PreFilter plugin "{plugin.name}": '


def _emptied(narrowing: set[str]) -> Status:
    if len(narrowing) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {next(iter(narrowing))}")
    return unresolvable(
        f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously"
    )


def run_add_pod(
    framework: Framework, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns
) -> Status | None:
    """Call `add_pod` of the plugins: a what-if adds a pod to a node."""
    return _run_extension(framework, state, pod, added, node, removing=False)


def run_remove_pod(
    framework: Framework, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns
) -> Status | None:
    """Call `remove_pod` of the plugins: a what-if removes a pod from a node."""
    return _run_extension(framework, state, pod, removed, node, removing=True)


def _run_extension(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    other: PodInfo,
    node: NodeColumns,
    *,
    removing: bool,
) -> Status | None:
    for plugin in framework.pre_filter:
        if not plugin.has_extensions or plugin.name in state.skip_filter_plugins:
            continue
        verb = "RemovePod" if removing else "AddPod"
        prefix = f'running {verb} on PreFilter plugin "{plugin.name}": '
        try:
            answer = (plugin.remove_pod if removing else plugin.add_pod)(state, pod, other, node)
            status = as_status(plugin, answer)
        except Exception as error:  # as above
            return raised(prefix, error, plugin=plugin.name)
        if status is not None and not status.is_success:
            return failure(prefix, status, plugin=plugin.name)
    return None
