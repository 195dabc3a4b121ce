"""Device claims of deleted pods, handled like the resource claim controller does."""

from __future__ import annotations

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.insight.planning.world import PlannedCluster

FINISHED = ("Succeeded", "Failed")


def release_claims(world: PlannedCluster, pod: Pod) -> None:
    """Withdraw a pod's reservations; unreserved claims free their devices."""
    names = {claim.resource_claim_name for claim in pod.spec.resource_claims or ()}
    names |= {claim.resource_claim_name for claim in pod.status.resource_claim_statuses or ()}
    for name in sorted(filter(None, names)):
        claim = world.find(ResourceClaim, pod.metadata.namespace, name)
        if claim is not None:
            _release(world, claim, pod.metadata.uid)


def _release(world: PlannedCluster, claim: ResourceClaim, uid: str) -> None:
    reserved = claim.status.reserved_for or []
    remaining = [consumer for consumer in reserved if consumer.uid != uid]
    if len(remaining) == len(reserved):
        return
    status = structs.replace(claim.status, reserved_for=remaining or None)
    if not remaining:
        status = structs.replace(status, allocation=None)
    world.put(structs.replace(claim, status=status))
