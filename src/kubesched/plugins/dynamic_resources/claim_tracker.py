"""Claims as the scheduler knows them, and the devices they hold.

A claim is in up to three places, and its devices count once:

    lister      as the watch last showed it
    assumed     the API server's response to our own write; replaces the listed version until the
                watch shows this revision or a newer one
    in flight   allocated by Reserve; by UID, until the outcome of PreBind's write is known,
                regardless of the watch

One tracker serves all profiles, so that no two of them allocate the same device. All methods are
synchronous; the set of allocated devices changes only between scheduling attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubesched.api.names import key_of
from kubesched.api.resource_v1 import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    ResourceClaim,
)
from kubesched.framework.handle import Lister
from kubesched.plugins.dynamic_resources.structured.allocated_state import (
    AllocatedState,
    holds_the_same,
)
from kubesched.plugins.helper.change_signals import ChangeSignals
from kubesched.plugins.helper.grouping import leave_group


@dataclass(slots=True, eq=False)
class _InFlight:
    """Devices that Reserve has taken."""

    allocation: AllocationResult
    group_trial: object | None
    """The trial of the group whose members may use the allocation."""
    pods: set[str]
    """UIDs of the pods that still need it."""
    is_shared: bool = False


class ClaimTracker:
    """Looks up claims and tracks their allocations."""

    def __init__(self, lister: Lister[ResourceClaim], *, consumable_capacity: bool = True) -> None:
        self._lister = lister
        self._assumed: dict[str, ResourceClaim] = {}
        self._in_flight: dict[str, _InFlight] = {}
        self._shown: set[str] = set()
        """UIDs in flight whose devices are already counted through the claim's own allocation."""
        self._counted: dict[str, tuple[str, AllocationResult]] = {}
        """Claim key -> UID and the allocation counted in `allocated`."""
        self._special: dict[str, tuple[str, str]] = {}
        """Claim key -> UID and name of the pod whose extended resources it serves."""
        self._special_of_pod: dict[str, dict[str, None]] = {}
        self.signals: ChangeSignals[str] = ChangeSignals()
        """Wakes tasks that wait for a claim, by claim key."""
        self.allocated = AllocatedState(consumable_capacity=consumable_capacity)
        """What claims hold, including those in flight. Read it within one attempt only."""
        for claim in lister.list():
            self._refresh(key_of(claim.metadata))
        self._stop: Callable[[], None] | None = lister.subscribe(self._changed)

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    # -- lookup ------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim, in its assumed version if there is one."""
        listed = self._lister.get(namespace, name)
        if not self._assumed or listed is None:
            return listed
        assumed = self._assumed.get(key_of(listed.metadata))
        return listed if assumed is None or not _is_newer(assumed, listed) else assumed

    def special_claim_of(self, pod_uid: str, pod_name: str) -> ResourceClaim | None:
        """The claim that an earlier attempt created for the pod's extended resources."""
        for key in self._special_of_pod.get(pod_uid, ()):
            if self._special[key][1] == pod_name:
                namespace, _, name = key.rpartition("/")
                return self.get(namespace, name)
        return None

    def is_idle(self) -> bool:
        """True if nothing is assumed or in flight."""
        return not (self._assumed or self._in_flight)

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    # -- changes -----------------------------------------------------------------------------------

    def shared_by(self, group_trial: object | None, uid: str) -> AllocationResult | None:
        """The allocation in flight, if an earlier member of the group made it in this trial."""
        known = self._in_flight.get(uid)
        if known is None or group_trial is None or known.group_trial is not group_trial:
            return None
        return known.allocation

    def is_written(self, claim: ResourceClaim, allocation: AllocationResult) -> bool:
        """Has another member of the group written the allocation that they share?"""
        known, written = self._in_flight.get(claim.metadata.uid), claim.status.allocation
        return (
            known is not None
            and known.is_shared
            and written is not None
            and holds_the_same(allocation, written)
        )

    def add_in_flight(
        self,
        uid: str,
        allocation: AllocationResult,
        pod_uid: str,
        group_trial: object | None = None,
    ) -> None:
        """Take the devices of a claim for which a node was chosen.

        # Upstream: of a claim that a pod names twice, only the first allocation counts.
        """
        known = self._in_flight.get(uid)
        if known is not None:
            known.is_shared |= pod_uid not in known.pods
            known.pods.add(pod_uid)
            return
        self._in_flight[uid] = _InFlight(allocation, group_trial, {pod_uid})
        self.allocated.add(allocation)

    def remove_in_flight(self, uid: str, pod_uid: str) -> bool:
        """Call when the allocation was written or abandoned for a pod.

        Returns False if no device is freed: it was not in flight, other members of the group need
        it, or the claim holds the allocation.
        """
        known = self._in_flight.get(uid)
        if known is None:
            return False
        known.pods.discard(pod_uid)
        if known.pods:
            return False
        del self._in_flight[uid]
        if uid in self._shown:
            self._shown.remove(uid)
            return False
        self.allocated.remove(known.allocation)
        return True

    def rename_in_flight(self, uid: str, claim: ResourceClaim) -> None:
        """The special claim was created, and is in flight by its own UID from now on."""
        known = self._in_flight.pop(uid, None)
        if known is not None:
            self._in_flight[claim.metadata.uid] = known

    def assume(self, claim: ResourceClaim) -> bool:
        """Use the API server's response until the watch shows it.

        Returns False if the lister does not have the claim. Responses to pods that share a claim
        can arrive out of order; an older one is ignored.
        """
        known = self.get(claim.metadata.namespace, claim.metadata.name)
        if known is None or known.metadata.uid != claim.metadata.uid:
            return False
        key = key_of(claim.metadata)
        if _is_newer(claim, known):
            self._assumed[key] = claim
        self._refresh(key)
        return True

    def restore(self, key: str) -> None:
        """Drop the assumed version and use the listed one."""
        if self._assumed.pop(key, None) is not None:
            self._refresh(key)

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new if new is not None else old
        assert claim is not None, "a change has a before or an after"
        key = key_of(claim.metadata)
        assumed = self._assumed.get(key)
        if assumed is not None and (new is None or not _is_newer(assumed, new)):
            del self._assumed[key]
        self._refresh(key)

    def _refresh(self, key: str) -> None:
        """Update the state derived from a claim."""
        namespace, _, name = key.rpartition("/")
        claim = self.get(namespace, name)
        self._count(key, claim)
        self._index_special(key, claim)
        self.signals.wake(key)

    def _count(self, key: str, claim: ResourceClaim | None) -> None:
        before = self._counted.get(key)
        allocation = None if claim is None else claim.status.allocation
        uid = "" if claim is None else claim.metadata.uid
        if before is not None:
            # Usually unchanged. Otherwise another scheduler deleted and recreated it while the
            # watch was interrupted.
            if before == (uid, allocation):
                return
            del self._counted[key]
            self.allocated.remove(before[1])
            self._hide(before[0])
        if allocation is not None:
            self._counted[key] = (uid, allocation)
            self.allocated.add(allocation)
            self._show(uid, allocation)

    def _show(self, uid: str, allocation: AllocationResult) -> None:
        """Count the devices once if the claim's allocation is the one in flight."""
        known = self._in_flight.get(uid)
        if known is not None and holds_the_same(known.allocation, allocation):
            self.allocated.remove(known.allocation)
            self._shown.add(uid)

    def _hide(self, uid: str) -> None:
        """The claim lost its allocation: count it as in flight, since its writer may retry."""
        if uid in self._shown:
            self._shown.remove(uid)
            self.allocated.add(self._in_flight[uid].allocation)

    def _index_special(self, key: str, claim: ResourceClaim | None) -> None:
        before = self._special.pop(key, None)
        if before is not None:
            leave_group(self._special_of_pod, before[0], key)
        if claim is None:
            return
        annotations = claim.metadata.annotations or {}
        owner = claim.metadata.controller()
        if annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true" and owner is not None:
            self._special[key] = (owner.uid, owner.name)
            self._special_of_pod.setdefault(owner.uid, {})[key] = None


def _is_newer(answer: ResourceClaim, known: ResourceClaim) -> bool:
    """Is the API server's response a later revision than the known claim?"""
    mine, theirs = answer.metadata, known.metadata
    return mine.uid == theirs.uid and mine.is_newer_than(theirs)
