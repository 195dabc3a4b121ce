"""Finds the ResourceClaims a pod uses; the first problem ends the lookup and is reported."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.core_v1 import Pod, PodResourceClaim
from kubesched.api.resource_v1 import ResourceClaim

ClaimGetter = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) -> the claim, in its assumed version if there is one."""


class ClaimProblem(Exception):
    """The pod is unschedulable until its claims change."""


def pod_claims(pod: Pod, get: ClaimGetter) -> list[ResourceClaim]:
    """The pod's claims, in the order of `spec.resourceClaims`; raises ClaimProblem."""
    namespace = pod.metadata.namespace
    claims = []
    for entry in pod.spec.resource_claims or ():
        name, is_generated = claim_name(pod, entry)
        if name is None:
            continue
        claim = get(namespace, name)
        if claim is None:
            raise ClaimProblem(f'could not find ResourceClaim "{namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
        if is_generated:
            _check_owner(pod, claim)
        claims.append(claim)
    return claims


def claim_name(pod: Pod, entry: PodResourceClaim) -> tuple[str | None, bool]:
    """Returns the claim's name and whether it was generated; raises ClaimProblem.

    The name is None if the entry intentionally has no claim.
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name, False
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if entry.resource_claim_template_name is None:
        raise ClaimProblem(
            f'{where}, spec.resourceClaim "{entry.name}": none of the supported fields are set'
        )
    for status in pod.status.resource_claim_statuses or ():
        if status.name == entry.name:
            return status.resource_claim_name, True
    raise ClaimProblem(f"{where}: ResourceClaim not created yet")


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for or ())


def _check_owner(pod: Pod, claim: ResourceClaim) -> None:
    owner = claim.metadata.controller()
    if owner is None or owner.uid != pod.metadata.uid:
        namespace = pod.metadata.namespace
        raise ClaimProblem(
            f"ResourceClaim {namespace}/{claim.metadata.name} was not created for Pod "
            f"{namespace}/{pod.metadata.name} (Pod is not owner)"
        )
