"""Plugins of the default profile that are still to be written: they never let a pod through that would need them."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.interfaces import EnqueueExtensions, PreFilterPlugin
from kubesched.framework.status import SKIP, Status, unresolvable
from kubesched.snapshot.views import NodeColumns

UNSUPPORTED = unresolvable("persistent volumes are not supported by this scheduler yet")


class _Volumes(PreFilterPlugin, EnqueueExtensions):
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return ()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        needs = any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes or ())
        return UNSUPPORTED if needs else SKIP


class VolumeBinding(_Volumes):
    """Turns away pods with claims."""

    name = "VolumeBinding"


class VolumeZone(_Volumes):
    """Turns away pods with claims."""

    name = "VolumeZone"


class VolumeRestrictions(_Volumes):
    """Turns away pods with claims."""

    name = "VolumeRestrictions"


class NodeVolumeLimits(_Volumes):
    """Turns away pods with claims."""

    name = "NodeVolumeLimits"
