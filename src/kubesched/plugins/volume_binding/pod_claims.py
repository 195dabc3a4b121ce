"""PreFilter's check of a pod's claims: do they exist, are they bound, can binding wait?"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.plugins.helper.volumes.claims import (
    WAIT_FOR_FIRST_CONSUMER,
    claim_uses,
    class_of_claim,
    is_fully_bound,
    not_found,
    ownership_problem,
)
from kubesched.plugins.volume_binding.storage import Storage


class ClaimsError(Exception):
    """The claims cannot be evaluated: the attempt fails."""


@dataclass(slots=True)
class PodClaims:
    """A pod's claims by required action, in the pod's order; a claim used twice is listed twice."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    delayed: list[PersistentVolumeClaim] = field(default_factory=list)
    """Unbound, to be bound after a node is chosen."""
    immediate: list[PersistentVolumeClaim] = field(default_factory=list)
    """Unbound, to be bound by the PV controller before the pod is scheduled."""


def claims_problem(pod: Pod, storage: Storage) -> str | None:
    """The first problem with the pod's claims that the scheduler cannot solve, or None."""
    for use in claim_uses(pod):
        claim = storage.claims.listed(f"{pod.metadata.namespace}/{use.name}")
        if claim is None:
            if use.is_ephemeral:
                return (
                    "waiting for ephemeral volume controller to create the"
                    f' persistentvolumeclaim "{use.name}"'
                )
            return not_found("persistentvolumeclaim", use.name)
        if claim.status.phase == "Lost":
            return (
                f'persistentvolumeclaim "{use.name}" bound to non-existent'
                f' persistentvolume "{claim.spec.volume_name}"'
            )
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{use.name}" is being deleted'
        if use.is_ephemeral and (problem := ownership_problem(pod, claim)) is not None:
            return problem
    return None


def classify(pod: Pod, storage: Storage) -> PodClaims:
    """The pod's claims, including assumptions; raises ClaimsError."""
    claims = PodClaims()
    for use in claim_uses(pod):
        key = f"{pod.metadata.namespace}/{use.name}"
        claim = storage.claims.get(key)
        if claim is None:
            missing = not_found("persistentvolumeclaims", key)
            raise ClaimsError(f'error getting PVC "{key}": {missing}')
        if is_fully_bound(claim):
            claims.bound.append(claim)
        elif _is_delayed(claim, storage) and not claim.spec.volume_name:
            claims.delayed.append(claim)
        else:
            claims.immediate.append(claim)
    return claims


def are_all_bound(pod: Pod, storage: Storage) -> bool:
    """Are all claims bound now?"""
    for use in claim_uses(pod):
        claim = storage.claims.get(f"{pod.metadata.namespace}/{use.name}")
        if claim is None or not is_fully_bound(claim):
            return False
        if use.is_ephemeral and ownership_problem(pod, claim) is not None:
            return False
    return True


def _is_delayed(claim: PersistentVolumeClaim, storage: Storage) -> bool:
    class_name = class_of_claim(claim)
    storage_class = storage.classes.get("", class_name) if class_name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise ClaimsError(f'VolumeBindingMode not set for StorageClass "{class_name}"')
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
