"""Queueing hints shared by several storage plugins."""

from __future__ import annotations

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.framework.engine import reads
from kubesched.framework.events import Hint
from kubesched.plugins.helper.volumes.claims import claim_uses, direct_claims


def uses_claim(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    """Queue if the pod uses the claim, also through an ephemeral volume."""
    meta = new.metadata
    if meta.namespace != pod.metadata.namespace:
        return Hint.SKIP
    is_mine = any(use.name == meta.name for use in claim_uses(pod))
    return Hint.QUEUE if is_mine else Hint.SKIP


@reads("class")
def uses_claim_directly(
    pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> Hint:
    """Queue if the pod names the claim; reads no part of the pod that differs within a class."""
    meta = new.metadata
    is_mine = meta.namespace == pod.metadata.namespace and meta.name in direct_claims(pod)
    return Hint.QUEUE if is_mine else Hint.SKIP
