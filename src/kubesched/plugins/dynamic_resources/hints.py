"""Queueing hints of DynamicResources."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.api.core_v1 import Pod, PodResourceClaim
from kubesched.api.resource_v1 import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from kubesched.framework.events import Concerns, Hint
from kubesched.plugins.dynamic_resources.claim_lookup import (
    ClaimProblem,
    EntryAndClaim,
    claim_name,
)

PodClaims = Callable[[Pod], Sequence[EntryAndClaim]]


def after_claim_change(
    pod: Pod, old: ResourceClaim | None, new: ResourceClaim, claims_of: PodClaims
) -> Hint:
    """A claim was added or updated."""
    try:
        claims = claims_of(pod)
    except ClaimProblem:
        return Hint.SKIP
    if old is not None and old.status.allocation is not None and new.status.allocation is None:
        return Hint.QUEUE  # devices became free
    if all(claim.metadata.uid != new.metadata.uid for _, claim in claims):
        return Hint.SKIP
    return Hint.SKIP if old is not None and old.status == new.status else Hint.QUEUE


def after_claim_deletion(pod: Pod, old: ResourceClaim | None, *, frees_devices: bool) -> Hint:
    """A claim is gone, and with it a hold on devices; `old` is None if it may have had one.

    If it was the special claim of an earlier attempt, the pod can get a new one. (Upstream does not
    look at special claims: the pod waits for the five-minute flush.)
    """
    if frees_devices and (old is None or old.status.allocation is not None):
        return Hint.QUEUE
    if old is None:
        return Hint.SKIP
    annotations, owner = old.metadata.annotations or {}, old.metadata.controller()
    is_special = annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true"
    is_own = owner is not None and owner.uid == pod.metadata.uid
    return Hint.QUEUE if is_special and is_own else Hint.SKIP


def pods_of_claim(old: ResourceClaim | None, new: ResourceClaim | None) -> Concerns | None:
    """The pods that a change of a claim is about; None (any) if devices became free."""
    claim = old if new is None else new
    assert claim is not None, "asked about changes only"
    had_devices = old is not None and old.status.allocation is not None
    if had_devices and (new is None or new.status.allocation is None):
        return None
    namespace, name, owner = (
        claim.metadata.namespace,
        claim.metadata.name,
        claim.metadata.controller(),
    )

    def uses_it(pod: Pod) -> bool:
        if pod.metadata.namespace != namespace:
            return False
        is_own = owner is not None and owner.uid == pod.metadata.uid  # a special claim has no entry
        return is_own or any(_name(pod, entry) == name for entry in pod.spec.resource_claims or ())

    return uses_it


def _name(pod: Pod, entry: PodResourceClaim) -> str | None:
    try:
        return claim_name(pod, entry)[0]
    except ClaimProblem:
        return None


def after_pod_change(new: Pod, claims_of: PodClaims) -> Hint:
    """The names of the pod's generated claims were recorded in its status."""
    try:
        claims_of(new)
    except ClaimProblem:
        return Hint.SKIP
    return Hint.QUEUE
