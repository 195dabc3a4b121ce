"""What a fresh scheduler would do with the final state: place a pod, find volumes, or preempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Final

from kubesched.api import codec
from kubesched.api.core_v1 import (
    Affinity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
)
from kubesched.api.names import key_of, key_of_manifest
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.api.storage_v1 import CSIDriver, CSINode, StorageClass
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.groups.states import GroupKey, group_of
from kubesched.framework.registry import Registry
from kubesched.insight.state.cluster import Cluster
from kubesched.insight.state.virtual_loop import SimulationStuck
from kubesched.lab.simulation import extenders
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.extenders import CalmExtender, Opinion
from kubesched.lab.simulation.gangs import UNTRUE, condition
from kubesched.lab.simulation.trace import Pending, Violation
from kubesched.lab.simulation.workloads import EXTENDED_RESOURCE
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.decisions import Outcome
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue

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
"""Kinds that a scheduler needs in addition to nodes and pods."""


Untold = Callable[[Pod], bool]
"""Whether kube-scheduler would not have told the pod that it can be placed."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The fresh scheduler's actions."""

    bindings: dict[str, str]
    """Nodes by pod (`namespace/name`)."""
    evicted: list[str]
    promised: list[Any]
    """Volumes and claims that it wrote."""
    scheduled: set[str]
    """Pods that it found nodes for, bound or waiting for their volumes."""
    preemptors: set[str]
    withdrawn: list[str]
    """Pods whose nomination it withdrew."""
    groups: list[PodGroup]
    """With the conditions that it gave them."""

    def in_words(self) -> list[str]:
        return [
            *(f"{key} would be preempted" for key in self.evicted),
            *(f"{key} fits on {node}" for key, node in self.bindings.items()),
            *(f"{type(o).__name__} {o.metadata.name} would be promised" for o in self.promised),
        ]


def what_can_be_placed(
    cluster: SimulatedCluster,
    extender_traits: tuple[str, ...] | None = None,
    untold: Untold = lambda _pod: False,
    gates: FeatureGates = DEFAULT_GATES,
    trial_order: Sequence[str] = (),
) -> Pending | None:
    """A pod that a fresh scheduler would place, find volumes for, or preempt for; or None.

    It uses an extender with these traits, or none if they are None. `trial_order`: waiting members
    of groups, by key.
    """
    if all(pod["spec"].get("nodeName") for pod in cluster.active_pods()):
        return None
    pods = cluster.records()[1]
    by_key = {key_of(pod.metadata): pod for pod in pods}
    answer = _ask(cluster, extender_traits, by_key, gates, trial_order)
    reasons = answer.in_words()
    if _is_late(answer, by_key, untold) or any(
        cluster.was_repelled(by_key[key].metadata.labels or {})
        for key in answer.bindings
        if group_of(by_key[key]) is None  # groups wait for no event
    ):
        return Pending("; ".join(reasons), is_late=True) if reasons else None
    if answer.evicted:
        return Pending("; ".join(reasons), has_victims=True)
    return Pending(reasons[0]) if reasons else _untrue(cluster, answer, pods, untold)


def _untrue(
    cluster: SimulatedCluster, answer: _Answer, pods: Iterable[Pod], untold: Untold
) -> Pending | None:
    """A group's condition that the fresh scheduler would have changed.

    A group that fails is tried again and again, so all schedulers come to say the same.
    """
    for stored in cluster.groups():
        found = (
            group for group in answer.groups if group.metadata.uid == stored["metadata"]["uid"]
        )
        says, would_be = condition(stored), condition(codec.to_json(next(found)))
        if says != would_be:
            text = f"{key_of_manifest(stored)} says {says}, and should say {would_be}"
            key = GroupKey("default", stored["metadata"]["name"])
            is_late = any(untold(pod) for pod in pods if group_of(pod) == key)
            return Pending(text, is_late=True) if is_late else Pending(text, UNTRUE)
    return None


