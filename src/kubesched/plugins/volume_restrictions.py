"""VolumeRestrictions: inline disks and claims that pods must not share.

Pods on a node must not share an inline disk (readers may share some kinds); a ReadWriteOncePod
claim has one pod in the cluster. Preemption can resolve both. Mirrors upstream's
`volumerestrictions/volume_restrictions.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod, Volume
from kubesched.api.pod_volumes import CLAIM, DISK
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unresolvable, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.volumes.claims import (
    direct_claims,
    not_found,
    uses_of,
    volumes_fragment,
)
from kubesched.plugins.helper.volumes.hints import uses_claim_directly
from kubesched.plugins.helper.volumes.wiring import listers_of

DISK_CONFLICT = unschedulable("node(s) had no available disk")
CLAIM_IN_USE = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
PRE_FILTER_STATE = "PreFilterVolumeRestrictions"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"


@dataclass(slots=True)
class _Claims:
    """The pod's ReadWriteOncePod claims and the number of their other users."""

    names: frozenset[str]
    conflicts: int

    def clone(self) -> _Claims:
        return _Claims(self.names, self.conflicts)


class VolumeRestrictions(
    PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin
):
    """Rejects nodes on which a disk is in use, and all nodes while a claim is."""

    name = "VolumeRestrictions"
    answers_by_spec = True
    lists = (PersistentVolumeClaim,)

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        uses = uses_of(state, pod)
        if not uses & (CLAIM | DISK):
            return SKIP
        names = self._exclusive_claims(pod) if uses & CLAIM else frozenset()
        if isinstance(names, Status):
            return names
        # A claim in use counts once, regardless of the number of pods: at most one should use it.
        namespace, in_use = pod.metadata.namespace, self.handle.table.claims
        conflicts = sum(f"{namespace}/{name}" in in_use for name in names)
        if not uses & DISK and not conflicts:
            return SKIP
        state.write(PRE_FILTER_STATE, _Claims(names, conflicts))
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        claims: _Claims | None = state.get(PRE_FILTER_STATE)
        if claims is None:
            return _missing()
        taken = self._taken(pod, nodes) if uses_of(state, pod) & DISK else None
        if claims.conflicts <= 0:
            return None if taken is None else Verdicts.reject(taken, DISK_CONFLICT)
        codes = np.full(len(nodes), 2, dtype=np.uint8)
        if taken is not None:
            codes[taken] = 1
        return Verdicts(codes, lambda code: DISK_CONFLICT if code == 1 else CLAIM_IN_USE)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        return None if uses_of(state, pod) & (CLAIM | DISK) else Rule(Scope.NODE)

    def add_pod(
        self, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns
    ) -> Status | None:
        return self._count(state, added.pod, 1)

    def remove_pod(
        self, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns
    ) -> Status | None:
        return self._count(state, removed.pod, -1)

    def _exclusive_claims(self, pod: Pod) -> frozenset[str] | Status:
        claims = listers_of(self.handle).of(PersistentVolumeClaim)
        names = []
        for name in direct_claims(pod):
            claim: PersistentVolumeClaim | None = claims.get(pod.metadata.namespace, name)
            if claim is None:
                return unresolvable(not_found("persistentvolumeclaim", name))
            if READ_WRITE_ONCE_POD in (claim.spec.access_modes or ()):
                names.append(name)
        return frozenset(names)

    def _taken(self, pod: Pod, nodes: NodeColumns) -> Mask:
        """Where another pod uses one of the pod's inline disks."""
        wanted, taken = disks_of(pod), np.zeros(len(nodes), dtype=np.bool_)
        for index in np.flatnonzero(nodes.candidates).tolist():
            taken[index] = any(
                other.volume_uses & DISK and conflict(wanted, disks_of(other.pod))
                for other in nodes.pods_at(index)
            )
        return taken

    def _count(self, state: CycleState, other: Pod, sign: int) -> Status | None:
        """Count a user of the claims that a what-if evaluation adds or removes.

        # Upstream: only names are compared, so a claim of that name in another namespace counts as
        # well.
        """
        claims: _Claims | None = state.get(PRE_FILTER_STATE)
        if claims is None:
            return _missing()
        claims.conflicts += sign * sum(name in claims.names for name in direct_claims(other))
        return None

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        claim = Resource.PERSISTENT_VOLUME_CLAIM
        return (
            on_event(Resource.ASSIGNED_POD, Action.DELETE, self.after_pod_deletion),
            on_event(Resource.NODE, Action.ADD),
            on_event(claim, Action.ADD, uses_claim_directly),
        )

    @reads("class")
    def after_pod_deletion(self, pod: Pod, old: Pod, new: Pod | None) -> Hint:
        """Queue if the deleted pod used one of the disks or claims.

        # Upstream: disks of pods in other namespaces conflict, but their deletion does not bring
        # the pod back.
        """
        if old.metadata.namespace != pod.metadata.namespace:
            return Hint.SKIP
        if conflict(disks_of(pod), disks_of(old)):
            return Hint.QUEUE
        shared = not set(direct_claims(pod)).isdisjoint(direct_claims(old))
        return Hint.QUEUE if shared else Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return volumes_fragment(pod)


def _missing() -> Status:
    return error_status(f'cannot read "{PRE_FILTER_STATE}" from cycleState')


class Disk(NamedTuple):
    """An inline disk as mounted by one pod."""

    identity: Hashable
    """Disks with different identities are never the same."""
    read_only: bool
    monitors: frozenset[str] | None = None
    """Ceph monitors; two RBD disks are the same only if they share one."""

    def conflicts_with(self, other: Disk) -> bool:
        if self.identity != other.identity or (self.read_only and other.read_only):
            return False
        if self.monitors is None or other.monitors is None:
            return True
        return not self.monitors.isdisjoint(other.monitors)


def disks_of(pod: Pod) -> list[Disk]:
    return [disk for volume in pod.spec.volumes or () for disk in _disks(volume)]


def _disks(volume: Volume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Disk(("GCE PD", gce.pd_name), gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        # Upstream: an EBS volume is never shared, not even by readers.
        yield Disk(("AWS EBS", ebs.volume_id), read_only=False)
    if (iscsi := volume.iscsi) is not None:
        yield Disk(("iSCSI", iscsi.iqn), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        monitors = frozenset(rbd.monitors or ())
        yield Disk(("RBD", rbd.pool, rbd.image), rbd.read_only, monitors)


def conflict(mine: Sequence[Disk], theirs: Iterable[Disk]) -> bool:
    return any(disk.conflicts_with(other) for other in theirs for disk in mine)
