"""Kinds that an answer depends on and that its source does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubesched.api.core_v1 import Namespace, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.api.storage_v1 import CSINode, StorageClass
from kubesched.framework.groups.states import group_of
from kubesched.insight.explain.model import Missing
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.plugins.helper.volumes.claims import claim_uses


def missing_for(pod: Pod, state: ClusterState, *, evicts: bool) -> Missing | None:
    """What the answer about a pending pod lacks; None if the source has all that it needs."""
    needed = [kind_of(record).resource for record in _needed(pod, state, evicts=evicts)]
    names = list(dict.fromkeys(resource for resource in needed if resource in state.missing))
    if not names:
        return None
    kinds = ", ".join(name.partition(".")[0] for name in names)
    if any(state.missing[name] for name in names):
        text = f"your account may not list {kinds}, and this may be wrong without them"
        asked = [*state.resource_versions, *state.missing]  # a dump is read instead of the cluster
    else:
        text = f"{state.source} holds no {kinds}; if the cluster has some, this may be wrong"
        asked = names
    command = f"kubectl get {','.join(asked)} -A -o json > missing.json"
    return Missing(resources=names, text=text, command=command)


def _needed(pod: Pod, state: ClusterState, *, evicts: bool) -> Iterator[type[Any]]:
    namespace = pod.metadata.namespace
    claims = [state.get(PersistentVolumeClaim, namespace, use.name) for use in claim_uses(pod)]
    if claims:
        yield PersistentVolumeClaim
    if any(claim is None or claim.spec.volume_name for claim in claims):
        yield from (PersistentVolume, CSINode)
    if any(claim is None or not claim.spec.volume_name for claim in claims):
        yield StorageClass
    if pod.spec.resource_claims:
        yield from (ResourceClaim, ResourceSlice, DeviceClass)
    affinity = pod.spec.affinity
    both = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    for terms in both:
        required = terms and terms.required_during_scheduling_ignored_during_execution
        if any(term.namespace_selector is not None for term in required or ()):
            yield Namespace
    if group_of(pod) is not None:
        yield PodGroup
    if evicts:
        yield PodDisruptionBudget
