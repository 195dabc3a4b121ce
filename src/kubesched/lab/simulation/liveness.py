"""After the faults stop, every placeable pod must be placed within a bound of virtual time.

A fresh scheduler that gets only the final state decides whether a pod can be placed.
"""

from __future__ import annotations

import asyncio
from functools import partial

from kubesched.api.core_v1 import Pod
from kubesched.framework.engine import is_idle
from kubesched.insight.state.virtual_loop import VirtualLoop
from kubesched.lab.simulation.checkers import MAX_WAIT_S, Checkers
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.gangs import stays_gated
from kubesched.lab.simulation.placeable import what_can_be_placed
from kubesched.lab.simulation.plugins import TROUBLEMAKER
from kubesched.lab.simulation.processes import Incarnation, Processes
from kubesched.lab.simulation.trace import Pending, Trace, Violation
from kubesched.plugins.gang_scheduling import GangScheduling
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue

BOUND_S = 180.0
"""Longer than a watch reconnect (60 s), a lease takeover and a pod's backoff together.

Shorter than the five-minute flush of unschedulable pods, which would hide a forgotten pod.
"""
LATE_BOUND_S = BOUND_S + MAX_WAIT_S
"""Bound for cases in which kube-scheduler also waits for the five-minute flush.

- Filters stop at the first rejection, and only the rejecting plugins' events wake a pod. If a port
  is taken, a second obstacle (resources, volume, affinity, a broken plugin) only shows while
  preemption looks for victims, and no event reports its removal. Such preemptors may also miss that
  another's victim has left their nominated node; before that they look for no victims themselves.
- A pod with affinity to its own kind is not told that the last pod of that kind has gone, after
  which it may go anywhere. A pod with its own terms is not told that a node has left the topology
  of others' terms.
- A changed namespace is no event: neither for terms of a pod that select namespaces, nor for the
  anti-affinity of others.
- A nomination that the watch shows after its withdrawal stays until its pod is tried again.
- A volume or device that was assumed for one pod and released unwritten is no event for another
  pod. Neither is a plugin that would no longer reject a pod at Permit.
"""
POLL_S = 3.0

OWN_TASKS, OWN_TIMERS = 18, 4
"""Of a process that leads, beside those of its informers."""
PER_INFORMER = 3
"""Tasks: the informer, its reflector and the reflector's check. Timers: two, and the watch's own,
which stands for its connection.
"""


async def wait_until_settled(
    loop: VirtualLoop,
    cluster: SimulatedCluster,
    processes: Processes,
    checkers: Checkers,
    trace: Trace,
    *,
    extender_traits: tuple[str, ...] | None = None,
    had_broken_answers: bool = False,
) -> None:
    """Return once nothing more can happen; raises `Violation` if that takes too long.

    The bound starts again with every pod that is placed or evicted: an extender without a preempt
    verb may reject preemptors on one node after the other that was cleared for them.
    `had_broken_answers`: a plugin or extender may have prevented preemption, and no longer does.
    """
    since, bound_s = loop.time(), BOUND_S
    placed = _placed(cluster)
    asked_at: int | None = None
    placeable: Pending | None = None
    while True:
        await asyncio.sleep(POLL_S)
        if (now_placed := _placed(cluster)) != placed:
            placed, since = now_placed, loop.time()
        pending = _what_is_pending(cluster, processes, checkers)
        if pending is None:
            if asked_at != cluster.store.revision:  # otherwise the answer is the same
                asked_at = cluster.store.revision
                untold = partial(_was_not_told, processes)
                order = [key for it in _working(processes) for key in _trial_order(it)]
                placeable = what_can_be_placed(
                    cluster, extender_traits, untold, processes.gates, order
                )
                if placeable is None and checkers.groups is not None:
                    placeable = checkers.groups.untrue_condition()
            pending = placeable or _first_taken(loop, processes)
            if pending is None and cluster.store.revision == asked_at:
                break
        if pending is None:
            pending = Pending("writes go on without end")
        if pending.is_late or (had_broken_answers and pending.has_victims):
            bound_s = LATE_BOUND_S
        if loop.time() > since + bound_s:
            raise Violation(pending.promise, f"after {bound_s:g} s: {pending.what}")
    for incarnation in processes.alive():
        if incarnation.is_working:
            checkers.check_fully(incarnation)
    cluster.store.check_invariants()
    trace.add("settled", f"revision {cluster.store.revision}")


def _trial_order(incarnation: Incarnation) -> list[str]:
    """Keys of waiting members, of each group in the order in which they are tried."""
    queue = incarnation.process.assembly.scheduler.queue
    entities = queue._entities() if isinstance(queue, GroupSchedulingQueue) else ()
    return [info.pod_info.key for entity in entities for info in entity]


