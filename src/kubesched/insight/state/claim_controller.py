"""A resource claim controller: makes claims from templates, releases them.

In a cluster the claim controller and garbage collection do this; players of sequences and workloads
use these functions instead. Claims get predictable names, because messages contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import structs, to_builtins

from kubesched.api.core_v1 import Pod
from kubesched.api.resource_v1 import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    FINALIZER,
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimStatus,
)
from kubesched.insight.state.cluster import Cluster

Json = dict[str, Any]

FINISHED = ("Succeeded", "Failed")


def template_entries(pod: Json) -> list[tuple[str, str]]:
    """Names of the pod's claims made from templates, with the template's name."""
    return [
        (entry["name"], entry["resourceClaimTemplateName"])
        for entry in pod.get("spec", {}).get("resourceClaims", ())
        if "resourceClaimTemplateName" in entry
    ]


def generated_claim(pod: Json, entry: str, template: Json) -> Json:
    """The claim for one entry of a pod that has a UID."""
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim_name(metadata["name"], entry),
            "namespace": metadata["namespace"],
            "annotations": {POD_CLAIM_NAME_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": template["spec"]["spec"],
    }


def claim_name(pod: str, entry: str) -> str:
    return f"{pod}-{entry}"


def claim_statuses(pod: Json) -> Json:
    """The status by which a pod finds its generated claims."""
    name = pod["metadata"]["name"]
    return {
        "resourceClaimStatuses": [
            {"name": entry, "resourceClaimName": claim_name(name, entry)}
            for entry, _ in template_entries(pod)
        ]
    }


def is_orphan(claim: ResourceClaim, is_alive: Callable[[str], bool]) -> bool:
    """Whether the claim was made for a pod that is finished or gone; `is_alive` takes a UID."""
    owners = claim.metadata.owner_references or ()
    return any(owner.kind == "Pod" and not is_alive(owner.uid) for owner in owners)


def without_stale_reservations(
    claim: ResourceClaim, is_alive: Callable[[str], bool]
) -> list[Json] | None:
    """The remaining reservations, or None if none has to be removed."""
    changed = released(claim, is_alive)
    return None if changed is None else to_builtins(changed.status.reserved_for or [])


def released(claim: ResourceClaim, is_alive: Callable[[str], bool]) -> ResourceClaim | None:
    """The claim without stale reservations of pods, or None if it has none.

    Devices are freed with the last reservation.
    """
    consumers = claim.status.reserved_for or ()
    remaining = [
        consumer for consumer in consumers if consumer.resource != "pods" or is_alive(consumer.uid)
    ]
    if len(remaining) == len(consumers):
        return None
    if remaining:
        return structs.replace(claim, status=structs.replace(claim.status, reserved_for=remaining))
    return structs.replace(
        claim,
        metadata=structs.replace(claim.metadata, finalizers=other_finalizers(claim) or None),
        status=ResourceClaimStatus(),
    )


def release_claims(
    cluster: Cluster, claims: Iterable[ResourceClaim], is_alive: Callable[[str], bool]
) -> None:
    """Release claims of finished or deleted pods; delete those made for them."""
    for claim in claims:
        without = released(claim, is_alive)
        current = claim if without is None else cluster.put(without)
        if not current.status.reserved_for and is_orphan(current, is_alive):
            cluster.delete(current)


def existing_claims(cluster: Cluster, pod: Pod) -> list[ResourceClaim]:
    namespace = pod.metadata.namespace
    found = (cluster.find(ResourceClaim, namespace, name) for name in dict.fromkeys(claims_of(pod)))
    return [claim for claim in found if claim is not None]


def other_finalizers(claim: ResourceClaim) -> list[str]:
    return [name for name in claim.metadata.finalizers or () if name != FINALIZER]


def claims_of(pod: Pod) -> list[str]:
    """Names of all claims of a pod, the one for its extended resources last."""
    made = {
        status.name: status.resource_claim_name
        for status in pod.status.resource_claim_statuses or ()
    }
    names = [
        entry.resource_claim_name or made.get(entry.name) or ""
        for entry in pod.spec.resource_claims or ()
    ]
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        names.append(extended.resource_claim_name)
    return [name for name in names if name]


def devices_of(claim: ResourceClaim) -> Iterator[str]:
    """The claim's devices, in words that are the same in every run."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    annotations = claim.metadata.annotations or {}
    is_special = EXTENDED_RESOURCE_CLAIM_ANNOTATION in annotations
    name = "extended resources" if is_special else claim.metadata.name
    for result in allocation.devices.results or ():
        amounts = result.consumed_capacity or {}
        share = "".join(f" {key}:{amount}" for key, amount in sorted(amounts.items()))
        yield f"{name} {result.request}={result.driver}/{result.pool}/{result.device}{share}"
