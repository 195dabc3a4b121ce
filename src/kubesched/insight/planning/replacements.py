"""Replacement pods: what the controllers of the state's own pods do when a pod leaves.

A controller creates the new pod from the old pod's template, so the new pod is the old one without
node, status and identity. Pods of a plan's own workloads are replaced by their controllers
(`workloads`).
"""

from __future__ import annotations

from random import Random

from msgspec import structs

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod, PodStatus
from kubesched.api.core_v1.storage import PersistentVolumeClaimStatus
from kubesched.api.meta import OwnerReference
from kubesched.insight.planning.world import PlannedCluster

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MIRROR = "kubernetes.io/config.mirror"


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references or () if owner.controller), None)


def is_mirror(pod: Pod) -> bool:
    """Whether the kubelet runs the pod from a file; the API cannot stop it."""
    owner = controller_of(pod)
    return _MIRROR in (pod.metadata.annotations or {}) or (
        owner is not None and owner.kind == "Node"
    )


class Replacements:
    """Creates replacement pods."""

    def __init__(self, world: PlannedCluster, seed: int) -> None:
        self._world = world
        self._random = Random(seed)
        self.retired: set[str] = set()
        """Uids of controllers that no longer create pods."""
        self.of: dict[str, str] = {}
        """Uid of a departed pod -> `namespace/name` of its replacement."""

    def replace(self, pod: Pod) -> Pod | None:
        """Add the replacement of a departed pod; None if there is none."""
        owner = controller_of(pod)
        if owner is None or owner.uid in self.retired or is_mirror(pod):
            return None
        new = self._renewed(pod, owner)
        for volume in pod.spec.volumes or ():
            if volume.ephemeral is not None:
                self._renew_claim(pod, new, volume.name)
        self._world.add(new)
        self.of[pod.metadata.uid] = f"{new.metadata.namespace}/{new.metadata.name}"
        return new

    def add_like(self, pod: Pod, name: str | None = None) -> None:
        """Add another pod of the pod's controller, with the given name or a new one."""
        owner = controller_of(pod)
        assert owner is not None, "only pods of a controller have others like them"
        self._world.add(self._renewed(pod, owner, name or self._new_name(pod, owner)))

    def _renewed(self, pod: Pod, owner: OwnerReference, name: str = "") -> Pod:
        meta = pod.metadata
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