def _working(processes: Processes) -> list[Incarnation]:
    return [incarnation for incarnation in processes.alive() if incarnation.process.is_scheduling]


def _first_taken(loop: VirtualLoop, processes: Processes) -> Pending | None:
    return next(filter(None, (_taken(loop, each) for each in _working(processes))), None)


def _taken(loop: VirtualLoop, incarnation: Incarnation) -> Pending | None:
    """What it should have given back by now; None if there is nothing."""
    process = incarnation.process
    assembly, scheduler = process.assembly, process.assembly.scheduler
    framework = next(iter(assembly.frameworks.values()))
    in_pre_bind = framework.handle.pods_in_pre_bind
    of_informers = PER_INFORMER * len(process.informers.started())
    tasks, timers = loop.held_by(incarnation.name)
    counts = {
        "binding slots": scheduler.binding.slots.taken,
        "bindings": scheduler.bindings_under_way + scheduler.binding.waiting_count,
        "evictions": len(scheduler.background),
        "status writes": len(scheduler.status_writer),
        "parked events": len(scheduler.event_gate),
        "preemptors of pods on Permit": len(assembly.waiting_pods.preemptors),
        "pods in PreBind": len(in_pre_bind or ()),
        "busy plugins": sum(not is_idle(plugin) for plugin in framework.plugins),
        "nominations of pods that do not wait": _stale_nominations(incarnation),
        "tasks": max(tasks - OWN_TASKS - of_informers, 0),
        "timers": max(timers - OWN_TIMERS - of_informers, 0),
    }
    taken = next((f"{count} {what}" for what, count in counts.items() if count), None)
    return None if taken is None else Pending(taken, "what a scheduler takes comes back")


def _stale_nominations(incarnation: Incarnation) -> int:
    waiting = {pod.metadata.uid for pod in incarnation.pods.list() if not pod.spec.node_name}
    nominator = incarnation.process.assembly.scheduler.queue.nominator
    return sum(pod.uid not in waiting for pods in nominator.references().values() for pod in pods)


def _placed(cluster: SimulatedCluster) -> set[tuple[str, str]]:
    pods = cluster.active_pods()
    return {(pod["metadata"]["uid"], pod["spec"].get("nodeName", "")) for pod in pods}


def _was_not_told(processes: Processes, pod: Pod) -> bool:
    """Whether no event says that the pod's group, or a plugin, would let it pass by now."""
    for incarnation in _working(processes):
        assembly = incarnation.process.assembly
        waiting = assembly.scheduler.queue.get_pod(pod.metadata.namespace, pod.metadata.name)
        is_rejected = waiting is not None and waiting.rejector_plugins == {TROUBLEMAKER}
        if is_rejected or stays_gated(assembly, pod):
            return True
    return False


def _what_is_pending(
    cluster: SimulatedCluster, processes: Processes, checkers: Checkers
) -> Pending | None:
    working = _working(processes)
    if not working:
        return Pending("no process schedules")
    if any(pod["metadata"].get("deletionTimestamp") for pod in cluster.pods()):
        return Pending("pods are being deleted")
    if any(
        pod["spec"].get("nodeName") and not cluster.has_node(pod["spec"]["nodeName"])
        for pod in cluster.pods()
    ):
        return Pending("pods of removed nodes are still there")
    if checkers.devices is not None and (held := checkers.devices.leftover()) is not None:
        return Pending(held, "no claim is left reserved for a pod that is gone")
    for incarnation in working:
        unfinished = _unfinished(incarnation)
        if unfinished is not None:
            return unfinished._replace(what=f"{incarnation.name}: {unfinished.what}")
        difference = checkers.difference_from_store(incarnation)
        if difference is not None:
            what = f"{incarnation.name}: {difference}"
            return Pending(what, "the cache equals the store when all is quiet")
    return None


def _unfinished(incarnation: Incarnation) -> Pending | None:
    scheduler = incarnation.process.assembly.scheduler
    counts = {
        "assumed": scheduler.cache.assumed_count,
        "in flight": len(scheduler.queue.in_flight_uids()),
        "active": len(scheduler.queue.pods_in_active_q()),
        "waiting on Permit": len(incarnation.process.assembly.waiting_pods),
    }
    unfinished = next((f"{count} pods {what}" for what, count in counts.items() if count), None)
    if unfinished is None:
        return None
    waits_for_gang = any(
        GangScheduling.name in waiting.pending_plugins()
        for waiting in incarnation.process.assembly.waiting_pods
    )
    # Late as upstream: until Permit's five minutes are over.
    return Pending(unfinished, is_late=waits_for_gang)