def _ask(
    cluster: SimulatedCluster,
    extender_traits: tuple[str, ...] | None,
    by_key: dict[str, Pod],
    gates: FeatureGates,
    trial_order: Sequence[str],
) -> _Answer:
    with _fresh_scheduler(cluster, extender_traits, gates) as fresh:
        known = {obj for kind in OTHER_KINDS for obj in map(id, _put_all(fresh, cluster, kind))}
        fresh.add(*cluster.records_of(Namespace), *cluster.records()[0])
        if cluster.has_composites:
            fresh.add(*cluster.records_of(CompositePodGroup))
        if cluster.has_groups:
            fresh.add(*cluster.records_of(PodGroup))
        fresh.add(*sorted(by_key.values(), key=lambda pod: not pod.spec.node_name))
        _order_members(fresh, trial_order)
        _settle(fresh)
        return _answer(fresh, known, by_key)


def _order_members(fresh: Cluster, trial_order: Sequence[str]) -> None:
    """Whether a gang fits may depend on the order in which its members are tried.

    # Upstream: members are ordered by attempts, so the order of a gang that failed stays.
    """
    queue = fresh.assembly.scheduler.queue
    if isinstance(queue, GroupSchedulingQueue):
        ranks = {key: rank for rank, key in enumerate(trial_order)}
        for entity in queue.active_groups():
            for infos in entity.members.values():
                infos.sort(key=lambda info: ranks.get(info.pod_info.key, len(ranks)))
                for place, info in enumerate(infos):
                    info.attempts = len(infos) - place


def _answer(fresh: Cluster, known: set[int], by_key: dict[str, Pod]) -> _Answer:
    client, decisions = fresh.client, fresh.decisions()
    # A placement that is undone does not count. An extender that rejects a node and takes no part
    # in preemption makes a preemptor repeat that endlessly, as in kube-scheduler.
    ousted = {key for key in client.deleted if not by_key[key].spec.node_name}
    held_for_ousted = set().union(*(_claims(by_key[key]) for key in ousted))
    found = [it for it in decisions if it.outcome is Outcome.SCHEDULED]
    # Patches do not name the preemptor; a pod already nominated to the same node does not preempt.
    preempting = [it for it in decisions if it.node and it.outcome is not Outcome.SCHEDULED]
    return _Answer(
        bindings={key: node for key, node in client.bindings.items() if key not in ousted},
        evicted=[key for key in client.deleted if key not in ousted],
        promised=[
            obj
            for kind in OTHER_KINDS
            for obj in fresh.objects(kind)
            if id(obj) not in known and _claim(obj) not in held_for_ousted
        ],
        scheduled={f"{it.namespace}/{it.name}" for it in found},
        preemptors={f"{it.namespace}/{it.name}" for it in preempting},
        withdrawn=[
            key
            for key, patch in client.patches
            if patch["status"].get("nominatedNodeName", "") is None
        ],
        groups=fresh.objects(PodGroup),
    )


def _is_late(answer: _Answer, by_key: dict[str, Pod], untold: Untold) -> bool:
    """Whether kube-scheduler may wait for the five-minute flush; see `liveness.LATE_BOUND_S`."""
    return (
        any(by_key[key].status.nominated_node_name for key in answer.withdrawn)
        or any(_may_have_more_against(by_key[key]) for key in answer.preemptors)
        or any(_may_not_be_told(by_key[key], by_key.values(), untold) for key in answer.bindings)
        or any(_claims(by_key[key]) for key in answer.scheduled)
    )


def _may_not_be_told(pod: Pod, pods: Iterable[Pod], untold: Untold) -> bool:
    return bool(
        _likes_its_own_kind(pod)
        or _has_terms_beside(pod, pods)
        or any(term.namespace_selector is not None for term in _all_required_terms(pod))
        or untold(pod)
    )


