"""What a pod waits for other than room, and which events requeue it.

A pod may wait for objects, outside the queue, or with a node: Reserve and Permit plugins hold or
reject it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import structs

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.api.times import format_duration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, ClusterEvent
from kubesched.framework.handle import Listers
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.permit import run_permit
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve
from kubesched.framework.waiting_pods import WaitingPods
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.model import WaitingFor, WokenBy
from kubesched.insight.explain.reasons import (
    BEING_DELETED,
    HELD_BY_PERMIT,
    NOT_ENQUEUED,
    OTHER_SCHEDULER,
    SCHEDULING_GATED,
    code_of_reason,
)
from kubesched.insight.explain.volumes import nearest
from kubesched.plugins.helper.volumes.claims import claim_uses, is_fully_bound
from kubesched.scheduler.algorithm import ScheduleResult
from kubesched.scheduler.queue.hints import HintMap
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.queue.unschedulable import GATED
from kubesched.scheduler.scheduling_cycle import SchedulingCycle

_QUOTED: Final = re.compile(r'"([^"]+)"')
_UNBOUND_CLAIMS: Final = "UnboundClaims"

_WORDS: Final = {
    "Node/Add": "a node is added",
    "Node/UpdateNodeAllocatable": "a node's size changes",
    "Node/UpdateNodeLabel": "a node's labels change",
    "Node/UpdateNodeTaint": "a node's taints change",
    "Node/UpdateNodeDeclaredFeature": "a node's features change",
    "AssignedPod/Add": "a pod is placed",
    "AssignedPod/Delete": "a pod leaves",
    "AssignedPod/UpdatePodLabel": "a pod's labels change",
    "AssignedPod/UpdatePodScaleDown": "a pod is resized down",
    "TargetPod/Update": "the pod changes",
    "TargetPod/UpdatePodLabel": "its labels change",
    "TargetPod/UpdatePodScaleDown": "it is resized down",
    "TargetPod/UpdatePodToleration": "it gets a toleration",
    "TargetPod/UpdatePodGeneratedResourceClaim": "its claims are generated",
    "storage.k8s.io/VolumeAttachment/Delete": "a volume is detached",
    "*": "anything changes",
}
_NOUNS: Final = {
    "AssignedPod": "pod",
    "UnscheduledPod": "pending pod",
    "PersistentVolumeClaim": "volume claim",
    "PersistentVolume": "volume",
    "CSIStorageCapacity": "storage capacity",
}
_VERBS: Final = {"Add": "is created", "Delete": "is deleted"}
_SINGLE_ACTIONS: Final = [action for action in Action if action.bit_count() == 1]


def another_scheduler(pod: Pod, schedulers: Mapping[str, int]) -> WaitingFor:
    """`schedulers` are those that exist, with how many pods they have placed."""
    name = pod.spec.scheduler_name
    if schedulers.get(name):
        what = f"the scheduler {name} is to place it, as it did with {schedulers[name]} other pods"
    else:
        what = f"the scheduler {name} is to place it, and nothing tells that there is one"
        near = nearest(name, schedulers, cutoff=0.0)
        what += f"; the nearest name that exists is {near}" if near else ""
    return WaitingFor(code=OTHER_SCHEDULER.code, plugin="", what=what, names=[name])


def deletion() -> WaitingFor:
    return WaitingFor(code=BEING_DELETED.code, plugin="", what="it is being deleted", names=[])


def before_the_queue(
    framework: Framework, queue: SchedulingQueue, pod: Pod
) -> Iterator[WaitingFor]:
    """PreEnqueue plugins that keep the pod out of the queue.

    None if the pod waits elsewhere in the queue. Plugins run again to obtain their messages.
    """
    place = queue.place_of(pod.metadata.namespace, pod.metadata.name)
    if place not in (None, GATED):
        return
    for plugin in framework.pre_enqueue:
        status = plugin.pre_enqueue(pod)
        if status is None or status.is_success:
            continue
        code = code_of_reason(status.message, status)
        if not code.is_waiting:
            code = NOT_ENQUEUED
        gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
        yield WaitingFor(
            code=code.code,
            plugin=plugin.name,
            what=f"scheduling gates {', '.join(gates)} are set"
            if code is SCHEDULING_GATED
            else status.message,
            names=gates if code is SCHEDULING_GATED else _names_in(status.message),
        )


def objects(evaluation: Evaluation, listers: Listers) -> Iterator[WaitingFor]:
    """Objects that PreFilter plugins report as missing or not ready."""
    told: set[str] = set()
    for status in evaluation.pod_statuses:
        for reason in status.all_reasons:
            code = code_of_reason(reason, status)
            if not code.is_waiting or reason in told:
                continue
            told.add(reason)  # several plugins report the same claim
            names = _names_in(reason)
            if code.code == _UNBOUND_CLAIMS:
                names = _unbound_claims(evaluation.pod.pod, listers)
            yield WaitingFor(code=code.code, plugin=status.plugin, what=reason, names=names)


def _names_in(text: str) -> list[str]:
    return list(dict.fromkeys(_QUOTED.findall(text)))


def _unbound_claims(pod: Pod, listers: Listers) -> list[str]:
    claims = listers.of(PersistentVolumeClaim)
    namespace = pod.metadata.namespace
    unbound = []
    for use in claim_uses(pod):
        claim: PersistentVolumeClaim | None = claims.get(namespace, use.name)
        if claim is not None and not is_fully_bound(claim):
            unbound.append(use.name)
    return list(dict.fromkeys(unbound))


# -- events ----------------------------------------------------------------------------------------


def woken_by(hints: HintMap, plugins: Iterable[str]) -> list[WokenBy]:
    """The events that the rejecting plugins registered for."""
    found = []
    for plugin in sorted(plugins):
        names = dict.fromkeys(name for event in hints.events_of(plugin) for name in _names(event))
        words = dict.fromkeys(map(in_words, names))
        found.append(WokenBy(plugin=plugin, events=list(names), words=list(words)))
    return found


def in_words(event: str) -> str:
    """An event's name in words: `resource.k8s.io/ResourceSlice/Add` as a slice being created."""
    if event in _WORDS:
        return _WORDS[event]
    resource, _, action = event.rpartition("/")
    kind = resource.rpartition("/")[2].partition(".")[0]  # `plural.version.group` of other kinds
    noun = _NOUNS.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind)
    noun = noun if noun.startswith("CSI") else noun.lower()
    return f"a {noun} {_VERBS.get(action, 'changes')}"


