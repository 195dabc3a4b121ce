"""After the faults stop, every pod that can be placed must be placed within a bound of virtual time.

Whether a pod can be placed is decided by a fresh scheduler that is given only the final state.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kubesched.api.core_v1 import (
    Pod,
)
from kubesched.insight.state.virtual_loop import VirtualLoop
from kubesched.lab.simulation.checkers import (
    MAX_WAIT_S,
    Checkers,
)
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.given_back import was_not_told
from kubesched.lab.simulation.in_vain import EvictionsInVain
from kubesched.lab.simulation.placeable import Late, WithVictims, what_can_be_placed
from kubesched.lab.simulation.processes import Incarnation, Processes
from kubesched.lab.simulation.trace import Trace
from kubesched.lab.simulation.turned_down import TurnedDown
from kubesched.lab.simulation.violation import Violation

BOUND_S = 180.0
"""Longer than a watch reconnect (60 s), a lease takeover and a pod's backoff together; shorter than
the five-minute flush of unschedulable pods, which would hide that a pod was forgotten.
"""
LATE_BOUND_S = BOUND_S + MAX_WAIT_S
"""Where kube-scheduler waits for those five minutes, too. Filters stop at the first that rejects a
node, and events are held against the rejectors alone: a port is taken, so the pod is told when it
is free; that on top of that there was no room, a volume was missing, affinity was not met or a
plugin broke shows only while victims are looked for, and when that changes the scheduler hears
nothing. The same preemptors may not hear that another's victim has left their nominated node;
before that they look for none of their own. Nor is a pod with affinity to its own kind told that
the last one of the kind has gone, whereupon it may go anywhere; nor a pod with terms of its own
that a node has left the topology of others' terms. A nomination that the watch brings after it was
withdrawn holds its place until its pod is tried again. And a volume that was assumed for one pod
and given back unwritten is no event for another that found none in the meantime, nor that a plugin
would not reject a pod at Permit any more.
"""
POLL_S = 3.0


class Leftover(str):
    """A claim that is still held for a pod which is gone."""

    __slots__ = ()


class Discrepancy(str):
    """A difference between a scheduler's cache and the API server."""

    __slots__ = ()


async def wait_until_settled(
    loop: VirtualLoop,
    cluster: SimulatedCluster,
    processes: Processes,
    checkers: Checkers,
    trace: Trace,
    *,
    extender_traits: tuple[str, ...] | None = None,
    had_broken_answers: bool = False,
    in_vain: EvictionsInVain | None = None,
    turned_down: TurnedDown | None = None,
) -> None:
    """Return once nothing more can happen; `Violation` if that takes too long.

    `had_broken_answers`: a plugin or extender may have prevented preemption, and would not any
    more. `in_vain`: evictions that only make room for the next victim, from the last of which the
    bound counts. `turned_down`: pods that a plugin rejected, and would not any more.
    """
    healed_at, bound_s = loop.time(), BOUND_S
    asked_at: int | None = None
    placeable: str | None = None
    while True:
        await asyncio.sleep(POLL_S)
        pending = _what_is_pending(cluster, processes, checkers)
        if pending is None:
            if asked_at != cluster.store.revision:  # else the answer would be the same
                asked_at = cluster.store.revision
                untold = partial(_was_not_told, processes, turned_down)
                placeable = what_can_be_placed(cluster, extender_traits, untold)
            if placeable is None and cluster.store.revision == asked_at:
                break
            pending = placeable
        if isinstance(pending, Late) or (had_broken_answers and isinstance(pending, WithVictims)):
            bound_s = LATE_BOUND_S
        since = healed_at if in_vain is None else max(healed_at, in_vain.last_at)
        if loop.time() > since + bound_s:
            detail = f"after {bound_s:g} s: {pending or 'writes go on without end'}"
            if isinstance(pending, Leftover):
                raise Violation("no claim is left reserved for a pod that is gone", detail)
            if isinstance(pending, Discrepancy):
                raise Violation("the cache equals the store when all is quiet", detail)
            raise Violation("all that can be placed is placed once faults stop", detail)
    for incarnation in processes.alive():
        if incarnation.is_working:
            checkers.check_fully(incarnation)
    cluster.store.check_invariants()
    trace.add("settled", f"revision {cluster.store.revision}")


def _working(processes: Processes) -> list[Incarnation]:
    return [incarnation for incarnation in processes.alive() if incarnation.process.is_scheduling]


def _was_not_told(
    processes: Processes,
    turned_down: TurnedDown | None,
    pod: Pod,
    obj: Any,  # noqa: ANN401  # any of OTHER_KINDS
) -> bool:
    assemblies = [incarnation.process.assembly for incarnation in _working(processes)]
    if obj is not None:
        return any(was_not_told(assembly, pod, obj) for assembly in assemblies)
    return turned_down is not None and any(
        turned_down.was_not_told(assembly, pod) for assembly in assemblies
    )


def _what_is_pending(
    cluster: SimulatedCluster, processes: Processes, checkers: Checkers
) -> str | None:
    working = _working(processes)
    if not working:
        return "no process schedules"
    if any(pod["metadata"].get("deletionTimestamp") for pod in cluster.pods()):
        return "pods are being deleted"
    if any(
        pod["spec"].get("nodeName") and not cluster.has_node(pod["spec"]["nodeName"])
        for pod in cluster.pods()
    ):
        return "pods of removed nodes are still there"
    if checkers.devices is not None and (held := checkers.devices.leftover()) is not None:
        return Leftover(held)
    for incarnation in working:
        unfinished = _unfinished(incarnation)
        if unfinished is not None:
            return f"{incarnation.name}: {unfinished}"
        difference = checkers.difference_from_store(incarnation)
        if difference is not None:
            return Discrepancy(f"{incarnation.name}: {difference}")
    return None


def _unfinished(incarnation: Incarnation) -> str | None:
    scheduler = incarnation.process.assembly.scheduler
    counts = {
        "assumed": scheduler.cache.assumed_count,
        "in flight": len(scheduler.queue.in_flight_uids()),
        "active": len(scheduler.queue.pods_in_active_q()),
        "waiting on Permit": len(incarnation.process.assembly.waiting_pods),
    }
    return next((f"{count} pods {what}" for what, count in counts.items() if count), None)
