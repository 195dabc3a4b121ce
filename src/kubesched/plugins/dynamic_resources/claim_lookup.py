"""Finds the ResourceClaims a pod uses, and who they are reserved for: the pod or its PodGroup.

The first problem ends the lookup and is reported. Claims of groups need DRAWorkloadResourceClaims.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.core_v1 import Pod, PodResourceClaim
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim, ResourceClaimConsumerReference
from kubesched.api.scheduling_v1beta1 import PodGroup, PodGroupResourceClaim

ClaimGetter = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) -> the claim, in its assumed version if there is one."""
EntryAndClaim = tuple[PodResourceClaim, ResourceClaim]

GROUP_API = "scheduling.k8s.io"


class ClaimProblem(Exception):
    """The pod is unschedulable until its claims change."""


def pod_claims(pod: Pod, get: ClaimGetter, *, of_groups: bool) -> list[EntryAndClaim]:
    """The pod's claims, in the order of `spec.resourceClaims`; raises ClaimProblem.

    With `of_groups`, a generated claim may be owned by the pod's group.
    """
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
            _check_owner(pod, claim, _group_name(pod) if of_groups else "")
        claims.append((entry, claim))
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


def consumer_of(
    pod: Pod, entry: PodResourceClaim, group: PodGroup | None
) -> ResourceClaimConsumerReference:
    """The group if it has the same entry, otherwise the pod."""
    source = (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
    for claim in (None if group is None else group.spec.resource_claims) or ():
        if source == (claim.name, claim.resource_claim_name, claim.resource_claim_template_name):
            assert group is not None, "the claim is one of its own"
            return ResourceClaimConsumerReference(
                api_group=GROUP_API,
                resource="podgroups",
                name=group.metadata.name,
                uid=group.metadata.uid,
            )
    return pod_consumer(pod)


def pod_consumer(pod: Pod) -> ResourceClaimConsumerReference:
    meta = pod.metadata
    return ResourceClaimConsumerReference(resource="pods", name=meta.name, uid=meta.uid)


def is_reserved_for(claim: ResourceClaim, pod: Pod, *, of_groups: bool = False) -> bool:
    """Is the claim reserved for the pod or, with `of_groups`, for its group?

    # Upstream: the group is known by its name only.
    """
    group = _group_name(pod) if of_groups else ""
    return any(
        consumer.uid == pod.metadata.uid
        or (
            consumer.api_group == GROUP_API
            and consumer.resource == "podgroups"
            and consumer.name == group
        )
        for consumer in claim.status.reserved_for or ()
    )


def group_claim_name(group: PodGroup, entry: PodGroupResourceClaim) -> str | None:
    """The claim's name, None if the entry intentionally has none; raises ClaimProblem."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in group.status.resource_claim_statuses or ():
        if status.name == entry.name:
            return status.resource_claim_name
    raise ClaimProblem(f"PodGroup {key_of(group.metadata)}: ResourceClaim not created yet")


def _group_name(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def _check_owner(pod: Pod, claim: ResourceClaim, group: str) -> None:
    owner = claim.metadata.controller()
    if owner is not None and owner.uid == pod.metadata.uid:
        return
    if (
        group
        and owner is not None
        and (owner.kind, owner.name) == ("PodGroup", group)
        and owner.api_version.startswith(f"{GROUP_API}/")
    ):
        return
    namespace = pod.metadata.namespace
    who = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
    raise ClaimProblem(
        f"ResourceClaim {namespace}/{claim.metadata.name} was not created for Pod "
        f"{namespace}/{pod.metadata.name} ({who})"
    )