def _names(event: ClusterEvent) -> list[str]:
    """One name per action: `Node/Add`, `Node/UpdateNodeTaint`."""
    if event.is_wildcard:
        return ["*"]
    actions = [action for action in _SINGLE_ACTIONS if action in event.action]
    if Action.UPDATE in event.action:
        actions = [*(action for action in actions if action not in Action.UPDATE), Action.UPDATE]
    return [f"{event.resource}/{ClusterEvent('', action).label}" for action in actions]


def held_now(waiting_pods: WaitingPods, pod: Pod) -> WaitingFor | None:
    """What the pod waits for in a running scheduler."""
    waiting = waiting_pods.get(pod.metadata.uid)
    if waiting is None:
        return None
    node = waiting.pod.spec.node_name
    return _held(f"Permit holds it, with room on {node}", ", ".join(waiting.pending_plugins()))


def held_at_permit(
    framework: Framework, cycle: SchedulingCycle, pod: PodInfo
) -> Iterator[WaitingFor]:
    """What Reserve and Permit plugins say once a node is found; they are asked and undone."""
    if not framework.permit:
        return
    state = CycleState()
    decided = cycle.decide(framework, state, pod)
    if not isinstance(decided, ScheduleResult):
        return
    node = decided.node_name
    assumed = structs.replace(pod.pod, spec=structs.replace(pod.pod.spec, node_name=node))
    try:
        refused = run_reserve(framework, state, assumed, node)
        if refused is not None:
            yield _held(f"Reserve on {node} fails: {refused.message}", refused.plugin)
            return
        permit = run_permit(framework, state, assumed, node)
        if permit.timeouts_s:
            limits = ", ".join(format_duration(limit) for limit in permit.timeouts_s.values())
            what = f"Permit would hold it, with room on {node}, for at most {limits}"
            yield _held(what, ", ".join(permit.timeouts_s))
        elif permit.status is not None:
            said = f"Permit rejects it on {node}: {permit.status.message}"
            yield _held(said, permit.status.plugin)
    finally:
        run_unreserve(framework, state, assumed, node)


def _held(what: str, plugin: str) -> WaitingFor:
    return WaitingFor(code=HELD_BY_PERMIT.code, plugin=plugin, what=what, names=[])
