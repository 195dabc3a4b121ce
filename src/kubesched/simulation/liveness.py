"""After the faults stop, every pod that can be placed must be placed within a bound of virtual time.

Whether a pod can be placed is decided by a fresh scheduler that is given only the final state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any, Final

from kubesched.api.core_v1 import (
    Affinity,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
)
from kubesched.api.names import key_of
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.storage_v1 import CSIDriver, CSINode, StorageClass
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.decisions import Outcome
from kubesched.simulation import extenders
from kubesched.simulation.checkers import (
    MAX_WAIT_S,
    Checkers,
)
from kubesched.simulation.cluster import SimulatedCluster
from kubesched.simulation.extenders import CalmExtender, Opinion
from kubesched.simulation.given_back import was_not_told
from kubesched.simulation.in_vain import EvictionsInVain
from kubesched.simulation.processes import Incarnation, Processes
from kubesched.simulation.trace import Trace
from kubesched.simulation.turned_down import TurnedDown
from kubesched.simulation.violation import Violation
from kubesched.simulation.virtual_loop import VirtualLoop
from kubesched.testing.harness import SchedulerHarness

BOUND_S = 180.0
"""Longer than a watch reconnect (60 s), a lease takeover and a pod's backoff together; shorter than the five-minute
flush of unschedulable pods, which would hide that a pod was forgotten."""
LATE_BOUND_S = BOUND_S + MAX_WAIT_S
"""Where kube-scheduler waits for those five minutes, too. Filters stop at the first that rejects a node, and events are
held against the rejectors alone: a port is taken, so the pod is told when it is free; that on top of that there was no
room, a volume was missing, affinity was not met or a plugin broke shows only while victims are looked for, and when
that changes the scheduler hears nothing. The same preemptors may not hear that another's victim has left their nominated
node; before that they look for none of their own. Nor is a pod with affinity to its own kind told that the last one of the
kind has gone, whereupon it may go anywhere; nor a pod with terms of its own that a node has left the topology of others'
terms. A nomination that the watch brings after it was withdrawn holds its place until its pod is tried again. And a volume
that was assumed for one pod and given back unwritten is no event for another that found none in the meantime, nor that a
plugin would not reject a pod at Permit any more."""
POLL_S = 3.0
MAX_TURNS = 10_000
_CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OTHER_KINDS: Final[tuple[type[Any], ...]] = (
    StorageClass,
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
"""What a scheduler has to know besides nodes and pods."""


class Late(str):
    """A change that no event may have reported, see `LATE_BOUND_S`."""

    __slots__ = ()


class WithVictims(str):
    """A pod that could be placed by preemption."""

    __slots__ = ()


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

    `had_broken_answers`: a plugin or extender may have prevented preemption, and would not any more. `in_vain`: evictions that only make
    room for the next victim, from the last of which the bound counts. `turned_down`: pods that a plugin rejected, and would not any more.
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
                placeable = await what_can_be_placed(
                    loop, cluster, extender_traits, partial(_was_not_told, processes, turned_down)
                )
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


async def what_can_be_placed(
    loop: VirtualLoop,
    cluster: SimulatedCluster,
    extender_traits: tuple[str, ...] | None = None,
    untold: Callable[[Pod, Any], bool] = lambda _pod, _obj: False,
) -> str | None:
    """A pod that a fresh scheduler would place, find volumes for, or make room for; None if there is none.

    It asks an extender with these traits; with None there is no extender. `untold`: whether kube-scheduler would not
    have told the pod, either, that it can have this volume or claim; with None, that it can be placed.
    """
    if all(pod["spec"].get("nodeName") for pod in cluster.active_pods()):
        return None
    async with _fresh_scheduler(cluster, extender_traits) as fresh:
        before = {obj for kind in OTHER_KINDS for obj in map(id, _put_all(fresh, cluster, kind))}
        nodes, pods = cluster.records()
        for node in nodes:
            fresh.add_node(node)
        for pod in sorted(pods, key=lambda pod: not pod.spec.node_name):
            fresh.add_pod(pod)
        await _settle(loop, fresh)
        by_key = {key_of(pod.metadata): pod for pod in pods}
        # A place that is taken away again is none. An extender that rejects a node and takes no part in preemption makes a
        # preemptor do so without end, as in kube-scheduler.
        ousted = {key for key in fresh.client.deleted if not by_key[key].spec.node_name}
        held_for_ousted = set().union(*(_claims(by_key[key]) for key in ousted))
        bindings = {key: node for key, node in fresh.client.bindings.items() if key not in ousted}
        placed = [f"{key} fits on {node}" for key, node in bindings.items()]
        made_room = [
            f"{key} would be preempted" for key in fresh.client.deleted if key not in ousted
        ]
        promised = [
            obj
            for kind in OTHER_KINDS
            for obj in fresh.listers.of(kind).list()
            if id(obj) not in before and _claim(obj) not in held_for_ousted
        ]
        patches = fresh.client.patches
        scheduled, preemptors = _scheduled(fresh), _preemptors(fresh)
    withdraws = any(
        patch["status"].get("nominatedNodeName", "") is None
        and by_key[key].status.nominated_node_name
        for key, patch in patches
    )
    promises = [f"{type(obj).__name__} {obj.metadata.name} would be promised" for obj in promised]
    reasons = made_room + placed + promises
    is_late = (
        withdraws
        or any(_may_have_more_against(by_key[key]) for key in preemptors)
        or any(
            _likes_its_own_kind(pod)
            or _has_terms_beside(pod, pods)
            or pod.spec.resource_claims
            or untold(pod, None)
            for pod in map(by_key.__getitem__, bindings)
        )
        or any(
            _claim(obj) in _claims(pod) and untold(pod, obj)
            for obj in promised
            for pod in map(by_key.__getitem__, scheduled)
        )
    )
    if is_late:
        return Late("; ".join(reasons)) if reasons else None
    if made_room:
        return WithVictims("; ".join(reasons))
    return reasons[0] if reasons else None


def _claims(pod: Pod) -> set[str]:
    """Keys of the pod's claims of devices and volumes."""
    claims = [*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ())]
    names = [claim.resource_claim_name for claim in claims]
    sources = [volume.persistent_volume_claim for volume in pod.spec.volumes or ()]
    names += [source.claim_name for source in sources if source is not None]
    return {f"{pod.metadata.namespace}/{name}" for name in names if name}


