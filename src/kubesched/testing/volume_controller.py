"""A volume controller and provisioner: binds claims to the chosen volumes, or provisions them.

The scheduler names the claim in a volume, or the chosen node in an annotation of the claim, and
waits. In a cluster the volume controller and a provisioner respond; test drivers use these
functions instead.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.core_v1 import ObjectReference, PersistentVolume, PersistentVolumeClaim
from kubesched.plugins.helper.volumes.claims import is_fully_bound

Json = dict[str, Any]

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def meant_by(volume: PersistentVolume) -> str:
    """The claim that the volume is reserved for; empty if none."""
    reference: ObjectReference | None = volume.spec.claim_ref
    return f"{reference.namespace}/{reference.name}" if reference is not None else ""


def bound_to(volume: str) -> Json:
    """The change that binds a claim."""
    return {
        "metadata": {"annotations": {BIND_COMPLETED: "yes"}},
        "spec": {"volumeName": volume},
    }


def wants_volume(claim: PersistentVolumeClaim) -> bool:
    """Whether a node is chosen on which to provision the claim's volume."""
    return SELECTED_NODE in (claim.metadata.annotations or {}) and not is_fully_bound(claim)


def made_for(claim: PersistentVolumeClaim) -> Json:
    """A volume for the claim, restricted to the node chosen for it."""
    metadata = claim.metadata
    annotations = metadata.annotations or {}
    resources = claim.spec.resources
    assert resources is not None, "an API server admits no claim without"
    expression = {
        "key": "kubernetes.io/hostname",
        "operator": "In",
        "values": [annotations[SELECTED_NODE]],
    }
    name = f"made-{metadata.namespace}-{metadata.name}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": (resources.requests or {})["storage"]},
            "accessModes": list(claim.spec.access_modes or ()),
            "storageClassName": claim.spec.storage_class_name or "",
            "csi": {"driver": "csi.example", "volumeHandle": name},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
            },
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            },
        },
    }
