"""Queueing hints that several storage plugins share."""

from __future__ import annotations

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.framework.events import Hint
from kubesched.plugins.helper.volumes.claims import claim_uses, direct_claims


def uses_claim(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    """Queue when the claim is one of the pod's, those made for its ephemeral volumes included."""
    meta = new.metadata
    if meta.namespace != pod.metadata.namespace:
        return Hint.SKIP
    is_mine = any(use.name == meta.name for use in claim_uses(pod))
    return Hint.QUEUE if is_mine else Hint.SKIP


def uses_claim_directly(
    pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> Hint:
    """Queue when the pod names the claim; reads nothing of the pod that differs within a class."""
    meta = new.metadata
    is_mine = meta.namespace == pod.metadata.namespace and meta.name in direct_claims(pod)
    return Hint.QUEUE if is_mine else Hint.SKIP