def _claim(obj: Any) -> str:  # noqa: ANN401  # any of OTHER_KINDS
    """The key of a claim, or of the claim that a volume is promised to."""
    if isinstance(obj, PersistentVolume):
        owner = obj.spec.claim_ref
        return "" if owner is None else f"{owner.namespace}/{owner.name}"
    return key_of(obj.metadata)


def _scheduled(fresh: SchedulerHarness) -> set[str]:
    """Keys of the pods it found nodes for, bound or waiting for their volumes."""
    return {
        f"{decision.namespace}/{decision.name}"
        for decision in fresh.assembly.scheduler.decisions.newest()
        if decision.outcome is Outcome.SCHEDULED
    }


def _preemptors(fresh: SchedulerHarness) -> set[str]:
    """Keys of the pods it made room for. Patches do not tell: one nominated to the same node before needs none."""
    return {
        f"{decision.namespace}/{decision.name}"
        for decision in fresh.assembly.scheduler.decisions.newest()
        if decision.node and decision.outcome is not Outcome.SCHEDULED
    }


def _may_have_more_against(pod: Pod) -> bool:
    """Whether more than one filter has something to look at, of those that victims can help."""
    spec = pod.spec
    has_ports = any(container.ports for container in spec.containers or ())
    return bool(has_ports or spec.volumes or spec.affinity or spec.topology_spread_constraints)


def _likes_its_own_kind(pod: Pod) -> bool:
    terms = _required_terms((pod.spec.affinity or Affinity()).pod_affinity)
    return bool(terms) and all(_means(term, pod) for term in terms)


def _has_terms_beside(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether the pod has terms of its own, so that it is not told of those that keep it away from others."""
    affinity = pod.spec.affinity or Affinity()
    own = (affinity.pod_affinity, affinity.pod_anti_affinity)
    return any(map(_required_terms, own)) and any(
        _means(term, pod)
        for other in others
        if other.spec.node_name
        for term in _required_terms((other.spec.affinity or Affinity()).pod_anti_affinity)
    )


def _required_terms(side: PodAffinity | PodAntiAffinity | None) -> Sequence[PodAffinityTerm]:
    return (side and side.required_during_scheduling_ignored_during_execution) or ()


def _means(term: PodAffinityTerm, pod: Pod) -> bool:
    """Simulated terms select by labels alone."""
    wanted = (term.label_selector and term.label_selector.match_labels) or {}
    return wanted.items() <= (pod.metadata.labels or {}).items()


def _fresh_scheduler(
    cluster: SimulatedCluster, extender_traits: tuple[str, ...] | None
) -> SchedulerHarness:
    config = _config_with(extender_traits)
    registry = _shared_registry()
    if extender_traits is None:
        return SchedulerHarness(config, registry=registry, measures_plugins=False)

    async def bind(namespace: str, name: str, node_name: str) -> None:
        await fresh.client.bind_pod(fresh.pod(name, namespace), node_name)

    fresh = SchedulerHarness(
        config,
        extender_transport=CalmExtender(Opinion(cluster, Random(1)), bind),
        registry=registry,
        measures_plugins=False,
    )
    return fresh


@lru_cache(maxsize=64)
def _config_with(extender_traits: tuple[str, ...] | None) -> KubeSchedulerConfiguration:
    asked = "" if extender_traits is None else extenders.config(extender_traits)
    return load((_CONFIG + asked).encode(), gates=DEFAULT_GATES)


@lru_cache(maxsize=1)
def _shared_registry() -> Registry:
    """To load, check and expand plugins anew takes as long as the fresh scheduler's decisions."""
    return in_tree_registry()


async def _settle(loop: VirtualLoop, fresh: SchedulerHarness) -> None:
    """Let the scheduler decide about every pod. No time passes: extenders answer at once."""
    for _ in range(MAX_TURNS):
        await asyncio.sleep(0)
        if loop.is_idle:
            break
    scheduler = fresh.assembly.scheduler
    if scheduler.queue.pods_in_active_q() or scheduler.queue.in_flight_uids():
        raise Violation("the world goes on", "a fresh scheduler does not come to rest")
    scheduler.check_invariants()


def _put_all(fresh: SchedulerHarness, cluster: SimulatedCluster, kind: type[Any]) -> list[Any]:
    objects = cluster.records_of(kind)
    for obj in objects:
        fresh.listers.of(kind).put(obj)
    return objects