def _claims(pod: Pod) -> set[str]:
    """Keys of the pod's device and volume claims."""
    claims = [*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ())]
    names = [claim.resource_claim_name for claim in claims]
    sources = [volume.persistent_volume_claim for volume in pod.spec.volumes or ()]
    names += [source.claim_name for source in sources if source is not None]
    resources = [container.resources for container in pod.spec.containers or ()]
    names += [EXTENDED_RESOURCE for it in resources if EXTENDED_RESOURCE in (it.limits or {})]
    return {f"{pod.metadata.namespace}/{name}" for name in names if name}


def _claim(obj: Any) -> str:  # noqa: ANN401  # any of OTHER_KINDS
    """The key of a claim, or of a volume's claim."""
    if isinstance(obj, PersistentVolume):
        owner = obj.spec.claim_ref
        return "" if owner is None else f"{owner.namespace}/{owner.name}"
    return key_of(obj.metadata)


def _may_have_more_against(pod: Pod) -> bool:
    """Whether several filters that preemption can satisfy apply to the pod."""
    spec = pod.spec
    has_ports = any(container.ports for container in spec.containers or ())
    return bool(has_ports or spec.volumes or spec.affinity or spec.topology_spread_constraints)


def _likes_its_own_kind(pod: Pod) -> bool:
    terms = _required_terms((pod.spec.affinity or Affinity()).pod_affinity)
    return bool(terms) and all(_means(term, pod) for term in terms)


def _has_terms_beside(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether the pod has its own terms, so that it is not told about those of others."""
    return bool(_all_required_terms(pod)) and any(
        _means(term, pod)
        for other in others
        if other.spec.node_name
        for term in _required_terms((other.spec.affinity or Affinity()).pod_anti_affinity)
    )


def _all_required_terms(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity or Affinity()
    sides = (affinity.pod_affinity, affinity.pod_anti_affinity)
    return [term for side in sides for term in _required_terms(side)]


def _required_terms(side: PodAffinity | PodAntiAffinity | None) -> Sequence[PodAffinityTerm]:
    return (side and side.required_during_scheduling_ignored_during_execution) or ()


def _means(term: PodAffinityTerm, pod: Pod) -> bool:
    """Whether the term selects the pod; simulated terms use only labels."""
    wanted = (term.label_selector and term.label_selector.match_labels) or {}
    return wanted.items() <= (pod.metadata.labels or {}).items()


def _fresh_scheduler(
    cluster: SimulatedCluster, extender_traits: tuple[str, ...] | None, gates: FeatureGates
) -> Cluster:
    transport = None
    if extender_traits is not None:

        async def bind(namespace: str, name: str, node_name: str) -> None:
            await fresh.client.bind_pod(fresh.pod(name, namespace), node_name)

        transport = CalmExtender(Opinion(cluster, Random(1)), bind)
    fresh = Cluster(
        config=_config_with(extender_traits, gates),
        gates=gates,
        extender_transport=transport,
        registry=_shared_registry(),
        measures_plugins=False,
    )
    return fresh


@lru_cache(maxsize=64)
def _config_with(
    extender_traits: tuple[str, ...] | None, gates: FeatureGates
) -> KubeSchedulerConfiguration:
    asked = "" if extender_traits is None else extenders.config(extender_traits)
    return load((_CONFIG + asked).encode(), gates=gates)


@lru_cache(maxsize=1)
def _shared_registry() -> Registry:
    """Cached: loading and checking plugins costs as much as the fresh scheduler's decisions."""
    return in_tree_registry()


def _settle(fresh: Cluster) -> None:
    """Let the scheduler decide about every pod. No time passes: extenders answer at once."""
    queue = fresh.assembly.scheduler.queue
    try:
        fresh.settle()
    except SimulationStuck as error:
        raise Violation("the world goes on", f"a fresh scheduler: {error}") from error
    if queue.pods_in_active_q() or queue.in_flight_uids():
        raise Violation("the world goes on", "a fresh scheduler does not come to rest")


def _put_all(fresh: Cluster, cluster: SimulatedCluster, kind: type[Any]) -> list[Any]:
    objects = cluster.records_of(kind)
    for obj in objects:
        fresh.listers.of(kind).put(obj)
    return objects
