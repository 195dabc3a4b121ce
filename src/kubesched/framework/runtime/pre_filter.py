"""PreFilter: each plugin looks at the pod once; the node set may shrink and filters may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import PreFilterPlugin, PreFilterResult
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, failure, raised
from kubesched.framework.runtime.replay import Replay
from kubesched.framework.runtime.timing import PRE_FILTER
from kubesched.framework.status import SKIP, Code, Status, unresolvable
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns


@dataclass(slots=True)
class PreFilterOutcome:
    """`status` None: go on, with `node_names` if narrowed by `narrowing_plugins`."""

    status: Status | None = None
    node_names: frozenset[str] | None = None
    narrowing_plugins: set[str] = field(default_factory=set)


def run_pre_filter(
    framework: Framework, state: CycleState, pod: Pod, nodes: NodeColumns
) -> PreFilterOutcome:
    """Run every PreFilter plugin in order.

    A plain rejection is remembered and the rest still run (the last one counts); an unresolvable one, an error, or
    an emptied node set ends the phase. Plugins that opted out are recorded in the state in every case.
    """
    result = PreFilterResult()
    narrowing: set[str] = set()
    skipped: set[str] = set()
    rejection: Status | None = None
    state.skip_filter_plugins = skipped
    state.points_reached |= PRE_FILTER
    plugins: Sequence[PreFilterPlugin] = framework.pre_filter
    pod_class, version = state.pod_class, len(nodes.table.lines)
    recording: Replay[PreFilterPlugin] | None = None
    timer = state.timer
    if pod_class is not None:
        replay = pod_class.pre_filter
        if replay is not None and replay.serves(version):
            plugins = replay.apply(state, skipped)
        else:
            recording = Replay(version)
    for plugin in plugins:
        if recording is not None and plugin.pre_filter_is_per_class:
            recording.watch(state)
        try:
            if timer is None:
                answer = plugin.pre_filter(state, pod, nodes)
            else:
                answer = timer.call(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
            if recording is None:  # the two common answers, without detours
                if answer is SKIP:
                    skipped.add(plugin.name)
                    continue
                if answer is None:
                    continue
            if isinstance(answer, PreFilterResult):
                recording = None
                if answer.node_names is not None:
                    narrowing.add(plugin.name)
                    result = result.merge(answer)
                    if not result.node_names:
                        return PreFilterOutcome(_emptied(narrowing), None, narrowing)
                continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin's fault is this attempt's failure, nothing more
            return PreFilterOutcome(raised(_prefix(plugin), error, plugin=plugin.name))
        skips = status is not None and status.code is Code.SKIP
        if skips:
            skipped.add(plugin.name)
        elif status is not None and status.code is Code.UNSCHEDULABLE:
            recording = None
            rejection = status.with_plugin(plugin.name)
        elif status is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PreFilterOutcome(status.with_plugin(plugin.name))
        elif status is not None and status.code is not Code.SUCCESS:
            return PreFilterOutcome(failure(_prefix(plugin), status, plugin=plugin.name))
        if recording is not None:
            if plugin.pre_filter_is_per_class:
                recording.note(state, plugin.name, skipped=skips)
            else:
                recording.rest.append(plugin)
    if recording is not None and pod_class is not None:
        pod_class.pre_filter = recording
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
    """Tell the plugins that a pod is on a node in thought."""
    return _run_extension(framework, state, pod, added, node, removing=False)


def run_remove_pod(
    framework: Framework, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns
) -> Status | None:
    """Tell the plugins that a pod has left a node in thought."""
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
