"""Replacement pods: what the controllers of the state's own pods do when a pod leaves.

A controller creates the new pod from the old pod's template, so the new pod is the old one without
node, status and identity. Pods of a plan's own workloads are replaced by their controllers
(`workloads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from msgspec import structs

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod, PodStatus
from kubesched.api.core_v1.pod import PodResourceClaimStatus
from kubesched.api.core_v1.storage import PersistentVolumeClaimStatus
from kubesched.api.meta import OwnerReference
from kubesched.api.resource_v1 import (
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimStatus,
)
from kubesched.insight.state.claim_controller import claim_name, existing_claims, release_claims
from kubesched.insight.state.planned_cluster import PlannedCluster

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
        for volume in pod.spec.volumes or ():
            if volume.ephemeral is not None:
                self._renew_claim(pod, new, volume.name)
        self._world.add(new)
        self.of[pod.metadata.uid] = f"{new.metadata.namespace}/{new.metadata.name}"
        return new

    def add_like(self, pod: Pod, name: str | None = None) -> Pod:
        """Add another pod of the pod's controller, with the given name or a new one."""
        owner = pod.metadata.controller()
        assert owner is not None, "only pods of a controller have others like them"
        new = self._renewed(pod, owner, name or self._new_name(pod, owner))
        new = with_claims(self._world, new, existing_claims(self._world, pod))
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

    def _renew_claim(self, old: Pod, new: Pod, volume: str) -> None:
        """Give the new pod its own ephemeral claim; the old claim is deleted with its pod."""
        namespace = old.metadata.namespace
        claim = self._world.find(PersistentVolumeClaim, namespace, f"{old.metadata.name}-{volume}")
        if claim is None:
            return
        self._world.delete(claim)
        name = f"{new.metadata.name}-{volume}"
        owners = [
            structs.replace(owner, name=new.metadata.name, uid=new.metadata.uid)
            for owner in claim.metadata.owner_references or ()
        ]
        metadata = structs.replace(
            claim.metadata,
            name=name,
            uid=f"{new.metadata.uid}/{volume}",
            annotations=None,
            owner_references=owners or None,
        )
        spec = structs.replace(claim.spec, volume_name="")
        status = PersistentVolumeClaimStatus(phase="Pending")
        self._world.add(structs.replace(claim, metadata=metadata, spec=spec, status=status))
