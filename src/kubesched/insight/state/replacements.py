"""Replacement pods: what the controllers of the state's own pods do when a pod leaves.

A controller creates the new pod from the old pod's template, so the new pod is the old one without
node, status and identity. Pods of a plan's own workloads are replaced by their controllers
(`workloads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod, PodStatus
from kubesched.api.core_v1.pod import PodResourceClaimStatus
from kubesched.api.core_v1.storage import PersistentVolumeClaimStatus
from kubesched.api.meta import OwnerReference
from kubesched.api.resource_v1 import (
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimStatus,
)
from kubesched.api.storage_v1 import StorageClass
from kubesched.insight.state.claim_controller import claim_name, existing_claims, release_claims
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.plugins.helper.volumes.claims import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    class_of_claim,
)

ZONE = "topology.kubernetes.io/zone"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MIRROR = "kubernetes.io/config.mirror"


def is_mirror(pod: Pod) -> bool:
    """Whether the kubelet runs the pod from a file; the API cannot stop it."""
    owner = pod.metadata.controller()
    return _MIRROR in (pod.metadata.annotations or {}) or (
        owner is not None and owner.kind == "Node"
    )


def pods_on(world: PlannedCluster, node: str) -> list[Pod]:
    """The stored pods that count on a node."""
    row = world.assembly.table.row_of.get(node)
    known = world.assembly.table.pods[row].values() if row is not None else ()
    stored = (world.find(Pod, info.namespace, info.name) for info in known)
    return [pod for pod in stored if pod is not None]


def is_daemon(pod: Pod) -> bool:
    owner = pod.metadata.controller()
    return owner is not None and owner.kind == "DaemonSet"


def with_claims(world: PlannedCluster, pod: Pod, old: Sequence[ResourceClaim]) -> Pod:
    """The new pod with resource claims of its own for those that were made for the old one."""
    statuses = []
    for claim in old:
        entry = (claim.metadata.annotations or {}).get(POD_CLAIM_NAME_ANNOTATION)
        if entry is None:
            continue
        made_for = claim.metadata.controller()
        if made_for is not None and made_for.kind == "PodGroup":  # all its pods use this one
            statuses.append(
                PodResourceClaimStatus(name=entry, resource_claim_name=claim.metadata.name)
            )
            continue
        name = claim_name(pod.metadata.name, entry)
        owners = [
            structs.replace(owner, name=pod.metadata.name, uid=pod.metadata.uid)
            for owner in claim.metadata.owner_references or ()
        ]
        metadata = structs.replace(
            claim.metadata,
            name=name,
            uid=f"{pod.metadata.uid}/{entry}",
            owner_references=owners or None,
            finalizers=None,
        )
        world.add(structs.replace(claim, metadata=metadata, status=ResourceClaimStatus()))
        statuses.append(PodResourceClaimStatus(name=entry, resource_claim_name=name))
    status = structs.replace(pod.status, resource_claim_statuses=statuses or None)
    return structs.replace(pod, status=status)


def with_volume_claims(world: PlannedCluster, old: Pod, new: Pod, *, is_gone: bool = False) -> Pod:
    """The new pod with volume claims of its own for those that were made for the old one.

    Claims of a StatefulSet's template are named after the pod and outlive it; those of ephemeral
    volumes are deleted with the old pod if it `is_gone`.
    """
    before, after = old.metadata.name, new.metadata.name
    volumes = []
    for volume in new.spec.volumes or ():
        claim = volume.persistent_volume_claim
        if volume.ephemeral is not None:
            name, copied = f"{before}-{volume.name}", f"{after}-{volume.name}"
            _copy_claim(world, new, name, copied, deletes=is_gone)
        elif claim is not None and claim.claim_name.endswith(f"-{before}") and before != after:
            name = claim.claim_name.removesuffix(before) + after
            _copy_claim(world, new, claim.claim_name, name)
            claim = structs.replace(claim, claim_name=name)
            volume = structs.replace(volume, persistent_volume_claim=claim)
        volumes.append(volume)
    return structs.replace(new, spec=structs.replace(new.spec, volumes=volumes or None))


def _copy_claim(
    world: PlannedCluster, pod: Pod, name: str, copied: str, *, deletes: bool = False
) -> None:
    """Add a claim like another one, for the pod."""
    meta = pod.metadata
    claim = world.find(PersistentVolumeClaim, meta.namespace, name)
    if claim is not None and deletes:
        world.delete(claim)
    if claim is None or world.find(PersistentVolumeClaim, meta.namespace, copied) is not None:
        return
    owners = [
        structs.replace(owner, name=meta.name, uid=meta.uid) if owner.kind == "Pod" else owner
        for owner in claim.metadata.owner_references or ()
    ]
    metadata = structs.replace(
        claim.metadata,
        name=copied,
        uid=f"{meta.uid}/{copied}",
        annotations=None,
        owner_references=owners or None,
    )
    spec = structs.replace(claim.spec, volume_name="")
    status = PersistentVolumeClaimStatus(phase="Pending")
    made = structs.replace(claim, metadata=metadata, spec=spec, status=status)
    storage_class = world.find(StorageClass, "", class_of_claim(claim))
    for obj in provisioned(made, storage_class):
        world.add(obj)


def provisioned(
    claim: PersistentVolumeClaim, storage_class: StorageClass | None
) -> tuple[PersistentVolumeClaim | PersistentVolume, ...]:
    """The claim as the scheduler will see it: bound at once, unless it waits for the pod."""
    if storage_class is None or storage_class.provisioner == NO_PROVISIONER:
        return (claim,)
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return (claim,)
    return bound_to_new_volume(claim)


def bound_to_new_volume(
    claim: PersistentVolumeClaim, zone: str = ""
) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """The claim and its volume, once a driver has created it; nodes of that zone reach it."""
    meta, name = claim.metadata, f"pvc-{claim.metadata.name}"
    reference = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    spec: dict[str, Any] = {"claimRef": reference}
    if zone:
        in_zone = {"key": ZONE, "operator": "In", "values": [zone]}
        terms = [{"matchExpressions": [in_zone]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    described = {"metadata": {"name": name}, "spec": spec}
    annotations = {**(meta.annotations or {}), BIND_COMPLETED: "yes"}
    bound = structs.replace(
        claim,
        metadata=structs.replace(meta, annotations=annotations),
        spec=structs.replace(claim.spec, volume_name=name),
        status=structs.replace(claim.status, phase="Bound"),
    )
    return bound, msgspec.convert(described, PersistentVolume)


class Replacements:
    """Creates replacement pods."""

    def __init__(self, world: PlannedCluster, seed: int) -> None:
        self._world = world
        self._random = Random(seed)
        self.retired: set[str] = set()
        """Uids of controllers that no longer create pods."""
        self.of: dict[str, str] = {}
        """Uid of a departed pod -> `namespace/name` of its replacement."""
        self.edits: dict[str, Callable[[Pod], Pod]] = {}
        """Uid of a controller -> the change of its template."""

    def replace(self, pod: Pod) -> Pod | None:
        """Add the replacement of a departed pod; None if there is none."""
        owner = pod.metadata.controller()
        claims = existing_claims(self._world, pod)
        release_claims(self._world, claims, lambda uid: uid != pod.metadata.uid)
        if owner is None or owner.uid in self.retired or is_mirror(pod):
            return None
        new = with_claims(self._world, self._renewed(pod, owner), claims)
        new = with_volume_claims(self._world, pod, new, is_gone=True)
        self._world.add(new)
        self.of[pod.metadata.uid] = f"{new.metadata.namespace}/{new.metadata.name}"
        return new

    def add_like(self, pod: Pod, name: str | None = None) -> Pod:
        """Add another pod of the pod's controller, with the given name or a new one."""
        owner = pod.metadata.controller()
        assert owner is not None, "only pods of a controller have others like them"
        new = self._renewed(pod, owner, name or self._new_name(pod, owner))
        new = with_claims(self._world, new, existing_claims(self._world, pod))
        new = with_volume_claims(self._world, pod, new)
        self._world.add(new)
        return new

    def _renewed(self, pod: Pod, owner: OwnerReference, name: str = "") -> Pod:
        meta = pod.metadata
        pod = self.edits[owner.uid](pod) if owner.uid in self.edits else pod
        if not name:
            name = meta.name if owner.kind == "StatefulSet" else self._new_name(pod, owner)
        metadata = structs.replace(
            meta,
            name=name,
            uid=f"planned/{meta.namespace}/{name}/{self._random.getrandbits(32):08x}",
            resource_version="",
            deletion_timestamp=None,
        )
        spec = structs.replace(pod.spec, node_name="")
        return structs.replace(pod, metadata=metadata, spec=spec, status=PodStatus(phase="Pending"))

    def _new_name(self, pod: Pod, owner: OwnerReference) -> str:
        base = pod.metadata.generate_name or f"{owner.name}-"
        while True:
            name = base + "".join(self._random.choice(_LETTERS) for _ in range(5))
            if self._world.find(Pod, pod.metadata.namespace, name) is None:
                return name
