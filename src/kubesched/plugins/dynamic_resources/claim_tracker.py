"""Claims as the scheduler knows them, and the devices they hold.

A claim is in up to three places, and its devices count once:

    lister      as the watch last showed it
    assumed     as the API server answered our own write; stands in until the watch shows this revision or a newer one
    in flight   allocated by Reserve; by UID, until the outcome of PreBind's write is known, whatever the watch shows meanwhile

One tracker serves all profiles: two of them must not hand out the same device. Everything here is
synchronous; what counts as allocated changes between scheduling attempts only.
"""

from __future__ import annotations

from collections.abc import Callable

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


class ClaimTracker:
    """Looks up claims and follows their allocations."""

    def __init__(self, lister: Lister[ResourceClaim], *, consumable_capacity: bool = True) -> None:
        self._lister = lister
        self._assumed: dict[str, ResourceClaim] = {}
        self._in_flight: dict[str, AllocationResult] = {}
        self._shown: set[str] = set()
        """UIDs in flight whose devices count as the claim's own, since the claim has them by now.
        """
        self._counted: dict[str, tuple[str, AllocationResult]] = {}
        """Claim key -> UID and the allocation that is part of `allocated`."""
        self._special: dict[str, tuple[str, str]] = {}
        """Claim key -> UID and name of the pod it serves extended resources of."""
        self._special_of_pod: dict[str, dict[str, None]] = {}
        self.signals: ChangeSignals[str] = ChangeSignals()
        """Wakes tasks that wait for a claim, by its key."""
        self.allocated = AllocatedState(consumable_capacity=consumable_capacity)
        """What claims hold, those in flight included. Read it within one attempt only."""
        self.version = 0
        """Changes with `allocated`."""
        for claim in lister.list():
            self._refresh(key_of(claim.metadata))
        self._stop: Callable[[], None] | None = lister.subscribe(self._changed)

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    # -- lookup ------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim, assumed if it is."""
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

    def add_in_flight(self, uid: str, allocation: AllocationResult) -> None:
        """A node was chosen: the devices are taken from now on.

        # Upstream: of a claim that a pod names twice, only the first allocation counts.
        """
        if uid in self._in_flight:
            return
        self._in_flight[uid] = allocation
        self.allocated.add(allocation)
        self.version += 1

    def remove_in_flight(self, uid: str) -> bool:
        """The allocation was written, or will not be.

        False if this frees nothing: it was not in flight, or the claim has it.
        """
        allocation = self._in_flight.pop(uid, None)
        if allocation is None:
            return False
        if uid in self._shown:
            self._shown.remove(uid)
            return False
        self.allocated.remove(allocation)
        self.version += 1
        return True

    def assume(self, claim: ResourceClaim) -> bool:
        """Use the API server's answer until the watch shows it; False if the watch does not know the claim (any more).

        Answers to the pods that share a claim can overtake each other: an older one changes
        nothing.
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
        """Drop the assumed version: the listed one counts again."""
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
        """Update what is derived from a claim."""
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
            # Usually it is as it was. If not, it went and came again while the watch was broken, by
            # the hand of another scheduler.
            if before == (uid, allocation):
                return
            del self._counted[key]
            self.allocated.remove(before[1])
            self._hide(before[0])
        if allocation is not None:
            self._counted[key] = (uid, allocation)
            self.allocated.add(allocation)
            self._show(uid, allocation)
        if before is not None or allocation is not None:
            self.version += 1

    def _show(self, uid: str, allocation: AllocationResult) -> None:
        """A claim has an allocation: if it is the one in flight, its devices count once."""
        in_flight = self._in_flight.get(uid)
        if in_flight is not None and holds_the_same(in_flight, allocation):
            self.allocated.remove(in_flight)
            self._shown.add(uid)

    def _hide(self, uid: str) -> None:
        """A claim lost its allocation: who still writes it may meet a conflict and write the same devices again."""
        if uid in self._shown:
            self._shown.remove(uid)
            self.allocated.add(self._in_flight[uid])

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
    """Is the API server's answer a later revision of the claim than the known one?"""
    mine, theirs = answer.metadata, known.metadata
    return mine.uid == theirs.uid and mine.is_newer_than(theirs)
