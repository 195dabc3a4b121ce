"""Pods that have a node but are not bound: Reserve and Permit plugins hold or reject them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.times import format_duration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.permit import run_permit
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve
from kubesched.framework.waiting_pods import WaitingPods
from kubesched.insight.explain.model import WaitingFor
from kubesched.insight.explain.reasons import HELD_BY_PERMIT
from kubesched.scheduler.algorithm import ScheduleResult
from kubesched.scheduler.scheduling_cycle import SchedulingCycle


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
