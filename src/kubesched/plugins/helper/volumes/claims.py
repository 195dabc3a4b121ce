"""The claims a pod uses, and accessors for claims and volumes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import msgspec

from kubesched.api import quantity
from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod, Volume
from kubesched.api.pod_volumes import volume_uses
from kubesched.api.quantity import Quantity
from kubesched.framework.cycle_state import CycleState

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"

_MEMO_KEY: Final[Hashable] = "volume uses"
_encode = msgspec.json.Encoder(order="sorted").encode


class ClaimUse(NamedTuple):
    """A claim as named by one of a pod's volumes."""

    name: str
    is_ephemeral: bool


def uses_of(state: CycleState, pod: Pod) -> int:
    """The flags of `api.pod_volumes` for a pod, computed once per class."""
    volumes = pod.spec.volumes
    if not volumes:
        return 0
    return state.remember(_MEMO_KEY, lambda: volume_uses(volumes))


def claim_use(pod: Pod, volume: Volume) -> ClaimUse | None:
    """The claim behind a volume; None for volumes without one."""
    if volume.persistent_volume_claim is not None:
        return ClaimUse(volume.persistent_volume_claim.claim_name, is_ephemeral=False)
    if volume.ephemeral is not None:
        return ClaimUse(f"{pod.metadata.name}-{volume.name}", is_ephemeral=True)
    return None


def claim_uses(pod: Pod) -> list[ClaimUse]:
    """The claims of all volumes, in the pod's order, repeats included."""
    return [use for volume in pod.spec.volumes or () if (use := claim_use(pod, volume)) is not None]


def direct_claims(pod: Pod) -> list[str]:
    """Names of the claims in the pod's spec; those of ephemeral volumes are not included."""
    return [
        volume.persistent_volume_claim.claim_name
        for volume in pod.spec.volumes or ()
        if volume.persistent_volume_claim is not None
    ]


def ownership_problem(pod: Pod, claim: PersistentVolumeClaim) -> str | None:
    """Why the claim cannot belong to the pod's ephemeral volume (upstream's text), or None."""
    mine, theirs = pod.metadata, claim.metadata
    controller = theirs.controller()
    if theirs.namespace == mine.namespace and controller is not None and controller.uid == mine.uid:
        return None
    return (
        f"PVC {theirs.namespace}/{theirs.name} was not created for pod {mine.namespace}/{mine.name}"
        " (pod is not owner)"
    )


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The requested storage class; the legacy annotation wins."""
    annotated = (claim.metadata.annotations or {}).get(BETA_STORAGE_CLASS)
    return (claim.spec.storage_class_name or "") if annotated is None else annotated


def class_of_volume(volume: PersistentVolume) -> str:
    annotated = (volume.metadata.annotations or {}).get(BETA_STORAGE_CLASS)
    return volume.spec.storage_class_name if annotated is None else annotated


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BIND_COMPLETED in (claim.metadata.annotations or {})


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Does the volume's claimRef name this claim? A UID is optional (pre-bound by an admin)."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and reference.name == claim.metadata.name
        and reference.namespace == claim.metadata.namespace
        and reference.uid in ("", claim.metadata.uid)
    )


def requested_storage(claim: PersistentVolumeClaim) -> Quantity:
    """The requested amount; zero if unset."""
    raw = (claim.spec.resources.requests or {}).get("storage")
    return quantity.ZERO if raw is None else quantity.parse(raw)


def storage_capacity(volume: PersistentVolume) -> Quantity:
    raw = (volume.spec.capacity or {}).get("storage")
    return quantity.ZERO if raw is None else quantity.parse(raw)


def not_found(resource: str, name: str) -> str:
    """A lister's error text for a missing object."""
    return f'{resource} "{name}" not found'


def volumes_fragment(pod: Pod) -> dict[str, Any]:
    """The pod signature fragment of all storage plugins."""
    sources = []
    for volume in pod.spec.volumes or ():
        if volume.config_map is None and volume.secret is None:
            source = msgspec.to_builtins(volume)
            source.pop("name", None)
            sources.append(_encode(source).decode())
    return {"v1.Pod.Spec.Volumes.NonSyntheticSources()": sorted(sources)}
